"""Warnings about queues and quotas without a valid parent."""

from __future__ import annotations

from phalanx.cluster.state import ClusterState
from phalanx.kube.events import EventRecorder
from phalanx.status.event_publisher import object_reference

_CODES = frozenset({"ParentNotFound", "ParentCycle"})
CHARGES_NOTHING = "it and its children accept no new pods"


class OrphanedAccounts:
    """Recorder of an event, once per change, on a queue or quota whose parent is missing or whose parents form a
    cycle.

    Queues and quotas below it have the same fault, but only the object that can be corrected gets the event.
    """

    def __init__(self, state: ClusterState, recorder: EventRecorder) -> None:
        self._state = state
        self._recorder = recorder
        self._looked: int | None = None
        self._told: dict[str, str] = {}

    def warn_of_changes(self) -> None:
        """Record events about missing parents since the last change of queues and quotas. The ledger must be
        refreshed."""
        version = self._state.ledger.shape_version
        if version == self._looked:
            return
        self._looked = version
        found: dict[str, str] = {}
        for record in self._state.ledger.accounts.values():
            fault, spec = record.fault, record.spec
            if fault is None or fault.code not in _CODES or spec is None or spec.source is None:
                continue
            if record.parent is not None and record.parent.fault is fault:
                continue
            found[spec.uid] = fault.message
            if self._told.get(spec.uid) != fault.message:
                about = object_reference(spec.source)
                note = f"{fault.message}; {CHARGES_NOTHING}"
                self._recorder.record(
                    about, type="Warning", reason=fault.code, action="Validating", note=note, once=True
                )
        self._told = found
