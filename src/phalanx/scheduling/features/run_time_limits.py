"""Pods that run longer than their limit: their gangs are evicted, at once or when a unit needs the room.

The policy says which.
"""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import EvictionReason
from phalanx.model.text.run_times import run_time_sentence
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.preemption.rules.min_available import whole_gang_of
from phalanx.scheduling.preemption.voluntary_evictions import VoluntaryEvictions
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session

REPORT = "report"
WHEN_NEEDED = "evict-when-needed"
KILL = "kill"
EXCEEDED_RUN_TIMES = (REPORT, WHEN_NEEDED, KILL)

#: So many seconds after a gang could not go it is tried again.
RETRY = 10.0
# So many waiting units are tried a cycle.
_MOST_ATTEMPTED = 16


class RunTimeLimitEvictions(CyclePlugin):
    """Evicts pods that run longer than their limit."""

    name = "run-times"

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._limits = state.pods.run_time_limits
        self._queue = queue
        self._rule = REPORT
        self._retry_at: float | None = None

    def configure(self, policy: Policy) -> None:
        self._rule, self._retry_at = policy.exceeded_run_times, None

    def next_due(self) -> float | None:
        if self._rule == REPORT:
            return None
        times = (self._limits.next_end, self._retry_at)
        return min((when for when in times if when is not None), default=None)

    def advance(self, now: float) -> None:
        if self._limits.advance(now) and self._rule != REPORT:
            # A unit that waits may get the room of these pods.
            self._queue.activate_everything()

    def evict_ended(self, session: Session) -> None:
        self._retry_at = session.now + RETRY
        left = False
        if self._rule == KILL:
            left = _kill(session)
        elif self._rule == WHEN_NEEDED and session.unschedulable:
            left = _make_room(session)
        if not left:
            self._retry_at = None


def run_time_exceeded_pods(session: Session) -> Iterator[PodRecord]:
    """Our pods whose time is over, the longest first. What belongs to its node or to others stays."""
    for uid in session.state.pods.run_time_limits.over:
        record = session.state.pods.get(uid)
        if record is not None and not record.pod.fixture and record.pod.scheduler in session.state.schedulers:
            yield record


def _kill(session: Session) -> bool:
    """A limit is no eviction for others' sake: nobody has a say in it. A gang goes as a whole."""
    left, gone = False, set[str]()
    for record in run_time_exceeded_pods(session):
        if record.pod.uid in gone:
            continue
        leaving = whole_gang_of(record, session.state)
        if isinstance(leaving, str):
            left = True
            continue
        leaving = [member for member in leaving if member.pod.scheduler in session.state.schedulers]
        gone.update(member.pod.uid for member in leaving)
        _evict(session, record, leaving)
    return left


def _make_room(session: Session) -> bool:
    """The gang whose time has been over for the longest goes first, if that lets somebody start who waits for room;
    vetoes, budgets and rates hold."""
    waiting = [
        unit
        for unit in session.units
        if unit.key in session.unschedulable and unit.starts_planned and session.unschedulable[unit.key][0].for_room
    ][:_MOST_ATTEMPTED]
    waiting = [unit for unit in waiting if not _fits_without(session, unit, [])]
    evictions = VoluntaryEvictions(session, session.evictions)
    left, gone = False, set[str]()
    for record in run_time_exceeded_pods(session):
        if record.pod.uid in gone or not waiting:
            continue
        mark = evictions.mark()
        leaving = evictions.try_add_gang(record)
        if isinstance(leaving, str):
            left = True
            continue
        helped = next((unit for unit in waiting if _fits_without(session, unit, leaving)), None)
        session.count_step()
        if helped is None:
            evictions.undo_to(mark)
            left = True
            continue
        waiting.remove(helped)
        gone.update(member.pod.uid for member in leaving)
        _evict(session, record, leaving, helped.name)
    return left


def _evict(session: Session, record: PodRecord, leaving: list[PodRecord], preemptor: str = "") -> None:
    cause, message = session.decisions.next_cause(), run_time_sentence(record.pod.run_time)
    for member in leaving:
        session.decisions.evict(member, EvictionReason.REVOKED, message, preemptor, cause)


def _fits_without(session: Session, unit: QueuedUnit, leaving: list[PodRecord]) -> bool:
    """Whether the unit's pods would find room if others left, beside those who are leaving anyway. (Whether it
    starts is decided then.)"""
    transaction = session.state.transaction()
    try:
        out = {**dict.fromkeys(session.state.pods.terminating.values()), **dict.fromkeys(leaving)}
        transaction.remove([each for each in out if each.row >= 0])
        by_class: dict[int, list[PodRecord]] = {}
        for each in _starting(session, unit):
            by_class.setdefault(each.pod_class.number, []).append(each)
        for alike in by_class.values():
            while alike:
                rows = session.placer.place(alike[0].pod_class, len(alike))
                if not rows:
                    return False
                placed, alike = alike[: len(rows)], alike[len(rows) :]
                transaction.place(placed[0].pod_class, placed, rows)
        return True
    finally:
        transaction.rollback()


def _starting(session: Session, unit: QueuedUnit) -> list[PodRecord]:
    if unit.pod is not None:
        return [unit.pod]
    return [each for gang in unit.required for each in _quorum(session, gang)]


def _quorum(session: Session, gang: GangRecord) -> list[PodRecord]:
    return session.pending_in_order(gang)[: session.requirement(gang).total]
