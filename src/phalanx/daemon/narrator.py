"""Events: what happened, told once, to the object that the user looks at."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from phalanx.cluster.members import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.notices import Notice
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.model.decisions import Bind
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark, Pod
from phalanx.model.verdict import Verdict

_NODES_NAMED = 5


class Narrator:
    """One event per gang and change, regarding its object and the member that is asked about first; one per pod
    for pods on their own. A gang without an object has its first member only.
    """

    def __init__(self, recorder: EventRecorder, state: ClusterState) -> None:
        self._recorder = recorder
        self._state = state
        self._told: dict[GangKey, str] = {}
        self._told_pods: dict[str, str] = {}

    def placed(self, binds: Iterable[Bind]) -> None:
        """A plan's bindings, before they are posted."""
        nodes: dict[GangKey, Counter[str]] = {}
        for bind in binds:
            if bind.gang is not None:
                nodes.setdefault(bind.gang, Counter())[bind.node] += 1
        for key, counts in nodes.items():
            record = self._state.gangs.get(key)
            if record is None:
                continue
            self._told.pop(key, None)
            shown = ", ".join(f"{node} ({count})" for node, count in sorted(counts.items())[:_NODES_NAMED])
            more = f" and {len(counts) - _NODES_NAMED} more nodes" if len(counts) > _NODES_NAMED else ""
            note = f"{counts.total()} members of gang {key} were placed together: {shown}{more}"
            self._tell_gang(record, "Normal", "Scheduled", "Binding", note, members=False)

    def bound(self, bind: Bind) -> None:
        pod = ObjectReference("Pod", bind.name, bind.namespace, bind.uid, "v1")
        note = f"Successfully assigned {bind.namespace}/{bind.name} to {bind.node}"
        self._recorder.record(pod, reason="Scheduled", action="Binding", note=note)

    def refused(self, bind: Bind, message: str) -> None:
        pod = ObjectReference("Pod", bind.name, bind.namespace, bind.uid, "v1")
        note = f"binding to node {bind.node} failed: {message}"
        self._recorder.record(pod, type="Warning", reason="FailedScheduling", action="Binding", note=note)

    def held(self, record: GangRecord, verdict: Verdict) -> None:
        text = f"{verdict.code}: {verdict.message}"
        if self._told.get(record.key) == text:
            return
        self._told[record.key] = text
        reason = "Unschedulable" if verdict.unschedulable else verdict.code
        self._tell_gang(record, "Warning", reason, "Scheduling", verdict.message)

    def pod_held(self, pod: Pod, verdict: Verdict) -> None:
        if self._told_pods.get(pod.uid) == verdict.message:
            return
        self._told_pods[pod.uid] = verdict.message
        self._recorder.record(
            _pod(pod), type="Warning", reason="FailedScheduling", action="Scheduling", note=verdict.message
        )

    def timed_out(self, record: GangRecord, mark: PlanMark, holding: int, released: bool) -> None:
        end = "they are evicted so that the gang can start as one" if released else "they are kept"
        note = (
            f"gang {record.key} is still below its quorum after its scheduling timeout: {holding} of the "
            f"{mark.size} members of its plan are bound; {end} (policy phalanx.partialGang)"
        )
        self._tell_gang(record, "Warning", "ScheduleTimeout", "Scheduling", note)

    def notice(self, notice: Notice) -> None:
        about = notice.about
        reference = ObjectReference(about.kind, about.name, about.namespace, about.uid, about.api_version)
        self._recorder.record(
            reference, type=notice.type, reason=notice.reason, action="Validating", note=notice.message
        )

    def forget_pod(self, uid: str) -> None:
        self._told_pods.pop(uid, None)

    def _tell_gang(
        self, record: GangRecord, kind: str, reason: str, action: str, note: str, members: bool = True
    ) -> None:
        source = record.noun.source if record.noun is not None else None
        if source is not None:
            regarding = ObjectReference(
                source.kind, source.name, source.namespace, source.uid, f"{source.group}/{source.version}"
            )
            self._recorder.record(regarding, type=kind, reason=reason, action=action, note=note)
        if members or source is None:
            first = min(record.pending.values(), key=lambda member: member.order, default=None)
            if first is not None:
                pod_reason = "FailedScheduling" if kind == "Warning" and reason == "Unschedulable" else reason
                self._recorder.record(_pod(first.pod), type=kind, reason=pod_reason, action=action, note=note)


def _pod(pod: Pod) -> ObjectReference:
    return ObjectReference("Pod", pod.name, pod.namespace, pod.uid, "v1")
