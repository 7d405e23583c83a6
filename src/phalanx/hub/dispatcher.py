"""Dispatcher: observes each gang, requests the next steps from the protocol, and executes them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence

import msgspec

from phalanx.dialects.times import format_time
from phalanx.hub import protocol
from phalanx.hub.copies import copy_view, group_copy, mirrored, pod_copy
from phalanx.hub.dispatch import Dispatch, DispatchStatus, new_dispatch, with_status
from phalanx.hub.gangs import HubObjects, group_of, reference
from phalanx.hub.jobs.kinds import DISPATCH, JOB_KINDS, MULTIKUEUE, JobKind, job_kind
from phalanx.hub.jobs.writes import JobWrites, create_copy, expecting
from phalanx.hub.members.connection import ClusterConnection
from phalanx.hub.names import DISPATCHED, DISPATCHES, GRANT_GATE, GROUP_KINDS, ORIGIN_UID
from phalanx.hub.objects import Json, printable
from phalanx.hub.observed import ClusterView, OriginGang
from phalanx.kube.changes import Key
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource

log = logging.getLogger(__name__)

_AGAIN = 2.0


class Dispatcher:
    """Executor of the dispatch protocol for all gangs.

    `connections` are the member clusters by name, `specs` the specs of their MemberClusters. `choose` is called
    with a gang that needs a cluster. `left` is called with a cluster and the uid of a record that has left it.
    `recall` returns the reason to recall a waiting gang, usually "". `moved` is called with each written record and
    its new status.
    """

    def __init__(
        self,
        client: KubeClient,
        objects: HubObjects,
        connections: Mapping[str, ClusterConnection],
        specs: Mapping[str, Json],
        origin: str,
        choose: Callable[[str], None],
        left: Callable[[str, str], None],
        recall: Callable[[Dispatch], str] = lambda record: "",
        patience: int = 30,
        moved: Callable[[Dispatch, DispatchStatus], None] = lambda record, status: None,
    ) -> None:
        self._client = client
        self._objects = objects
        self._connections = connections
        self._specs = specs
        self._origin = origin
        self._choose = choose
        self._left = left
        self._recall = recall
        self._patience = patience
        self._moved = moved
        self._began = int(time.time())
        #: Rejections of clusters by record and epoch, until the record has them.
        self._refused: dict[tuple[str, int], str] = {}
        self._jobs = JobWrites(client, objects, origin, self._refused)

    async def look(self, gang_uid: str) -> float | None:
        """Execute the next protocol steps of a gang; return the seconds until the next call, None to wait for a
        change.

        Raises ApiError, ConnectionLost.
        """
        pause: float | None = None
        for _ in range(20):
            record, gang = self._objects.record(gang_uid), self._objects.view(gang_uid)
            if record is None and gang is None:
                return None
            if record is not None and gang is not None and (recall_reason := self._recall(record)):
                gang = msgspec.structs.replace(gang, recall=recall_reason)
            steps = protocol.next_steps(record, gang, self._views(record, gang), int(time.time()))
            if not steps:
                return 30.0 if record is not None and record.status.unknown_since else pause
            if isinstance(steps[0], protocol.Choose):
                assert record is not None
                assert gang is not None
                self._choose(gang_uid)
                return None
            if all(isinstance(step, protocol.WriteStatus | protocol.CreateRecord) for step in steps):
                if not await self._record_step(steps[0], record, gang_uid):
                    return _AGAIN
            else:
                # The writes come back as watch events; the gang is examined again later in any case.
                await self._carry_out(steps, record, gang_uid)
                pause = _AGAIN
                if not any(isinstance(step, protocol.ConfirmGone | protocol.RemoveRecord) for step in steps):
                    return pause
        return _AGAIN

    async def refuse(self, key: Key) -> float | None:
        """Write into a gated pod's status that it is not dispatched, and the fix. Raises ApiError,
        ConnectionLost."""
        pod = self._objects.pods.get(key)
        if pod is None or group_of(pod) is not None:
            return None
        status = pod.document.get("status") or {}
        owners = pod.document["metadata"].get("ownerReferences") or ()
        kinds = ", ".join(sorted({printable(entry.get("kind"), 60) for entry in owners}))
        condition = {
            "type": DISPATCHED,
            "status": "False",
            "reason": "NotSupported",
            "message": f"pods {f'of a {kinds} ' if kinds else ''}without a PodGroup are not dispatched; name one "
            "of " + " or ".join(kind.resource.group for kind in GROUP_KINDS) + "; " + _advice(owners),
        }
        conditions_before = status.get("conditions") or ()
        other_conditions = [entry for entry in conditions_before if entry.get("type") != DISPATCHED]
        last_dispatched = [entry for entry in conditions_before if entry.get("type") == DISPATCHED]
        if last_dispatched and {field: last_dispatched[0].get(field) for field in condition} == condition:
            return None
        conditions = [*other_conditions, {**condition, "lastTransitionTime": format_time(int(time.time()))}]
        precise = {"uid": pod.uid, "resourceVersion": pod.resource_version}
        patch = {"metadata": precise, "status": {"conditions": conditions}}
        await expecting(self._client.patch(PODS.path(*key, "status"), patch, PatchType.MERGE), 404, 409)
        return None

    # -- observed state ------------------------------------------------------------------------------------

    def _views(self, record: Dispatch | None, gang: OriginGang | None) -> dict[str, ClusterView]:
        if record is None:
            return {}
        origins = {}
        if gang is not None and (group := self._objects.group(record.gang.uid)) is not None:
            origins = {pod.uid: pod.document for pod in self._objects.members(*group)}
        names = list(self._connections) if not record.status.cluster else [record.status.cluster]
        views = {name: self._view(name, record, gang, origins) for name in names if name in self._connections}
        for name in names:
            if name not in views and self._objects.clusters.get(("", name)) is not None:
                # It is a member that is not connected yet, or cannot be connected.
                views[name] = ClusterView(name, silent_since=self._began, patience=self._patience)
        return views

    def _view(
        self, name: str, record: Dispatch, gang: OriginGang | None, origins: Mapping[str, Json]
    ) -> ClusterView:
        connection = self._connections[name]
        refusal = self._refused.get((record.uid, record.status.epoch), "")
        if gang is not None and gang.clusters and name not in gang.clusters:
            refusal = refusal or f"the gang does not allow cluster {name}"
        if self._specs.get(name, {}).get("state") == "Drain":
            refusal = refusal or f"cluster {name} is being drained"
        if not connection.ready:
            since, lost = connection.unheard_since, connection.lost
            return ClusterView(name, None, "", lost, since, refusal, self._patience)
        if (kind := job_kind(record.gang.api_version, record.gang.kind)) is not None:
            jobs = connection.jobs(kind.resource, record.uid)
            copies = {copy.uid: self._jobs.seen(kind, copy, origins) for copy in jobs}
            return ClusterView(name, copies, "", refusal=refusal, patience=self._patience, grouped=False)
        views = [
            copy_view(pod.document, origins.get(pod.annotation(ORIGIN_UID)))
            for pod in connection.copies(record.uid)
        ]
        group = connection.group(record.uid)
        return ClusterView(
            name,
            {copy.uid: copy for copy in views},
            group.uid if group is not None else "",
            refusal=refusal,
            patience=self._patience,
        )

    # -- record --------------------------------------------------------------------------------------------

    async def _record_step(self, step: protocol.Step, record: Dispatch | None, gang_uid: str) -> bool:
        if isinstance(step, protocol.WriteStatus):
            assert record is not None
            return await self.write(record, step.status)
        kind_and_group = self._objects.group(gang_uid)
        if kind_and_group is None:
            return False
        kind, group = kind_and_group
        try:
            await self._put(DISPATCHES.path(group.namespace), new_dispatch(group.namespace, reference(kind, group)))
        except ApiError as error:
            if error.status != 409:
                raise
            return False  # the watch shows the record
        return True

    async def write(self, record: Dispatch, status: DispatchStatus) -> bool:
        """Write the status of a Dispatch; return whether it was based on the newest version."""
        path = DISPATCHES.path(record.namespace, record.name, "status")
        try:
            body = msgspec.json.encode(await self._client.replace(path, with_status(record, status)))
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            return False
        self._objects.records.put((record.namespace, record.name), body)
        self._moved(record, status)
        if not status.cluster:
            if (former := self._connections.get(record.status.cluster)) is not None:
                former.sweep_soon()
                self._left(former.name, record.uid)
            self._refused.pop((record.uid, record.status.epoch), None)
        log.info(
            "gang %s/%s: %s%s%s, epoch %d",
            *(record.namespace, record.gang.name, status.phase, " in " if status.cluster else "", status.cluster),
            status.epoch,
        )
        return True

    async def _put(self, path: str, document: Json) -> None:
        body = await self._client.create(path, document)
        metadata = body["metadata"]
        self._objects.records.put((metadata["namespace"], metadata["name"]), msgspec.json.encode(body))

    # -- copies --------------------------------------------------------------------------------------------

    def copies(self, record: Dispatch, gang: OriginGang, epoch: int) -> list[Json]:
        """Return the copies of the gang's objects for this epoch; none for a deleted gang or a job."""
        kind_and_group = self._objects.group(gang.uid)
        if kind_and_group is None:
            return []
        kind, group = kind_and_group
        if isinstance(kind, JobKind):
            return []
        marks = (self._origin, record.uid, epoch, gang.lost_policy)
        live = {pod.uid for pod in gang.pods if not pod.ended}
        pods = [pod_copy(pod.document, *marks) for pod in self._objects.members(kind, group) if pod.uid in live]
        return [group_copy(group.document, *marks, len(gang.pods) - len(live)), *pods]

    # -- writes to clusters, and to pods at the hub --------------------------------------------------------

    async def _carry_out(self, steps: Sequence[protocol.Step], record: Dispatch | None, gang_uid: str) -> None:
        assert record is not None
        limit = asyncio.Semaphore(16)

        async def execute(step: protocol.Step) -> None:
            async with limit:
                await self._step(step, record, gang_uid)

        # The group is created before its pods, so that they wait for each other from the start.
        group_steps = [step for step in steps if isinstance(step, protocol.CreateGroup)]
        for step in group_steps:
            await execute(step)
        results = await asyncio.gather(
            *(execute(step) for step in steps if step not in group_steps), return_exceptions=True
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    async def _step(self, step: protocol.Step, record: Dispatch, gang_uid: str) -> None:
        connection = self._connections.get(record.status.cluster)
        job = job_kind(record.gang.api_version, record.gang.kind)
        if job is not None and not isinstance(step, protocol.RemoveRecord | protocol.ConfirmGone):
            await self._jobs.step(step, job, record, connection)
            return
        match step:
            case protocol.RemoveRecord():
                await self._remove(record)
            case protocol.FailLost(name, origin_uid):
                status = {
                    "phase": "Failed",
                    "reason": "CopyLost",
                    "message": f"its copy in {record.status.cluster} is deleted; its result is unknown",
                }
                await self._write_pod(record, name, origin_uid, status)
            case protocol.MirrorStatus(name, origin_uid, uid):
                copies = connection.copies(record.uid) if connection is not None else ()
                for copy in copies:
                    if copy.uid == uid:
                        copied_status = mirrored(copy.document.get("status") or {})
                        await self._write_pod(record, name, origin_uid, copied_status)
            case _ if connection is None:
                return
            case protocol.ConfirmGone():
                if await connection.gone(
                    record.namespace, record.uid, (copy.uid for copy in record.status.granted)
                ):
                    await self.write(record, protocol.withdrawn(record.status, int(time.time())))
            case protocol.DeleteCopy() | protocol.RecallCopy() | protocol.ReleaseCopy():
                await connection.clear(record.namespace, step)
            case protocol.DeleteGroup(uid):
                for kind in GROUP_KINDS:
                    if kind.resource.api_version == record.gang.api_version:
                        path = kind.resource.path(record.namespace, record.gang.name)
                        await expecting(connection.client.delete(path, uid=uid), 404, 409)
            case protocol.LiftGate(name, uid):
                await self._lift(connection, record, name, uid)
            case _:
                await self._create(connection, record, gang_uid, step)

    async def _create(
        self, connection: ClusterConnection, record: Dispatch, gang_uid: str, step: protocol.Step
    ) -> None:
        kind_and_group, gang = self._objects.group(gang_uid), self._objects.view(gang_uid)
        if kind_and_group is None or gang is None:
            return
        kind, group = kind_and_group
        if isinstance(kind, JobKind):
            return
        marks = (self._origin, record.uid, record.status.epoch, gang.lost_policy)
        if isinstance(step, protocol.CreateGroup):
            resource: Resource = kind.resource
            document = group_copy(group.document, *marks, sum(pod.ended for pod in gang.pods))
        else:
            assert isinstance(step, protocol.CreateCopy)
            pods = [pod for pod in self._objects.members(kind, group) if pod.uid == step.origin_uid]
            if not pods:
                return
            resource, document = PODS, pod_copy(pods[0].document, *marks)
        await create_copy(connection, record, resource, document, self._refused)

    async def _lift(self, connection: ClusterConnection, record: Dispatch, name: str, uid: str) -> None:
        copy = next((candidate for candidate in connection.copies(record.uid) if candidate.uid == uid), None)
        if copy is None:
            return
        # The patch applies to the seen version only: it must not remove a gate that another client has added since.
        gates = [gate for gate in copy.document["spec"]["schedulingGates"] if gate.get("name") != GRANT_GATE]
        precise = {"uid": uid, "resourceVersion": copy.resource_version}
        patch = {"metadata": precise, "spec": {"schedulingGates": gates}}
        path = PODS.path(record.namespace, name)
        await expecting(connection.client.patch(path, patch, PatchType.MERGE), 404, 409)

    async def _write_pod(self, record: Dispatch, name: str, uid: str, status: Json) -> None:
        """Write the status of a pod at the hub, based on the version that was read."""
        pod = self._objects.pods.get((record.namespace, name))
        if pod is None or pod.uid != uid:
            return
        conditions = [
            condition
            for condition in (pod.document.get("status") or {}).get("conditions") or ()
            if condition.get("type") != DISPATCHED
        ]
        conditions.append(
            {
                "type": DISPATCHED,
                "status": "True",
                "reason": "InCluster",
                "message": f"cluster {record.status.cluster}, epoch {record.status.epoch}",
                "lastTransitionTime": record.status.since or format_time(int(time.time())),
            }
        )
        patch = {
            "metadata": {"uid": uid, "resourceVersion": pod.resource_version},
            "status": {**status, "conditions": conditions},
        }
        path = PODS.path(record.namespace, name, "status")
        answer = await expecting(self._client.patch(path, patch, PatchType.MERGE), 404, 409)
        if answer is not None:
            self._objects.pods.put((record.namespace, name), msgspec.json.encode(answer))

    async def _remove(self, record: Dispatch) -> None:
        """Delete a Dispatch and remove its finalizer, both based on the read version."""
        path = DISPATCHES.path(record.namespace, record.name)
        precise = {"uid": record.uid, "resourceVersion": record.version}
        if not record.deleting:
            await expecting(self._client.delete(path, uid=record.uid), 404, 409)
            return  # the watch shows the version that is being deleted
        answer = await expecting(
            self._client.patch(path, {"metadata": {**precise, "finalizers": []}}, PatchType.MERGE), 404, 409
        )
        if answer is not None:
            self._objects.records.remove((record.namespace, record.name), record.uid)


def _advice(owners: Sequence[Json]) -> str:
    """Return the advice for gated pods that have such owners and no PodGroup."""
    for kind in (known for known in JOB_KINDS if any(owner.get("kind") == known.name for owner in owners)):
        field = ".".join(kind.managed_by)
        note = f" and the annotation {DISPATCH}" if kind.accepts == MULTIKUEUE else ""
        return (
            f"or let the hub dispatch the whole {kind.name} with {field}: {kind.accepts}{note}, without this gate"
        )
    return "only jobs that have the field managedBy are dispatched as a whole"
