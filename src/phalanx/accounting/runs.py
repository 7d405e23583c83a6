"""Rules about runs of gangs: the pods that belong to a run, and its state. Pure functions of recorded data."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from phalanx.accounting.facts import DEADLINE_EXCEEDED, PodOutcome, Precision
from phalanx.views.gang_state import GangFacts, GangState, gang_state

#: Seconds after an eviction within which new pods continue the run of a gang without an object or owner.
REQUEUED_WITHIN = 3600
#: Seconds within which evictions of pods of one gang count as one.
ONE_EVICTION = 60

_PREEMPTIONS = frozenset({"PreemptionByScheduler"})


class State(enum.StrEnum):
    """State of a run, named as in sacct. EVICTED is an eviction by another component than a scheduler (a drain, a
    lost node), UNKNOWN an end while the recorder did not watch."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    PREEMPTED = "PREEMPTED"
    EVICTED = "EVICTED"
    UNKNOWN = "UNKNOWN"

    @property
    def over(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


#: State of a run by the state of its gang: a run with a bound pod counts as running.
RUN_STATES: Mapping[GangState, State] = MappingProxyType(
    {
        GangState.PENDING: State.PENDING,
        GangState.GATED: State.PENDING,
        GangState.OTHER_SCHEDULER: State.PENDING,
        GangState.SUSPENDED: State.PENDING,
        GangState.PARTIAL: State.RUNNING,
        GangState.STARTING: State.RUNNING,
        GangState.RUNNING: State.RUNNING,
        GangState.EVICTING: State.RUNNING,
        GangState.COMPLETING: State.RUNNING,
        GangState.COMPLETED: State.COMPLETED,
        GangState.FAILED: State.FAILED,
        GangState.CANCELLED: State.CANCELLED,
        GangState.DELETED: State.UNKNOWN,
    }
)


class RunTotals(msgspec.Struct):
    """Sums over the members of a run: `open` have not ended, of which `bound` have a node.

    `last_end` is the latest end of an ended member (0: none), `last_evicted` is True if that was an eviction.
    `created` and `started` are the earliest times of a creation and of a binding (0: none).
    """

    members: int = 0
    open: int = 0
    bound: int = 0
    last_end: int = 0
    last_evicted: bool = False
    created: int = 0
    started: int = 0

    def add(self, created: int, bound: int | None, ended: int | None, *, evicted: bool) -> None:
        self.members += 1
        self.created = min(self.created or created, created)
        if bound is not None:
            self.started = min(self.started or bound, bound)
        if ended is None:
            self.open += 1
            self.bound += bound is not None
        elif ended >= self.last_end:
            self.last_evicted = evicted or (self.last_evicted and ended == self.last_end)
            self.last_end = ended


class MemberEnd(msgspec.Struct, frozen=True):
    """End of one member of a run. `evicted` is the time of its eviction, None without one."""

    name: str
    created: int
    ended: int
    precision: Precision
    outcome: str
    reason: str
    evicted: int | None


class RunEnd(msgspec.Struct, frozen=True):
    state: State
    reason: str
    ended: int
    precision: Precision


def belongs_to_run(totals: RunTotals, run_uid: str, gang_uid: str, created: int) -> bool:
    """Return whether a pod created at `created` belongs to the last run of its gang.

    `run_uid` is the uid of the gang in that run, `gang_uid` its present uid; "" stands for an unknown one.

    Pods created after the end of all pods begin a new run, except after an eviction, which does not end a run.
    """
    if run_uid and gang_uid and run_uid != gang_uid:
        return False
    if totals.open or not totals.members or created <= totals.last_end:
        return True
    return totals.last_evicted and (
        (bool(gang_uid) and run_uid == gang_uid) or created - totals.last_end <= REQUEUED_WITHIN
    )


def open_state(totals: RunTotals) -> State:
    """Return the state of a run that has not ended."""
    return RUN_STATES[gang_state(GangFacts(placed=totals.bound, pending=totals.open - totals.bound))]


def run_end(ends: Sequence[MemberEnd], now: int, precision: Precision) -> RunEnd:
    """Return the end of a run without open members; without any member it was cancelled `now`.

    Of members of one name the last counts. Evicted members count only if no others remain.

    A failed member makes the run failed; else a succeeded one makes it completed, because its remaining members
    were not needed any more.
    """
    if not ends:
        return RunEnd(State.CANCELLED, "", now, precision)
    last: dict[str, MemberEnd] = {}
    for end in sorted(ends, key=lambda end: (end.created, end.ended)):
        last[end.name] = end
    final = max(ends, key=lambda end: (end.ended, end.precision))
    final_ends = [end for end in last.values() if end.outcome != PodOutcome.EVICTED]
    for outcome, state in (
        (PodOutcome.FAILED, State.FAILED),
        (PodOutcome.SUCCEEDED, State.COMPLETED),
        (PodOutcome.UNKNOWN, State.UNKNOWN),
        (PodOutcome.DELETED, State.CANCELLED),
    ):
        matching = [end for end in final_ends if end.outcome == outcome]
        if matching:
            reason = min(end.reason for end in matching)
            if state is State.FAILED and any(end.reason == DEADLINE_EXCEEDED for end in matching):
                state, reason = State.TIMEOUT, DEADLINE_EXCEEDED
            return RunEnd(state, reason, final.ended, final.precision)
    evicted = max((end for end in last.values()), key=lambda end: (end.ended, end.reason))
    state = State.PREEMPTED if evicted.reason in _PREEMPTIONS else State.EVICTED
    return RunEnd(state, evicted.reason, final.ended, final.precision)


def count_evictions(moments: Iterable[int]) -> int:
    """Return how often a gang was evicted as a whole, from the times of its members' evictions."""
    count, last = 0, None
    for moment in sorted(moments):
        if last is None or moment - last > ONE_EVICTION:
            count += 1
        last = moment
    return count
