"""Controller that restarts groups with fewer running members than their minimum, if their PodGroup requests it
(KEP 34).

A restart is recorded before its first pod is deleted, with the members at that time. So the process can die after
any write: the next reconciliation continues the same restart and counts it once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.groups.owners import why_no_restart
from phalanx.controllers.groups.records import MemberRecord, RestartableGroup, group_reader, member_reader
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.dialects.registry import Dialects, installed_dialects
from phalanx.dialects.times import format_time
from phalanx.jobs.group_restarts import (
    RESTART_STATUS,
    RestartStatus,
    begin_restart,
    decide_restart,
    read_restart_policy,
    read_restart_status,
    restart_event,
)
from phalanx.jobs.members import GROUP_RESTART
from phalanx.kube.changes import Key
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import ObjectReference
from phalanx.kube.paths import Resource

log = logging.getLogger(__name__)

GroupKey = tuple[Resource, Key]

# Delay that groups the changes of a gang's pods.
_GATHER = 0.2
# Seconds until a failed check is repeated: its reason can change without the group or its pods.
_RECHECK_PERIOD = 60.0


class GroupRestartController:
    """Controller that reconciles a PodGroup with a restart policy when it or one of its pods changes."""

    name = "group restart controller"

    def __init__(self, context: ControllerContext, dialects: Dialects | None = None) -> None:
        self._context = context
        dialects = dialects or Dialects(installed_dialects())
        self._queue: WorkQueue[GroupKey] = WorkQueue()
        self.pods: ObjectStore[MemberRecord] = ObjectStore(
            member_reader(dialects.declarations), index=lambda pod: pod.gang, changed=self._pod_changed
        )
        self.groups: dict[Resource, ObjectStore[RestartableGroup]] = {}
        self._by_gang: dict[str, dict[GroupKey, None]] = {}
        # Pods that were seen to succeed and are not yet recorded: they can be deleted before the reconciliation.
        self._unrecorded: dict[GroupKey, dict[str, MemberRecord]] = {}
        for kind in dialects.groups.values():
            for version in kind.kind.versions:
                served = kind.kind.served_as(version)
                resource = Resource(served.group, served.version, served.plural, served.kind)
                self.groups[resource] = ObjectStore(
                    group_reader(dialects, served), changed=partial(self._group_changed, resource)
                )

    @property
    def watches(self) -> Sequence[WatchedKind]:
        kinds = tuple(WatchedKind(resource, store.sink) for resource, store in self.groups.items())
        return (*kinds, WatchedKind(PODS, self.pods.sink))

    async def run(self, workers: int) -> None:
        await self._queue.run(self._try_reconcile, workers)

    def waiting(self) -> int:
        return len(self._queue)

    def _group_changed(
        self, resource: Resource, key: Key, old: RestartableGroup | None, new: RestartableGroup | None
    ) -> None:
        group_key = (resource, key)
        if old is not None:
            group_keys = self._by_gang.get(old.gang, {})
            group_keys.pop(group_key, None)
            if not group_keys:
                self._by_gang.pop(old.gang, None)
        if new is not None:
            self._by_gang.setdefault(new.gang, {})[group_key] = None
            self._queue.add(group_key, _GATHER)
        else:
            self._unrecorded.pop(group_key, None)
            self._queue.forget(group_key)

    def _pod_changed(self, key: Key, old: MemberRecord | None, new: MemberRecord | None) -> None:
        for pod in (old, new):
            for group_key in self._by_gang.get(pod.gang, ()) if pod is not None else ():
                if pod is not None and pod.member.succeeded:
                    self._unrecorded.setdefault(group_key, {})[pod.uid] = pod
                self._queue.add(group_key, _GATHER)

    async def _try_reconcile(self, key: GroupKey) -> float | None:
        try:
            return await self.reconcile(key)
        except (ApiError, ConnectionLost) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("PodGroup %s/%s: %s", *key[1], error)
            raise
        except Exception as error:
            self._context.failures.record_failure(self.name, "/".join(key[1]), error)
            raise

    async def reconcile(self, key: GroupKey) -> float | None:
        resource, name = key
        group = self.groups[resource].get(name)
        if group is None or group.deleting:
            return None
        policy, problem = read_restart_policy(group.annotations)
        status = read_restart_status(group.annotations, group.uid)
        unrecorded = dict(self._unrecorded.get(key, {}))
        if policy is None:
            self._unrecorded.pop(key, None)
            if problem and status.message != problem:
                await self._write(key, group, replace(status, message=problem))
                self._publish(key, group, "Warning", "InvalidRestartPolicy", problem)
            return None
        present = {pod.uid: pod for pod in self.pods.of(group.gang)}
        pods = [pod for pod in (unrecorded | present).values() if not pod.objects or resource.group in pod.objects]
        now = int(self._context.clock())
        members = [pod.member for pod in pods]
        decided = decide_restart(policy, status, group.minimum, members, now)
        after, to_delete, again = decided.status, decided.to_delete, None
        if decided.due:
            owners = [(pod.member.name, pod.owner) for pod in pods if pod.member.alive]
            refusal = await why_no_restart(self._context.client, name[0], owners)
            if refusal is not None:
                after, again = replace(after, message=f"not restarted: {refusal}"), _RECHECK_PERIOD
            else:
                after = begin_restart(after, members, now)
                to_delete = decide_restart(policy, after, group.minimum, members, now).to_delete
        if after != status:
            await self._write(key, group, after)
            if after.restarts != status.restarts and after.last is not None:
                self._publish(key, group, "Warning", "GroupRestarted", restart_event(policy, after.last))
            elif after.message and after.message != status.message:
                self._publish(key, group, "Warning", "GroupNotRestarted", after.message)
        for uid in unrecorded:
            self._unrecorded.get(key, {}).pop(uid, None)
        by_uid = {pod.uid: pod for pod in pods}
        if to_delete:
            await self._delete([by_uid[member.uid] for member in to_delete], after)
        if decided.wake_at is not None:
            return max(0.0, decided.wake_at - self._context.clock())
        return again

    async def _write(self, key: GroupKey, group: RestartableGroup, status: RestartStatus) -> None:
        """Write the restart status to a PodGroup. Raise ApiError 409 if the group has changed: then it is
        reconciled again."""
        resource, name = key
        note = msgspec.json.encode(status).decode()
        metadata = {
            "uid": group.uid,
            "resourceVersion": group.resource_version,
            "annotations": {RESTART_STATUS: note},
        }
        path = resource.path(*name)
        answer = await self._context.writer.patch(path, {"metadata": metadata}, PatchType.MERGE)
        self.groups[resource].put(name, msgspec.json.encode(answer))

    async def _delete(self, pods: Sequence[MemberRecord], status: RestartStatus) -> None:
        """Delete the pods of a restarting gang, after setting their condition DisruptionTarget so that a Job can
        ignore them as failures."""
        number = status.last.number if status.last is not None else 0
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": GROUP_RESTART,
            "message": f"phalanx: restart {number} of the pod's group",
            "lastTransitionTime": format_time(int(self._context.clock())),
        }
        await asyncio.gather(*(self._mark(pod, condition) for pod in pods))
        await asyncio.gather(*(self._drop(pod) for pod in pods))

    async def _mark(self, pod: MemberRecord, condition: dict[str, str]) -> None:
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        path = PODS.path(pod.namespace, pod.member.name, "status")
        try:
            await self._context.writer.patch(path, patch, PatchType.STRATEGIC)
        except ApiError as error:
            if error.status not in (404, 409):
                raise

    async def _drop(self, pod: MemberRecord) -> None:
        key = (pod.namespace, pod.member.name)
        try:
            answer = await self._context.writer.delete(PODS.path(*key), uid=pod.uid)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self.pods.remove(key, pod.uid)
            return
        if isinstance(answer, dict) and (answer.get("metadata") or {}).get("deletionTimestamp"):
            self.pods.put(key, msgspec.json.encode(answer))
        else:
            self.pods.remove(key, pod.uid)

    def _publish(self, key: GroupKey, group: RestartableGroup, kind: str, reason: str, note: str) -> None:
        resource, (namespace, name) = key
        regarding = ObjectReference(
            resource.kind, name, namespace, group.uid, resource.api_version, group.resource_version
        )
        self._context.recorder.record(regarding, type=kind, reason=reason, action=reason, note=note)
