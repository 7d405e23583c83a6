"""Maintenance windows: nodes that close and open with time, and evictions at the beginning of a window."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import EvictionReason
from phalanx.model.maintenance import AtStart, MaintenanceWindow
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.preemption.voluntary_evictions import VoluntaryEvictions
from phalanx.scheduling.session.cycle_plugin import CyclePlugin, earlier
from phalanx.scheduling.session.session import Session

# Seconds until a retry of blocked evictions.
_RETRY = 10.0


class Maintenance(CyclePlugin):
    """Closes nodes for maintenance windows, and evicts their pods where the window requires it."""

    name = "maintenance"

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._table = state.nodes.maintenance
        self._retry_at: float | None = None

    def configure(self, policy: Policy) -> None:
        start_delay = (policy.reservations or ReservationSettings()).start_delay
        self._table.configure(policy.heeds_maintenance_signals, start_delay)

    def outdated(self) -> bool:
        return self._table.outdated

    def next_due(self) -> float | None:
        return earlier(self._table.next_change, self._retry_at)

    def advance(self, now: float) -> None:
        if self._table.advance(now):
            self._state.room_opened()
        self._state.recheck_nominations(self._table.changed_rows)

    def evict_ended(self, session: Session) -> None:
        self._retry_at = session.now + _RETRY
        blocked = evict_for_maintenance(session)
        if not blocked:
            self._retry_at = None


def evict_for_maintenance(session: Session) -> bool:
    """Evict pods from nodes whose window has begun and requires it; return whether some could not be evicted yet.

    Vetoes, budgets and rates hold as for every voluntary eviction. A surplus member is evicted alone, any other
    member with its whole gang.
    """
    table = session.state.nodes.maintenance
    begun = [window for window in table.begun() if window.at_start is AtStart.EVICT]
    if not begun:
        return False
    evictions = VoluntaryEvictions(session, session.evictions)
    blocked, evicted = False, set[str]()
    for window in begun:
        for record in evictable(session, table.rows_of(window.name)):
            if record.pod.uid in evicted:
                continue
            alone = evictions.try_add(record) is None
            members = [record] if alone else evictions.try_add_gang(record)
            if isinstance(members, str):
                blocked = True
                continue
            evicted.update(member.pod.uid for member in members)
            _evict(session, window, record, members)
            session.count_step()
    return blocked


def evictable(session: Session, rows: list[int]) -> Iterator[PodRecord]:
    """Yield the evictable pods of this scheduler on the rows by name, without DaemonSet and static pods."""
    pods = session.state.pods
    for row in rows:
        for record in sorted(pods.on(row), key=lambda pod_record: pod_record.pod.key):
            ours = record.pod.scheduler in session.state.schedulers
            if ours and not record.pod.fixture and record.state in CAN_LEAVE and not record.evicting:
                yield record


def _evict(session: Session, window: MaintenanceWindow, record: PodRecord, leaving: list[PodRecord]) -> None:
    cause = session.decisions.next_cause()
    message = f"node {record.pod.node} is in maintenance ({window.title})"
    for member in leaving:
        session.decisions.evict(member, EvictionReason.REVOKED, message, cause=cause)
