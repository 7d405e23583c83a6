"""Writes of copies to a member cluster, and of a job's copy and its status."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping
from typing import Any

import msgspec

from phalanx.dialects.dispatched import ORIGIN_LABEL
from phalanx.hub import protocol
from phalanx.hub.dispatch import Dispatch
from phalanx.hub.gangs import HubObjects
from phalanx.hub.jobs.copies import job_copy, job_view, suspension
from phalanx.hub.jobs.kinds import JobKind
from phalanx.hub.jobs.status import lost_status, mirrored_status
from phalanx.hub.members.connection import ClusterConnection
from phalanx.hub.names import ORIGIN_UID
from phalanx.hub.objects import Json, StoredObject, printable
from phalanx.hub.observed import CopyView
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource

log = logging.getLogger(__name__)

#: Status codes with which a cluster rejects an object for good.
_FINAL = frozenset({400, 403, 404, 405, 422})
#: Rejections of clusters by Dispatch and epoch.
Refused = dict[tuple[str, int], str]


class JobWrites:
    """Writer of jobs' copies and statuses; `refused` collects the rejections of member clusters by the gang's
    uid."""

    def __init__(self, client: KubeClient, objects: HubObjects, origin: str, refused: Refused) -> None:
        self._client = client
        self._objects = objects
        self._origin = origin
        self._refused = refused
        #: Last status that the API server stored in another form, with the job's version after it, by the job's
        #: uid.
        self._last_written: dict[str, tuple[str, Json]] = {}

    def seen(self, kind: JobKind, copy: StoredObject, origins: Mapping[str, Json]) -> CopyView:
        """Return the state of a job's copy; `origins` are the jobs at the hub by uid."""
        origin = origins.get(copy.annotation(ORIGIN_UID))
        version, last_status = self._last_written.get(copy.annotation(ORIGIN_UID), ("", None))
        is_current = origin is not None and origin["metadata"]["resourceVersion"] == version
        return job_view(kind, copy.document, origin, last_status if is_current else None)

    async def step(
        self, step: protocol.Step, kind: JobKind, record: Dispatch, connection: ClusterConnection | None
    ) -> None:
        """Execute a protocol step of a job. Raises ApiError, ConnectionLost."""
        kind_and_job = self._objects.job(record.gang.uid)
        if isinstance(step, protocol.FailLost):
            if kind_and_job is not None:
                message = f"its copy in {record.status.cluster} is deleted; its result is unknown"
                await self._write(kind, kind_and_job[1], lost_status(kind, kind_and_job[1].document, message))
        elif connection is None:
            return
        elif isinstance(step, protocol.MirrorStatus):
            for copy in connection.jobs(kind.resource, record.uid):
                if kind_and_job is not None and copy.uid == step.uid:
                    job = kind_and_job[1]
                    await self._write(kind, job, mirrored_status(kind, copy.document, job.document))
        elif isinstance(step, protocol.DeleteCopy | protocol.ReleaseCopy):
            await connection.clear(record.namespace, step, kind.resource)
        elif isinstance(step, protocol.LiftGate | protocol.HoldCopy):
            await self._suspend(step, kind, record, connection)
        elif isinstance(step, protocol.CreateCopy):
            view = self._objects.view(record.gang.uid)
            if kind_and_job is None or view is None:
                return
            marks = (self._origin, record.uid, record.status.epoch, view.lost_policy)
            document = job_copy(kind, kind_and_job[1].document, *marks)
            await create_copy(connection, record, kind.resource, document, self._refused)

    async def _suspend(
        self,
        step: protocol.LiftGate | protocol.HoldCopy,
        kind: JobKind,
        record: Dispatch,
        connection: ClusterConnection,
    ) -> None:
        """Suspend or resume a job's copy, based on the version that was read."""
        copy = next((job for job in connection.jobs(kind.resource, record.uid) if job.uid == step.uid), None)
        if copy is None:
            return
        precise = {"uid": step.uid, "resourceVersion": copy.resource_version}
        patch = {"metadata": precise, **suspension(kind, isinstance(step, protocol.HoldCopy))}
        path = kind.resource.path(record.namespace, step.name)
        await expecting(connection.client.patch(path, patch, PatchType.MERGE), 404, 409)

    async def _write(self, kind: JobKind, job: StoredObject, status: Json) -> None:
        """Write the status of a job at the hub, based on the version that was read."""
        path = kind.resource.path(job.namespace, job.name, "status")
        key = (job.namespace, job.name)
        version, document = job.resource_version, {**job.document, "status": status}
        document |= {"apiVersion": kind.resource.api_version, "kind": kind.name}
        try:
            answer = await self._client.replace(path, document)
        except ApiError as error:
            if error.status in (404, 409):
                return
            if error.status not in _FINAL:
                raise
            log.warning("%s %s/%s: its status was rejected: %s", kind.name, *key, printable(error.message))
        else:
            version = str(answer["metadata"]["resourceVersion"])
            store = next(store for known, store in self._objects.jobs if known is kind)
            store.put(key, msgspec.json.encode(answer))
        self._last_written[job.uid] = (version, status)
        if len(self._last_written) > 4096:
            del self._last_written[next(iter(self._last_written))]


async def create_copy(
    connection: ClusterConnection, record: Dispatch, resource: Resource, document: Json, refused: Refused
) -> None:
    """Create a copy in a member cluster; record a rejection in `refused`. Raises ApiError, ConnectionLost."""
    name = document["metadata"]["name"]
    where = (record.uid, record.status.epoch)
    try:
        await connection.client.create(resource.path(record.namespace), document)
    except ApiError as error:
        if error.status == 409 and error.reason == "AlreadyExists":
            # Our own copy will be deleted or observed soon; a foreign object is a rejection.
            existing = await expecting(connection.client.get(resource.path(record.namespace, name)), 404)
            labels = (existing or {"metadata": {}})["metadata"].get("labels") or {}
            if existing is not None and labels.get(ORIGIN_LABEL) != document["metadata"]["labels"][ORIGIN_LABEL]:
                message = f"{resource.kind} {record.namespace}/{name} already exists, and is not the hub's"
                refused[where] = message
        elif error.status in _FINAL and error.from_api_server:
            refused[where] = printable(f"{resource.kind} {name}: {error.message}")
        else:
            raise


async def expecting(request: Awaitable[Any], *statuses: int) -> Any:
    """Return the answer to a request, or None for one of these HTTP status codes."""
    try:
        return await request
    except ApiError as error:
        if error.status not in statuses:
            raise
        return None
