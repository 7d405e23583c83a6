"""Controller that resumes suspended jobs when the queue admits their whole gang and the quota fits its pods.

A PodGroup is created for the job and passes the queue like any other. After its admission the job is updated: no
longer suspended, and with the group's name in its pod templates. So no pod is created before it can start. After
the eviction of its gang, a job is suspended again and requeued.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.groups.queued_records import (
    QUEUED_KINDS,
    QueuedGroup,
    QueuedJob,
    QueuedPod,
    QueueKey,
    read_group,
    read_job,
    read_pod,
)
from phalanx.controllers.jobs.quota_order import QuotaOrder, QuotaWait
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.jobs.quota_shortage import quota_shortage
from phalanx.jobs.suspended import (
    HOLD,
    QUEUE_LABEL,
    QUEUED_GROUP,
    PodTemplateSet,
    SuspendableKind,
    grouped,
    is_over,
    is_suspended,
    next_group_name,
    pod_sets,
    queued_group,
    resumed,
    suspended,
    wrong_scheduler,
)
from phalanx.kube.changes import Change, Key, Upsert
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import PODS, RESOURCE_QUOTAS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import ObjectReference
from phalanx.kube.own_objects import LABELS
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import decode_json, parse_whole

log = logging.getLogger(__name__)

POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
_SELECTOR = ",".join(f"{key}={value}" for key, value in LABELS.items())
_NOT_ADMITTED = ("", "Pending")
_QUOTA_PAUSE = 60.0
# Seconds between checks for an object that another controller creates for a job.
_INNER_OBJECT_PAUSE = 5.0


class SuspendedJobController:
    """Controller that reconciles a queued job when it or its PodGroup changes, or one of its pods is evicted."""

    name = "suspended job controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._queue: WorkQueue[QueueKey] = WorkQueue()
        # Kinds in their served versions.
        self._kinds = dict(QUEUED_KINDS)
        self.jobs: dict[str, ObjectStore[QueuedJob]] = {
            name: ObjectStore(read_job, changed=partial(self._job_changed, name)) for name in QUEUED_KINDS
        }
        self.groups: ObjectStore[QueuedGroup] = ObjectStore(
            read_group, index=lambda group: _place(group.job), changed=self._group_changed
        )
        self.pods: ObjectStore[QueuedPod] = ObjectStore(
            read_pod, index=lambda pod: "/".join(pod.group), changed=self._pod_changed
        )
        self._quotas = QuotaOrder(context, self._queue.add)
        self._published_notes: dict[str, str] = {}

    @property
    def watches(self) -> Sequence[WatchedKind]:
        kinds = (
            WatchedKind(_resource(version), partial(self._apply_job_change, version), QUEUE_LABEL)
            for kind in QUEUED_KINDS.values()
            for version in kind.in_versions()
        )
        return (
            *kinds,
            WatchedKind(POD_GROUPS, self.groups.sink, _SELECTOR),
            WatchedKind(RESOURCE_QUOTAS, self._quotas.quotas.sink),
            WatchedKind(PODS, self.pods.sink),
        )

    async def run(self, workers: int) -> None:
        await self._queue.run(self._try_reconcile, workers)

    def waiting(self) -> int:
        return len(self._queue)

    def _apply_job_change(self, kind: SuspendableKind, change: Change[bytes]) -> None:
        if isinstance(change, Upsert):
            self._kinds[kind.served.kind] = kind
        self.jobs[kind.served.kind].sink(change)

    def _job_changed(self, kind: str, key: Key, old: QueuedJob | None, new: QueuedJob | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._published_notes.pop(old.uid, None)
            self._quotas.leave(key[0], old.uid)
        self._queue.add((kind, key))

    def _group_changed(self, key: Key, old: QueuedGroup | None, new: QueuedGroup | None) -> None:
        for group in (old, new):
            if group is not None:
                self._queue.add(group.job)

    def _pod_changed(self, key: Key, old: QueuedPod | None, new: QueuedPod | None) -> None:
        for pod in (old, new):
            group = self.groups.get(pod.group) if pod is not None and pod.evicted else None
            if group is not None:
                self._queue.add(group.job)

    async def _try_reconcile(self, key: QueueKey) -> float | None:
        try:
            return await self.reconcile(key)
        except (ApiError, ConnectionLost) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("%s %s/%s: %s", key[0], *key[1], error)
            raise
        except Exception as error:
            self._context.failures.record_failure(self.name, _place(key), error)
            raise

    async def reconcile(self, key: QueueKey) -> float | None:
        kind = self._kinds[key[0]]
        namespace = key[1][0]
        record = self.jobs[key[0]].get(key[1])
        groups = list(self.groups.of(_place(key)))
        if record is None:
            await self._abandon(kind, key, groups)
            return None
        job: dict[str, Any] = decode_json(record.raw)
        mine = [group for group in groups if group.owner == record.uid]
        current = str((job["metadata"].get("annotations") or {}).get(QUEUED_GROUP, ""))
        if is_over(job):
            self._quotas.leave(namespace, record.uid)
            return None
        if not is_suspended(kind, job):
            self._quotas.leave(namespace, record.uid)
            present = next((group for group in mine if group.name == current), None)
            if current and present is None:
                made = await self._declaring(kind, key, job)
                if made is not None:
                    # Its pods reference the group and wait for it.
                    sets = pod_sets(kind.made or kind, made)
                    await self._create(namespace, queued_group(kind, job, current, sets, LABELS))
            elif present is not None and present.withdrawn and present.phase in _NOT_ADMITTED:
                await self._suspend(kind, key, record, job, "no node came for its gang")
            elif present is not None and self._is_evicted(namespace, present):
                await self._suspend(kind, key, record, job, "its gang was evicted")
            return None
        declaring = await self._declaring(kind, key, job)
        if declaring is None:
            return _INNER_OBJECT_PAUSE
        sets = pod_sets(kind.made or kind, declaring)
        on_hold = (job["metadata"].get("annotations") or {}).get(HOLD) == "true"
        fault = _belongs_to(job) or wrong_scheduler(sets, self._context.scheduler_names)
        name = next_group_name(kind, job)
        for group_record in mine:
            if group_record.name != name or on_hold or fault:
                await self._delete(namespace, group_record)
        if on_hold or fault:
            self._quotas.leave(namespace, record.uid)
            if fault:
                self._publish(kind, key, record, "Warning", "NotQueued", fault)
            return None
        short = await self._shortage(key, record, job, sets)
        group = next((record for record in mine if record.name == name), None)
        if group is None and short is None:
            await self._create(namespace, queued_group(kind, job, name, sets, LABELS))
            return None
        if group is not None:
            await self._update(namespace, group, queued_group(kind, job, name, sets, LABELS))
        if short is not None:
            self._publish(kind, key, record, "Warning", "QuotaExceeded", short)
            return _QUOTA_PAUSE
        if group is None or group.phase in _NOT_ADMITTED:
            return None
        if kind.made is not None and (body := grouped(kind.made, declaring, name)) != declaring:
            # The inner object is updated first, so that no pod is created without the group.
            await self._context.writer.replace(_resource(self._served(kind.made)).path(*key[1]), body)
        answer = await self._context.writer.replace(_resource(kind).path(*key[1]), resumed(kind, job, name))
        self.jobs[key[0]].put(key[1], msgspec.json.encode(answer))
        self._quotas.leave(namespace, record.uid)
        queue = job["metadata"]["labels"][QUEUE_LABEL]
        self._publish(kind, key, record, "Normal", "Resumed", f"admitted to queue {queue}")
        return None

    def _is_evicted(self, namespace: str, group: QueuedGroup) -> bool:
        """Return whether evictions by the scheduler reduce the group below its minimum."""
        pods = list(self.pods.of(f"{namespace}/{group.name}"))
        if not any(pod.evicted for pod in pods):
            return False
        spec = decode_json(group.raw).get("spec") or {}
        return sum(pod.stays for pod in pods) < (parse_whole(str(spec.get("minMember")), 1) or 1)

    async def _suspend(
        self, kind: SuspendableKind, key: QueueKey, record: QueuedJob, job: dict[str, Any], cause: str
    ) -> None:
        """Suspend a job in one write: its controller deletes the pods, and the next reconciliation creates a new
        PodGroup."""
        answer = await self._context.writer.replace(_resource(kind).path(*key[1]), suspended(kind, job))
        self.jobs[key[0]].put(key[1], msgspec.json.encode(answer))
        queue = job["metadata"]["labels"][QUEUE_LABEL]
        self._publish(kind, key, record, "Normal", "Requeued", f"{cause}: it is requeued in queue {queue}")

    def _served(self, kind: SuspendableKind) -> SuspendableKind:
        """Return a suspendable kind in the version that the API server serves."""
        return self._kinds.get(kind.served.kind, kind)

    async def _declaring(self, kind: SuspendableKind, key: QueueKey, job: dict[str, Any]) -> dict[str, Any] | None:
        """Return the object that declares the job's pods: the job, or the object that its controller creates.

        None if that object does not exist yet.
        """
        if kind.made is None:
            return job
        try:
            made = await self._context.client.get(_resource(self._served(kind.made)).path(*key[1]))
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        owners = made["metadata"].get("ownerReferences") or ()
        mine = any(
            reference.get("controller") and reference.get("uid") == job["metadata"].get("uid")
            for reference in owners
        )
        return made if mine else None

    async def _shortage(
        self, key: QueueKey, record: QueuedJob, job: dict[str, Any], sets: Sequence[PodTemplateSet]
    ) -> str | None:
        """Return the shortage in the namespace's ResourceQuotas for all pods that the job creates at once; None if
        they fit."""
        namespace = key[1][0]
        pods = [(pod_set.spec, pod_set.count) for pod_set in sets if pod_set.counted]
        age = (str(job["metadata"].get("creationTimestamp", "")), key[1][1])
        shortage = quota_shortage(self._quotas.quotas.of(namespace), pods)
        older = self._quotas.ahead(namespace, record.uid, age, pods)
        if shortage is None and older is None:
            return None
        line = older.shortage if older is not None else shortage
        assert line is not None
        self._quotas.wait(QuotaWait(namespace, key[1][1], key, record.uid, age, pods, line))
        if older is not None:
            return f"{older.name} is older and waits for quota {line.quota}"
        return str(shortage)

    async def _abandon(self, kind: SuspendableKind, key: QueueKey, groups: Sequence[QueuedGroup]) -> None:
        """Delete the PodGroups of a suspended job that was deleted or removed from the queue."""
        if not groups:
            return
        try:
            job = await self._context.client.get(_resource(kind).path(*key[1]))
        except ApiError as error:
            if error.status != 404:
                raise
            return  # the garbage collector deletes the groups with their owner
        metadata = job.get("metadata") or {}
        if is_suspended(kind, job) and QUEUE_LABEL not in (metadata.get("labels") or {}):
            for group in groups:
                if group.owner == metadata.get("uid"):
                    await self._delete(key[1][0], group)

    async def _create(self, namespace: str, group: dict[str, Any]) -> None:
        answer = await self._context.writer.create(POD_GROUPS.path(namespace), group)
        self.groups.put((namespace, group["metadata"]["name"]), msgspec.json.encode(answer))

    async def _update(self, namespace: str, group: QueuedGroup, desired: dict[str, Any]) -> None:
        """Update the PodGroup to the size of its suspended job, which can change while the job is queued."""
        current = decode_json(group.raw).get("spec") or {}
        wanted = desired["spec"]
        spec = {key: value for key, value in wanted.items() if current.get(key) != value}
        if "minResources" in spec:
            removed = dict.fromkeys(set(current.get("minResources") or {}) - set(wanted["minResources"]))
            spec["minResources"] = {**removed, **wanted["minResources"]}
        if not spec:
            return
        body = {"metadata": {"uid": group.uid}, "spec": spec}
        answer = await self._context.writer.patch(POD_GROUPS.path(namespace, group.name), body, PatchType.MERGE)
        self.groups.put((namespace, group.name), msgspec.json.encode(answer))

    async def _delete(self, namespace: str, group: QueuedGroup) -> None:
        try:
            await self._context.writer.delete(POD_GROUPS.path(namespace, group.name), uid=group.uid)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        self.groups.remove((namespace, group.name), group.uid)

    def _publish(
        self, kind: SuspendableKind, key: QueueKey, record: QueuedJob, severity: str, reason: str, note: str
    ) -> None:
        """Record an Event on a suspended job, once until the note changes."""
        if self._published_notes.get(record.uid) == note:
            return
        self._published_notes[record.uid] = note
        regarding = ObjectReference(
            kind.served.kind, key[1][1], key[1][0], record.uid, kind.served.api_version, record.resource_version
        )
        # Requeued and Resumed can occur again with the same note; a warning describes a state that lasts.
        self._context.recorder.record(
            regarding, type=severity, reason=reason, action=reason, note=note, once=severity == "Warning"
        )


def _belongs_to(job: dict[str, Any]) -> str:
    """Return the message for a job whose owner is a queued kind too, because this owner would suspend the job
    again; "" for other jobs."""
    for owner in job["metadata"].get("ownerReferences") or ():
        above = QUEUED_KINDS.get(str(owner.get("kind")))
        if owner.get("controller") and above is not None and above.made is not None:
            return f"it belongs to {owner['kind']} {owner.get('name')}: set the label {QUEUE_LABEL} on that object"
    return ""


def _resource(kind: SuspendableKind) -> Resource:
    return Resource(kind.served.group, kind.served.version, kind.served.plural, kind.served.kind)


def _place(key: QueueKey) -> str:
    return f"{key[0]}/{key[1][0]}/{key[1][1]}"
