"""Events for features of the cycle, found in what the cluster and the plan record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.scheduling.diagnosis.verdicts import members_missing
from phalanx.scheduling.queue.unit import awaits_admission
from phalanx.scheduling.session.cycle_plugin import Allocation

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session


class Events(msgspec.Struct, frozen=True):
    """Events since the last call, each kind in a stated order: by node and uid, and by the order of the units."""

    ready: list[GangRecord]
    allocated: list[Allocation]
    deallocated: list[Allocation]


class CycleEvents:
    """Compares the pods on the rows that have changed, and the gangs that were touched, with the last call."""

    def __init__(self) -> None:
        self._cursor = -1
        self._by_row: dict[int, dict[str, Allocation]] = {}
        self._ready: dict[GangKey, None] = {}

    def collect(self, session: Session) -> Events:
        """Return what has happened up to now."""
        allocated, deallocated = self._moved(session.state)
        return Events(self._became_ready(session), allocated, deallocated)

    def _moved(self, state: ClusterState) -> tuple[list[Allocation], list[Allocation]]:
        nodes = state.nodes
        changed = nodes.changes.since(self._cursor, max(64, nodes.extent))
        self._cursor = nodes.changes.end
        rows = sorted({*range(nodes.extent), *self._by_row} if changed is None else {*changed})
        before: dict[str, Allocation] = {}
        after: dict[str, Allocation] = {}
        for row in (row for row in rows if row >= 0):
            before |= self._by_row.pop(row, {})
            found = {record.pod.uid: Allocation(record, nodes.names[row]) for record in state.pods.on(row)}
            found = {uid: each for uid, each in sorted(found.items()) if _allocated(each.record)}
            if found:
                self._by_row[row] = found
                after |= found
        came = [each for uid, each in after.items() if uid not in before or before[uid].node != each.node]
        left = [each for uid, each in before.items() if uid not in after or after[uid].node != each.node]
        return came, left

    def _became_ready(self, session: Session) -> list[GangRecord]:
        gangs = session.state.gangs
        for key in [key for key in self._ready if not _waits_complete(session, gangs.get(key))]:
            del self._ready[key]
        admitted = {each.gang: None for each in session.plan.admissions}
        found: list[GangRecord] = []
        for key in {gang.key: None for unit in session.units for gang in unit.gangs} | admitted:
            gang = gangs.get(key)
            if gang is None or key in self._ready:
                continue
            if _waits_complete(session, gang):
                self._ready[key] = None
                found.append(gang)
            elif key in admitted and gang.spec is not None and session.requirement(gang).satisfied:
                # It was admitted and placed in one cycle.
                found.append(gang)
        return found


def _allocated(record: PodRecord) -> bool:
    """Return whether a pod on a row holds it, rather than a nomination for it."""
    return record.state is not MemberState.PENDING and not record.pod.placeholder


def _waits_complete(session: Session, gang: GangRecord | None) -> bool:
    """Return whether a gang waits for nothing but room and quota."""
    if gang is None or gang.spec is None or gang.spec.problem is not None or not gang.pending:
        return False
    need = session.requirement(gang)
    return not (need.satisfied or awaits_admission(gang)) and members_missing(gang, gang.spec, need) is None
