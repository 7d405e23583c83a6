"""Events on gangs that fall below their minimum while members run, for their controllers (KEP 34)."""

from __future__ import annotations

import asyncio

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.gangs.status_input import find_condition, shortfall
from phalanx.dialects.registry import Dialects
from phalanx.dialects.status import StatusChange
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.model.gang import GangKey
from phalanx.scheduling.gangs.quorum import quorum_requirement
from phalanx.status.event_publisher import object_reference, source_reference

# Delay in which a controller can replace a lost member without an event (seconds).
_SETTLE = 1.0


class LostMembers:
    """Recorder of an event on a PodGroup, once per change of its counts, whose running, pending and succeeded
    members are fewer than its minimum. Running members are not evicted.

    A group with only gated members has the same event. Native groups have none: they require nothing after their
    start.
    """

    def __init__(self, state: ClusterState, recorder: EventRecorder, dialects: Dialects | None = None) -> None:
        self._dialects = dialects or Dialects()
        self._state = state
        self._recorder = recorder
        self._told: dict[GangKey, str] = {}
        self._planned: set[GangKey] = set()

    def touch(self, key: GangKey) -> None:
        """Schedule the check for lost members after a change of a gang. Cheap."""
        record = self._state.gangs.get(key)
        if record is None or not self._is_short(record):
            self._told.pop(key, None)
        elif key not in self._planned:
            self._planned.add(key)
            asyncio.get_running_loop().call_later(_SETTLE, self._look, key)

    def status_written(self, key: GangKey, change: StatusChange) -> None:
        """Record an event on a PodGroup with only gated members, for which the scheduler makes no decision."""
        record = self._state.gangs.get(key)
        if record is None or record.pending or not record.counts().gated:
            return
        if not self._dialects.group_of(change.ref).waiting_reason:
            return
        conditions = change.patch.get("status", {}).get("conditions", [])
        unschedulable = find_condition(conditions, "Unschedulable")
        if unschedulable is not None and unschedulable["status"] == "True":
            self._tell(object_reference(change.ref), unschedulable["message"])

    def _tell(self, about: ObjectReference, note: str) -> None:
        self._recorder.record(about, type="Warning", reason="Unschedulable", action="Scheduling", note=note)

    def _look(self, key: GangKey) -> None:
        self._planned.discard(key)
        record = self._state.gangs.get(key)
        source = source_reference(record) if record is not None else None
        if record is None or source is None or record.spec is None or not self._is_short(record):
            self._told.pop(key, None)
            return
        roles = {role: record.counts(role) for role in record.roles()}
        note = shortfall(record.spec, record.counts(), roles)
        if self._told.get(key) != note:
            self._told[key] = note
            self._tell(source, note)

    def _is_short(self, record: GangRecord) -> bool:
        """Return whether members run, none is pending, and the existing members are fewer than a minimum that still
        counts.

        For pending members the verdict on the gang says so.
        """
        spec, counts = record.spec, record.counts()
        if spec is None or spec.source is None:
            return False
        if not self._dialects.group_of(spec.source).says_short:
            return False
        if not counts.running or record.pending:
            return False
        short = counts.present + counts.succeeded < spec.min_member or any(
            (role := record.counts(name)).present + role.succeeded < minimum for name, minimum in spec.roles
        )
        return short and not quorum_requirement(record, spec).satisfied
