"""Who leaves nodes when their maintenance begins: whole gangs, or what a gang can do without."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.decisions import EvictionReason
from phalanx.model.maintenance import AtStart, MaintenanceWindow
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.preemption.voluntary_evictions import VoluntaryEvictions
from phalanx.scheduling.session.session import Session


def evict_for_maintenance(session: Session) -> bool:
    """Evicts from nodes whose window has begun and says so; whether anybody is left who may not go now.

    Vetoes, budgets and rates hold as for every voluntary eviction. A member that its gang can do without goes
    alone; of any other the whole gang goes.
    """
    table = session.state.nodes.maintenance
    begun = [window for window in table.begun() if window.at_start is AtStart.EVICT]
    if not begun:
        return False
    evictions = VoluntaryEvictions(session, session.evictions)
    left, gone = False, set[str]()
    for window in begun:
        for record in evictable(session, table.rows_of(window.name)):
            if record.pod.uid in gone:
                continue
            alone = evictions.try_add(record) is None
            leaving = [record] if alone else evictions.try_add_gang(record)
            if isinstance(leaving, str):
                left = True
                continue
            gone.update(member.pod.uid for member in leaving)
            _evict(session, window, record, leaving)
            session.count_step()
    return left


def evictable(session: Session, rows: list[int]) -> Iterator[PodRecord]:
    """Our pods there, by name. What belongs to its node stays, and what others have placed is theirs to move."""
    pods = session.state.pods
    for row in rows:
        for record in sorted(pods.on(row), key=lambda each: each.pod.key):
            ours = record.pod.scheduler in session.state.schedulers
            if ours and not record.pod.fixture and record.state in CAN_LEAVE and not record.evicting:
                yield record


def _evict(session: Session, window: MaintenanceWindow, record: PodRecord, leaving: list[PodRecord]) -> None:
    cause = session.decisions.next_cause()
    message = f"node {record.pod.node} is in maintenance ({window.title})"
    for member in leaving:
        session.decisions.evict(member, EvictionReason.REVOKED, message, cause=cause)
