"""What a run of a gang is: which pods belong to it, and how it stands. Pure rules over what is recorded."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import msgspec

from phalanx.accounting.facts import PodOutcome, Precision
from phalanx.views.gang_state import GangFacts, GangState, gang_state

#: Pods of a gang without an object or owner that come so many seconds after its eviction go on with its run.
REQUEUED_WITHIN = 3600
#: Pods of a gang that are told to go within so many seconds of one another are one eviction.
ONE_EVICTION = 60

_PREEMPTIONS = frozenset({"PreemptionByScheduler"})
_TIMEOUTS = frozenset({"DeadlineExceeded"})


class State(enum.StrEnum):
    """As sacct calls them; EVICTED is a preemption by somebody else than a scheduler (a drain, a lost node),
    UNKNOWN what ended while nobody watched."""

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


#: sacct's word for a run whose gang is in a state: whoever holds a node is accounted as running.
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
    """The members of a run as one: `open` have not ended, of which `bound` have a node. `last_end` is when the last
    of the others ended (0: none did), `last_evicted` whether by an eviction. The first was `created` and `started`
    then (0: none was)."""

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
    """How one member of a run ended. `evicted` is when it was told to go, None where nobody told it."""

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


def goes_on(totals: RunTotals, run_uid: str, gang_uid: str, created: int) -> bool:
    """Whether a pod that was `created` then belongs to a run of a gang of its name. `run_uid` is the uid that the
    gang had in that run, `gang_uid` the one that it has now; either may be unknown ("").

    A gang runs again when it comes back after all its pods have ended; one that was evicted goes on.
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
    """How a run ended all of whose members have. Of members of one name the last counts, and evicted ones only
    where no others are left. A run without members was called off, `now` as far as is known.

    One that failed makes the run a failed one; else one that succeeded makes it complete: its others were not
    needed any longer.
    """
    if not ends:
        return RunEnd(State.CANCELLED, "", now, precision)
    last: dict[str, MemberEnd] = {}
    for each in sorted(ends, key=lambda each: (each.created, each.ended)):
        last[each.name] = each
    final = max(ends, key=lambda each: (each.ended, each.precision))
    others = [each for each in last.values() if each.outcome != PodOutcome.EVICTED]
    for outcome, state in (
        (PodOutcome.FAILED, State.FAILED),
        (PodOutcome.SUCCEEDED, State.COMPLETED),
        (PodOutcome.UNKNOWN, State.UNKNOWN),
        (PodOutcome.DELETED, State.CANCELLED),
    ):
        some = [each for each in others if each.outcome == outcome]
        if some:
            reason = min(each.reason for each in some)
            if state is State.FAILED and any(each.reason in _TIMEOUTS for each in some):
                state, reason = State.TIMEOUT, "DeadlineExceeded"
            return RunEnd(state, reason, final.ended, final.precision)
    evicted = max((each for each in last.values()), key=lambda each: (each.ended, each.reason))
    state = State.PREEMPTED if evicted.reason in _PREEMPTIONS else State.EVICTED
    return RunEnd(state, evicted.reason, final.ended, final.precision)


def count_evictions(moments: Iterable[int]) -> int:
    """How often a gang was evicted whose members were told to go at these moments."""
    count, last = 0, None
    for moment in sorted(moments):
        if last is None or moment - last > ONE_EVICTION:
            count += 1
        last = moment
    return count
