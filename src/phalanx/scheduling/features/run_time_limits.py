"""Evictions of gangs that exceed their run-time limit: at once, or when a unit needs the room, by policy."""

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
from phalanx.scheduling.session.cycle_plugin import CyclePlugin, earlier
from phalanx.scheduling.session.session import Session

REPORT = "report"
WHEN_NEEDED = "evict-when-needed"
KILL = "kill"
EXCEEDED_RUN_TIMES = (REPORT, WHEN_NEEDED, KILL)

#: Seconds until a retry of gangs that could not be evicted.
RETRY = 10.0
# Number of waiting units that are tried in a cycle.
_MOST_ATTEMPTED = 16


class RunTimeLimitEvictions(CyclePlugin):
    """Evictions of pods that exceed their run-time limit."""

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
        return earlier(self._limits.next_end, self._retry_at)

    def advance(self, now: float) -> None:
        if self._limits.advance(now) and self._rule != REPORT:
            # Waiting units can fit in the room of these pods.
            self._queue.activate_everything()

    def evict_ended(self, session: Session) -> None:
        self._retry_at = session.now + RETRY
        blocked = False
        if self._rule == KILL:
            blocked = _kill(session)
        elif self._rule == WHEN_NEEDED and session.unschedulable:
            blocked = _make_room(session)
        if not blocked:
            self._retry_at = None


def run_time_exceeded_pods(session: Session) -> Iterator[PodRecord]:
    """Yield the pods of this scheduler that exceed their limit, the longest first, without DaemonSet and static
    pods and without pods that are evicted already."""
    for uid in session.state.pods.run_time_limits.over:
        record = session.state.pods.get(uid)
        if record is None or record.pod.fixture or record.evicting:
            continue
        if record.pod.scheduler in session.state.schedulers:
            yield record


def _kill(session: Session) -> bool:
    """Evict all gangs that exceed their limit, as whole gangs; return whether some could not be evicted yet.

    The eviction serves no preemptor, so vetoes and budgets do not apply.
    """
    blocked, evicted = False, set[str]()
    for record in run_time_exceeded_pods(session):
        if record.pod.uid in evicted:
            continue
        members = whole_gang_of(record, session.state)
        if isinstance(members, str):
            blocked = True
            continue
        members = [member for member in members if member.pod.scheduler in session.state.schedulers]
        evicted.update(member.pod.uid for member in members)
        _evict(session, record, members)
    return blocked


def _make_room(session: Session) -> bool:
    """Evict gangs that exceed their limit, the longest first, where that lets a waiting unit start.

    Vetoes, budgets and rates hold. Return whether some gangs could not be evicted yet.
    """
    waiting = [
        unit
        for unit in session.units
        if unit.key in session.unschedulable and unit.starts_planned and session.unschedulable[unit.key][0].for_room
    ][:_MOST_ATTEMPTED]
    waiting = [unit for unit in waiting if not _fits_without(session, unit, [])]
    evictions = VoluntaryEvictions(session, session.evictions)
    blocked, evicted = False, set[str]()
    for record in run_time_exceeded_pods(session):
        if record.pod.uid in evicted or not waiting:
            continue
        mark = evictions.mark()
        leaving = evictions.try_add_gang(record)
        if isinstance(leaving, str):
            blocked = True
            continue
        helped = next((unit for unit in waiting if _fits_without(session, unit, leaving)), None)
        session.count_step()
        if helped is None:
            evictions.undo_to(mark)
            blocked = True
            continue
        waiting.remove(helped)
        evicted.update(member.pod.uid for member in leaving)
        _evict(session, record, leaving, helped.name)
    return blocked


def _evict(session: Session, record: PodRecord, leaving: list[PodRecord], preemptor: str = "") -> None:
    cause, message = session.decisions.next_cause(), run_time_sentence(record.pod.run_time)
    for member in leaving:
        session.decisions.evict(member, EvictionReason.REVOKED, message, preemptor, cause)


def _fits_without(session: Session, unit: QueuedUnit, leaving: list[PodRecord]) -> bool:
    """Return whether the unit's pods fit without the `leaving` pods and without terminating ones.

    The cycle decides later whether the unit starts.
    """
    transaction = session.state.transaction()
    try:
        removed = {**dict.fromkeys(session.state.pods.terminating.values()), **dict.fromkeys(leaving)}
        transaction.remove([record for record in removed if record.row >= 0])
        by_class: dict[int, list[PodRecord]] = {}
        for record in _starting(session, unit):
            by_class.setdefault(record.pod_class.number, []).append(record)
        for equal_pods in by_class.values():
            while equal_pods:
                rows = session.placer.place(equal_pods[0].pod_class, len(equal_pods))
                if not rows:
                    return False
                placed, equal_pods = equal_pods[: len(rows)], equal_pods[len(rows) :]
                transaction.place(placed[0].pod_class, placed, rows)
        return True
    finally:
        transaction.rollback()


def _starting(session: Session, unit: QueuedUnit) -> list[PodRecord]:
    if unit.pod is not None:
        return [unit.pod]
    return [member for gang in unit.required for member in _quorum(session, gang)]


def _quorum(session: Session, gang: GangRecord) -> list[PodRecord]:
    return session.pending_in_order(gang)[: session.requirement(gang).total]
