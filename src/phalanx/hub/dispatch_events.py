"""Events about the dispatch of users' objects, recorded on these objects."""

from __future__ import annotations

from phalanx.hub.dispatch import Dispatch, DispatchStatus, Phase
from phalanx.hub.jobs.kinds import REFUSED_KINDS, is_annotated, job_kind, refusal
from phalanx.hub.objects import StoredObject, printable
from phalanx.hub.protocol import SPILL_OVER
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.kube.paths import Resource

_MOST = 8192
# Reasons of gangs that wait at the hub, with the type of their event.
_WAITS = {"NoCluster": "Warning", "StageIn": "Normal", "DataSourceClaim": "Warning"}


class DispatchEvents:
    """Recorder of dispatch events, each once for each object and text."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder
        self._recorded: dict[str, str] = {}

    def job_seen(self, resource: Resource, job: StoredObject) -> None:
        """Record why a job that is meant for the hub is not dispatched."""
        kind = job_kind(resource.api_version, resource.kind)
        if kind is not None:
            problem = refusal(kind, job.document)
        else:
            problem = REFUSED_KINDS.get(resource, "") if is_annotated(job.document) else ""
        if not problem:
            self._recorded.pop(job.uid, None)
        elif self._recorded.get(job.uid) != problem:
            self._remember(job.uid, problem)
            about = ObjectReference(resource.kind, job.name, job.namespace, job.uid, resource.api_version)
            note = f"this {resource.kind} is not dispatched: {problem}"
            self._recorder.record(about, reason="NotDispatched", action="Dispatch", note=note, type="Warning")

    def moved(self, record: Dispatch, status: DispatchStatus) -> None:
        """Record the phase change of a Dispatch as an event on the gang."""
        reason, note, kind = _event(record, status)
        if not reason:
            return
        gang = record.gang
        about = ObjectReference(gang.kind, gang.name, record.namespace, gang.uid, gang.api_version)
        self._recorder.record(about, reason=reason, action="Dispatch", note=note, type=kind)

    def _remember(self, uid: str, why: str) -> None:
        self._recorded[uid] = why
        if len(self._recorded) > _MOST:
            del self._recorded[next(iter(self._recorded))]


def _event(record: Dispatch, status: DispatchStatus) -> tuple[str, str, str]:
    """Return reason, note and type of the event about a Dispatch's phase change; no reason if there is no event."""
    before, where = record.status, f"cluster {printable(status.cluster or record.status.cluster, 100)}"
    message = printable(status.message)
    if status.unknown_since and not before.unknown_since:
        return "ClusterSilent", message, "Warning"
    if status.reason in _WAITS and (before.reason, before.message) != (status.reason, status.message):
        return status.reason, message, _WAITS[status.reason]
    if status.reason == "RecallRefused" and before.phase == Phase.RECALLING.value:
        return "RecallRefused", message, "Normal"
    if status.phase == before.phase:
        return "", "", ""
    match Phase(status.phase):
        case Phase.GRANTED:
            return "Dispatched", f"granted in {where}, epoch {status.epoch}", "Normal"
        case Phase.RECALLING:
            return "Recalling", f"recalled from {where} unless it has started: {message}", "Normal"
        case Phase.WITHDRAWING:
            return "Withdrawing", f"withdrawn from {where}: {printable(status.reason)}", "Normal"
        case Phase.PENDING:
            kind = "Normal" if status.reason in ("Withdrawn", SPILL_OVER) else "Warning"
            return status.reason or "Pending", f"no longer in {where}: {message}", kind
        case Phase.ENDED:
            return "Ended", f"ended in {where}", "Normal"
        case Phase.COPYING:
            return "", "", ""
