"""Events about bindings and pending gangs and pods, on the objects that users read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.registry import Dialects
from phalanx.dialects.warnings import ObjectWarning
from phalanx.execution.conditions import text_of
from phalanx.kube.events import EventRecorder, ObjectReference
from phalanx.model.decisions import Bind, Evict
from phalanx.model.gang import GangKey, GroupRef, share_of
from phalanx.model.pod import PlanMark, Pod
from phalanx.model.text.counts import count_of
from phalanx.model.verdict import Verdict
from phalanx.scheduling.framework.policy import POD_EVENTS

_NODES_NAMED = 5
# Largest gang whose members get an event of their own with `auto`.
_SMALL = 8


class _Batch:
    """Bindings of one gang in one plan: number of bindings without an answer, and bound members per node."""

    __slots__ = ("first", "nodes", "open")

    def __init__(self) -> None:
        self.open = 0
        self.nodes: dict[str, int] = {}
        self.first: Bind | None = None


class EventPublisher:
    """Recorder of events on gangs and pods.

    A change of a gang is recorded on its object and its first member, or on the first member only if it has no
    object. Other pending members get one event per reason, after all more urgent events. So have single pods.

    Bound members of small gangs get an event of their own as `pod_events` says (the policy's `phalanx.podEvents`),
    if there is time for it: for large gangs these events would cost more than the bindings.
    """

    def __init__(
        self,
        recorder: EventRecorder,
        state: ClusterState,
        dialects: Dialects | None = None,
        pod_events: Callable[[], str] = lambda: POD_EVENTS[0],
    ) -> None:
        self._recorder = recorder
        self._dialects = dialects or Dialects()
        self._state = state
        self._pod_events = pod_events
        self._batches: dict[tuple[GangKey, str], _Batch] = {}

    def bindings_posted(self, binds: Iterable[Bind]) -> None:
        """Prepare the events for the posted bindings of a plan. `binding_answered` must be called for each."""
        for bind in binds:
            if bind.gang is not None:
                self._batches.setdefault((bind.gang, bind.cause), _Batch()).open += 1

    def binding_answered(self, bind: Bind, bound: bool) -> None:
        if bind.gang is None:
            if bound:
                self._bound(bind)
            return
        if bound and self._has_own_event(bind.gang) and not self._recorder.drop_optional():
            self._bound(bind, optional=True)
        batch = self._batches.get((bind.gang, bind.cause))
        if batch is None:
            return
        batch.open -= 1
        if bound:
            batch.nodes[bind.node] = batch.nodes.get(bind.node, 0) + 1
            if batch.first is None or bind.name < batch.first.name:
                batch.first = bind
        if not batch.open:
            del self._batches[bind.gang, bind.cause]
            if batch.first is not None:
                self._gang_bound(bind.gang, batch.first, batch.nodes)

    def _bound(self, bind: Bind, *, optional: bool = False) -> None:
        note = f"Successfully assigned {bind.namespace}/{bind.name} to {bind.node}"
        self._recorder.record(
            pod_reference(bind), reason="Scheduled", action="Binding", note=note, optional=optional
        )

    def _has_own_event(self, key: GangKey) -> bool:
        """Return whether a bound member of the gang gets an event of its own."""
        setting = self._pod_events()
        if setting != "auto":
            return setting == "member"
        record = self._state.gangs.get(key)
        return record is not None and len(record.members) <= _SMALL

    def _gang_bound(self, key: GangKey, first: Bind, nodes: Mapping[str, int]) -> None:
        shown = ", ".join(f"{node} ({count})" for node, count in sorted(nodes.items())[:_NODES_NAMED])
        more = f" and {len(nodes) - _NODES_NAMED} more nodes" if len(nodes) > _NODES_NAMED else ""
        record, member = self._state.gangs.get(key), pod_reference(first)
        title = record.title if record is not None else str(key)
        note = (
            f"Successfully assigned {count_of(sum(nodes.values()), 'pod')} of gang {title} together: {shown}{more}"
        )
        regarding = source_reference(record) if record is not None else None
        self._recorder.record(regarding or member, reason="Scheduled", action="Binding", note=note)

    def binding_refused(self, bind: Bind, message: str) -> None:
        note = f"binding to node {bind.node} failed: {message}"
        self._recorder.record(
            pod_reference(bind), type="Warning", reason="FailedScheduling", action="Binding", note=note
        )

    def gang_waits(self, record: GangRecord, verdict: Verdict) -> None:
        reason = "Unschedulable" if verdict.unschedulable else verdict.code
        self._publish_gang(record, reason, text_of(verdict), held=True)

    def gang_has_object(self, record: GangRecord, verdict: Verdict) -> None:
        """Record the published verdict on the object of a gang that had none at that time."""
        reason = "Unschedulable" if verdict.unschedulable else verdict.code
        self._publish_gang(record, reason, text_of(verdict), held=True, members=False)

    def member_waits(self, pod: Pod, verdict: Verdict) -> None:
        """Record an event on another pending member of a gang whose first member has its event."""
        reason = "FailedScheduling" if verdict.unschedulable else verdict.code
        self._recorder.record(
            pod_reference(pod),
            type="Warning",
            reason=reason,
            action="Scheduling",
            note=text_of(verdict),
            behind=True,
        )

    def pod_waits(self, pod: Pod, verdict: Verdict) -> None:
        self._recorder.record(
            pod_reference(pod),
            type="Warning",
            reason="FailedScheduling",
            action="Scheduling",
            note=text_of(verdict),
        )

    def surplus_waits(self, members: Sequence[PodRecord], verdict: Verdict) -> None:
        """Record one event for members above the minimum of a gang that are pending for the same reason."""
        first = min(members, key=lambda member: member.order)
        note = f"{count_of(len(members), 'pod')} above the minimum pending: {text_of(verdict)}"
        self._recorder.record(
            pod_reference(first.pod), type="Warning", reason="FailedScheduling", action="Scheduling", note=note
        )

    def plan_timed_out(self, record: GangRecord, mark: PlanMark, holding: int, released: bool) -> None:
        end = "they are evicted so that the gang can start as one" if released else "they are kept"
        note = (
            f"{share_of(holding, mark.size, 'planned pod')} of gang {record.title} bound at its scheduling "
            f"timeout; {end} (policy phalanx.partialGang)"
        )
        self._publish_gang(record, "ScheduleTimeout", note)

    def run_time_ends(self, record: PodRecord, reason: str, note: str) -> None:
        """Record on a pod and on the object of its gang that its run-time limit has ended or ends soon."""
        source = source_reference(record.gang) if record.gang is not None else None
        for regarding in filter(None, (source, pod_reference(record.pod))):
            self._recorder.record(regarding, type="Warning", reason=reason, action="Running", note=note, once=True)

    def publish_warning(self, notice: ObjectWarning) -> None:
        about = notice.about
        reference = ObjectReference(about.kind, about.name, about.namespace, about.uid, about.api_version)
        self._recorder.record(
            reference,
            type=notice.type,
            reason=notice.reason,
            action="Validating",
            note=notice.message,
            once=True,
        )

    def _publish_gang(
        self, record: GangRecord, reason: str, note: str, held: bool = False, members: bool = True
    ) -> None:
        source = source_reference(record)
        if source is not None:
            assert record.spec is not None
            assert record.spec.source is not None
            kind = self._dialects.group_of(record.spec.source)
            kind_reason = kind.waiting_reason if held and kind.waiting_reason else reason
            self._recorder.record(source, type="Warning", reason=kind_reason, action="Scheduling", note=note)
        first = min(record.pending.values(), key=lambda member: member.order, default=None)
        if first is not None and members:
            pod_reason = "FailedScheduling" if reason == "Unschedulable" else reason
            self._recorder.record(
                pod_reference(first.pod), type="Warning", reason=pod_reason, action="Scheduling", note=note
            )


def source_reference(record: GangRecord) -> ObjectReference | None:
    """Return a reference to the object that declares a gang; None if its pods declare it."""
    source = record.spec.source if record.spec is not None else None
    return object_reference(source) if source is not None else None


def object_reference(ref: GroupRef) -> ObjectReference:
    """Return a reference to an object of a custom kind, for its events."""
    return ObjectReference(ref.kind, ref.name, ref.namespace, ref.uid, f"{ref.group}/{ref.version}")


def pod_reference(pod: Pod | Bind | Evict) -> ObjectReference:
    """Return a reference to a pod, for its events."""
    return ObjectReference("Pod", pod.name, pod.namespace, pod.uid, "v1")
