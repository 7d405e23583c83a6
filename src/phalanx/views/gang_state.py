"""State of a gang: an enum, the counts and flags that decide it, and the function that derives it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from types import MappingProxyType

import msgspec


class GangState(enum.StrEnum):
    """State of a gang, in one word. A single pod is a gang of one."""

    PENDING = "Pending"
    GATED = "Gated"
    OTHER_SCHEDULER = "OtherScheduler"
    PARTIAL = "Partial"
    STARTING = "Starting"
    RUNNING = "Running"
    EVICTING = "Evicting"
    COMPLETING = "Completing"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELLED = "Cancelled"
    SUSPENDED = "Suspended"
    DELETED = "Deleted"

    @property
    def sentence(self) -> str:
        """Meaning of the gang state, in one sentence."""
        return SENTENCES[self]

    @property
    def code(self) -> str:
        """Short code of the gang state, squeue's if squeue has such a state."""
        return CODES[self]

    @property
    def waits(self) -> bool:
        """Whether a gang in this state waits for nodes for its minimum."""
        return self in (GangState.PENDING, GangState.GATED, GangState.PARTIAL)

    @property
    def over(self) -> bool:
        """Whether a gang in this state has ended for good."""
        return self in (GangState.COMPLETED, GangState.FAILED, GangState.CANCELLED)


#: Meaning of each state; docs/gang-states.md shows this table.
SENTENCES: Mapping[GangState, str] = MappingProxyType(
    {
        GangState.PENDING: "No member has a node, and the gang waits for nodes; the reason is shown beside it.",
        GangState.GATED: "No member has a node, and all waiting members have scheduling gates.",
        GangState.OTHER_SCHEDULER: "No member has a node, and all waiting members name another scheduler.",
        GangState.PARTIAL: "Some members have a node, but fewer than the minimum.",
        GangState.STARTING: "At least the minimum of members have a node, but fewer run.",
        GangState.RUNNING: "At least the minimum of members run or have succeeded, and some have a node.",
        GangState.EVICTING: "Members are being evicted, and fewer than the minimum remain on nodes.",
        GangState.COMPLETING: "Its pods are being deleted or its owner ends it, and none is evicted.",
        GangState.COMPLETED: "It has ended and succeeded.",
        GangState.FAILED: "It has ended and failed.",
        GangState.CANCELLED: "A user cancelled it before its end.",
        GangState.SUSPENDED: "Its owner is suspended and has no pods on nodes.",
        GangState.DELETED: "It no longer exists.",
    }
)
#: squeue's codes where it has them; PT is ours.
CODES: Mapping[GangState, str] = MappingProxyType(
    {
        GangState.PENDING: "PD",
        GangState.GATED: "PD",
        GangState.OTHER_SCHEDULER: "PD",
        GangState.PARTIAL: "PT",
        GangState.STARTING: "CF",
        GangState.RUNNING: "R",
        GangState.EVICTING: "RQ",
        GangState.COMPLETING: "CG",
        GangState.COMPLETED: "CD",
        GangState.FAILED: "F",
        GangState.CANCELLED: "CA",
        GangState.SUSPENDED: "S",
        GangState.DELETED: "--",
    }
)


class PlacementForecast(enum.StrEnum):
    """Result of a dry run for a waiting gang."""

    NONE = ""  # not placed, or no dry run
    STARTS_NOW = "StartsNow"
    STARTS_AFTER_EVICTIONS = "StartsAfterEvictions"

    @property
    def words(self) -> str:
        """Forecast as a suffix of the gang's state in a line of text."""
        return {"StartsNow": "starts now", "StartsAfterEvictions": "starts after evictions"}.get(self, "")


class GangFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Counts and flags of a gang that decide its state.

    Each member is counted once: `pending` (of this scheduler, without a node), `gated`, `other_scheduler` (without
    a node), `placed` (assumed or bound, not running), `running`, `succeeded`, `failed`, `terminating` (being
    deleted). `evicted` counts evicted pods among the terminating ones. `minimum` members start together; with
    `minimum_met` the match policy requires no minimum any more.

    Fields of the owner have precedence: `ended` is its final state, `suspended` and `stopping` its action on its
    pods. With `owner_decides` only the owner determines when the gang has ended.
    """

    minimum: int = 0
    minimum_met: bool = False
    pending: int = 0
    gated: int = 0
    other_scheduler: int = 0
    placed: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    terminating: int = 0
    evicted: int = 0
    ended: GangState | None = None
    suspended: bool = False
    stopping: bool = False
    owner_decides: bool = False


def gang_state(facts: GangFacts) -> GangState:
    """Return the state of a gang with these counts and flags."""
    on_nodes = facts.placed + facts.running
    if facts.ended is not None:
        return facts.ended
    if facts.suspended:
        return GangState.COMPLETING if on_nodes else GangState.SUSPENDED
    if facts.stopping:
        return GangState.COMPLETING
    if on_nodes:
        return _state_on_nodes(facts, on_nodes)
    return _state_without_nodes(facts)


def _state_on_nodes(facts: GangFacts, on_nodes: int) -> GangState:
    # A succeeded member has finished its work, so it counts towards the minimum.
    if not facts.minimum_met and on_nodes + facts.succeeded < facts.minimum:
        return GangState.EVICTING if facts.evicted and not facts.pending else GangState.PARTIAL
    enough = 1 if facts.minimum_met else max(1, facts.minimum)
    return GangState.RUNNING if facts.running + facts.succeeded >= enough else GangState.STARTING


def _state_without_nodes(facts: GangFacts) -> GangState:
    if facts.pending:
        return GangState.PENDING
    if facts.gated:
        return GangState.GATED
    if facts.terminating:
        return GangState.EVICTING if facts.evicted else GangState.COMPLETING
    if facts.other_scheduler:
        return GangState.OTHER_SCHEDULER
    if not facts.owner_decides and (facts.succeeded or facts.failed):
        return GangState.FAILED if facts.failed else GangState.COMPLETED
    return GangState.PENDING
