"""Events for features of the cycle, derived from changes of the cluster and the plan."""

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
    """Events since the last call in a fixed order: by node and uid, and by the order of the gangs and pods in the
    queue."""

    ready: list[GangRecord]
    allocated: list[Allocation]
    deallocated: list[Allocation]


class CycleEvents:
    """Comparison of the nodes' pods and of affected gangs with those at the last call."""

    def __init__(self) -> None:
        self._cursor = -1
        self._by_row: dict[int, dict[str, Allocation]] = {}
        self._ready: dict[GangKey, None] = {}

    def collect(self, session: Session) -> Events:
        """Return the events since the last call."""
        allocated, deallocated = self._allocation_changes(session.state)
        return Events(self._newly_ready(session), allocated, deallocated)

    def _allocation_changes(self, state: ClusterState) -> tuple[list[Allocation], list[Allocation]]:
        nodes = state.nodes
        changed = nodes.changes.since(self._cursor, max(64, nodes.extent))
        self._cursor = nodes.changes.end
        rows = sorted({*range(nodes.extent), *self._by_row} if changed is None else {*changed})
        before: dict[str, Allocation] = {}
        after: dict[str, Allocation] = {}
        for row in (row for row in rows if row >= 0):
            before |= self._by_row.pop(row, {})
            allocations = {record.pod.uid: Allocation(record, nodes.names[row]) for record in state.pods.on(row)}
            allocations = {
                uid: allocation for uid, allocation in sorted(allocations.items()) if _allocated(allocation.record)
            }
            if allocations:
                self._by_row[row] = allocations
                after |= allocations
        allocated = [
            allocation
            for uid, allocation in after.items()
            if uid not in before or before[uid].node != allocation.node
        ]
        deallocated = [
            allocation
            for uid, allocation in before.items()
            if uid not in after or after[uid].node != allocation.node
        ]
        return allocated, deallocated

    def _newly_ready(self, session: Session) -> list[GangRecord]:
        gangs = session.state.gangs
        for key in [key for key in self._ready if not _waits_complete(session, gangs.get(key))]:
            del self._ready[key]
        admitted = {admission.gang: None for admission in session.plan.admissions}
        ready: list[GangRecord] = []
        for key in {gang.key: None for unit in session.units for gang in unit.gangs} | admitted:
            gang = gangs.get(key)
            if gang is None or key in self._ready:
                continue
            if _waits_complete(session, gang):
                self._ready[key] = None
                ready.append(gang)
            elif key in admitted and gang.spec is not None and session.requirement(gang).satisfied:
                # The gang was admitted and placed in the same cycle.
                ready.append(gang)
        return ready


def _allocated(record: PodRecord) -> bool:
    """Return whether a pod is allocated to its node row, not only nominated."""
    return record.state is not MemberState.PENDING and not record.pod.placeholder


def _waits_complete(session: Session, gang: GangRecord | None) -> bool:
    """Return whether a complete gang waits only for free resources and quota."""
    if gang is None or gang.spec is None or gang.spec.problem is not None or not gang.pending:
        return False
    need = session.requirement(gang)
    return not (need.satisfied or awaits_admission(gang)) and members_missing(gang, gang.spec, need) is None
