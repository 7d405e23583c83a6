"""Objects of a job besides its pods: its PodGroup, its volumes and the objects of its plugins."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext
from phalanx.controllers.jobs.records import JobGroupRecord, PriorityClassRecord
from phalanx.controllers.store import ObjectStore
from phalanx.jobs.plugins.plugin import DesiredObject, JobPluginError
from phalanx.jobs.plugins.registry import desired_objects
from phalanx.jobs.plugins.ssh import SshPlugin, generate_rsa_key
from phalanx.jobs.pod_group import changed, desired_pod_group, priority_classes
from phalanx.jobs.spec import BATCH, VERSION, Job
from phalanx.jobs.volumes import CLAIM_NAMES_MANAGER, claim_name_patch, missing_claim, volumes_of
from phalanx.kube.client import PatchType
from phalanx.kube.core_resources import CONFIG_MAPS, SECRETS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource

log = logging.getLogger(__name__)

_JOBS = Resource(BATCH, VERSION, "jobs", "Job")
_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
_CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
_MADE = {
    resource.kind: resource
    for resource in (
        CONFIG_MAPS,
        SECRETS,
        Resource("", "v1", "services", "Service"),
        Resource("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
    )
}
# Seconds between checks for a claim that a user creates.
_CLAIM_PERIOD = 5.0
# Seconds between tries of a write that the API refuses: a quota or an admission policy can change.
_REFUSED_PERIOD = 30.0
_REFUSALS = (400, 403, 422)


class ObjectTrouble(Exception):  # noqa: N818 - a missing prerequisite of the job, not a fault of the process
    """Obstacle to the creation of a job's pods, such as a missing volume.

    `reason` is that of the event; `again` is the number of seconds until the next check, None if only a change of
    the job helps.
    """

    def __init__(self, reason: str, message: str, again: float | None) -> None:
        super().__init__(message)
        self.reason = reason
        self.again = again


class JobObjects:
    """Writer of jobs' PodGroups, volumes and plugin objects: creates them, and updates those that follow the job.

    Objects are checked once per generation of the job and process. `classes` are the existing PriorityClasses.
    """

    def __init__(
        self,
        context: ControllerContext,
        groups: ObjectStore[JobGroupRecord],
        classes: ObjectStore[PriorityClassRecord],
    ) -> None:
        self._context = context
        self._groups = groups
        self._classes = classes
        self._checked: dict[str, tuple[int, int, tuple[int, ...]]] = {}
        self._waiting_tasks: dict[str, tuple[str, ...]] = {}

    def forget(self, uid: str) -> None:
        self._checked.pop(uid, None)
        self._waiting_tasks.pop(uid, None)

    async def delete_group(self, namespace: str, group: JobGroupRecord) -> None:
        name = group.group.name
        try:
            await self._context.writer.delete(_GROUPS.path(namespace, name), uid=group.uid)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        self._groups.remove((namespace, name), group.uid)

    async def ensure(self, job: Job, group: JobGroupRecord | None, waiting: tuple[str, ...]) -> None:
        """Create or update the PodGroup, volumes and plugin objects of a job. Raise ObjectTrouble if the pods must
        wait."""
        priorities = self._priorities(job)
        uid = job.metadata.uid
        state = (job.metadata.generation, job.status.version, tuple(priorities.values()))
        if self._checked.get(uid) != state:
            await self._ensure_volumes(job)
            await self._ensure_plugins(job)
        # The group is last, because it enables the creation of pods. An old definition can drop its fields, so it
        # is updated once.
        if group is None or self._checked.get(uid) != state or waiting != self._waiting_tasks.get(uid, ()):
            await self._ensure_group(job, group, waiting, priorities)
        self._checked[uid], self._waiting_tasks[uid] = state, waiting

    async def _ensure_volumes(self, job: Job) -> None:
        namespace = job.metadata.namespace
        missing = []
        for volume in volumes_of(job):
            try:
                claim = await self._context.client.get(_CLAIMS.path(namespace, volume.claim))
            except ApiError as error:
                if error.status != 404:
                    raise
                if volume.manifest is None:
                    raise ObjectTrouble("PVCError", missing_claim(volume.claim), _CLAIM_PERIOD) from None
                missing.append(volume.manifest)
            else:
                if claim["metadata"].get("deletionTimestamp"):
                    text = f"waits for the end of pvc {volume.claim}, which is being deleted"
                    raise ObjectTrouble("NameOccupied", text, _CLAIM_PERIOD)
        if not missing:
            return
        # The names are written before their claims exist, and never for a claim that exists: a user who removes a
        # name again is not overruled, and a crash in between loses no name.
        await self._write_claim_names(job)
        for manifest in missing:
            await self._create(_CLAIMS, namespace, manifest)

    async def _write_claim_names(self, job: Job) -> None:
        """Write the names of generated claims into the job's spec, as upstream does."""
        path = _JOBS.path(job.metadata.namespace, job.metadata.name)
        patch = claim_name_patch(job, await self._context.client.get(path))
        if not patch:
            return
        try:
            await self._context.writer.patch(path, patch, PatchType.JSON, field_manager=CLAIM_NAMES_MANAGER)
        except ApiError as error:
            # The claims are created anyway: pods find them by the deterministic name.
            if error.status not in _REFUSALS:
                raise
            log.info("job %s: the names of its claims were not written: %s", path, error.message)

    async def _ensure_plugins(self, job: Job) -> None:
        if SshPlugin.name in job.spec.plugins and not self._context.ssh:
            raise ObjectTrouble("PluginError", "job plugin ssh is disabled in this cluster", None)
        try:
            wanted = desired_objects(job, generate_rsa_key)
        except JobPluginError as error:
            text = f"Execute plugin when job add failed, err: {error}"
            raise ObjectTrouble("PluginError", text, None) from None
        await asyncio.gather(*(self._ensure_object(job, desired) for desired in wanted))

    async def _ensure_object(self, job: Job, wanted: DesiredObject) -> None:
        resource, namespace = _MADE[wanted.kind], job.metadata.namespace
        path = resource.path(namespace, wanted.name)
        try:
            existing = await self._context.client.get(path)
        except ApiError as error:
            if error.status != 404:
                raise
            # Key generation is slow, so it runs in a thread.
            manifest = await asyncio.to_thread(wanted.manifest)
            if await self._create(resource, namespace, manifest):
                return
            existing = await self._context.client.get(path)
        if not wanted.belongs_to_job(existing):
            text = f"{wanted.kind} {wanted.name} exists and does not belong to this job"
            raise ObjectTrouble("PluginError", text, _CLAIM_PERIOD)
        if existing["metadata"].get("deletionTimestamp"):
            text = f"waits for the end of {wanted.kind} {wanted.name}, which is being deleted"
            raise ObjectTrouble("NameOccupied", text, _CLAIM_PERIOD)
        patch = wanted.changed(existing)
        if patch:
            patch["metadata"] = {"uid": existing["metadata"]["uid"]}
            try:
                await self._context.writer.patch(path, patch, PatchType.MERGE)
            except ApiError as error:
                raise _refused(error, f"{wanted.kind} {wanted.name}") from None

    async def _create(self, resource: Resource, namespace: str, manifest: dict[str, Any]) -> bool:
        """Create an object of a job. Return False if it exists already."""
        try:
            await self._context.writer.create(resource.path(namespace), manifest)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise _refused(error, f"{resource.kind} {manifest['metadata']['name']}") from None
            return False
        return True

    def _priorities(self, job: Job) -> dict[str, int]:
        """Return the values of the PriorityClasses that a job's tasks name. A missing class counts as none, as
        upstream."""
        records = {name: self._classes.get(("", name)) for name in priority_classes(job)}
        return {name: record.value for name, record in records.items() if record is not None}

    async def _ensure_group(
        self, job: Job, group: JobGroupRecord | None, waiting: tuple[str, ...], priorities: dict[str, int]
    ) -> None:
        namespace = job.metadata.namespace
        desired = desired_pod_group(job, priorities=priorities, held_back=waiting)
        if group is None:
            answer = await self._create_group(job, desired)
        else:
            patch = changed(msgspec.json.decode(group.raw), desired)
            if not patch:
                return
            metadata = {**patch.get("metadata", {}), "uid": group.uid}
            path = _GROUPS.path(namespace, group.group.name)
            try:
                answer = await self._context.writer.patch(path, {**patch, "metadata": metadata}, PatchType.MERGE)
            except ApiError as error:
                raise _refused(error, f"PodGroup {group.group.name}") from None
        self._groups.put((namespace, answer["metadata"]["name"]), msgspec.json.encode(answer))

    async def _create_group(self, job: Job, desired: dict[str, Any]) -> dict[str, Any]:
        namespace, name = job.metadata.namespace, desired["metadata"]["name"]
        try:
            created: dict[str, Any] = await self._context.writer.create(_GROUPS.path(namespace), desired)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise _refused(error, f"PodGroup {name}") from None
            existing = await self._context.client.get(_GROUPS.path(namespace, name))
            metadata = existing["metadata"]
            owned = any(owner.get("uid") == job.metadata.uid for owner in metadata.get("ownerReferences") or ())
            if owned and not metadata.get("deletionTimestamp"):
                raise  # the watch is behind
            text = f"waits for the end of PodGroup {name}, which " + (
                "is being deleted" if owned else "does not belong to this job"
            )
            raise ObjectTrouble("NameOccupied", text, _CLAIM_PERIOD) from None
        return created


def _refused(error: ApiError, subject: str) -> ApiError | ObjectTrouble:
    """Return an ObjectTrouble for a write that the API refused; return other errors unchanged, to be retried at
    once."""
    if error.status not in _REFUSALS:
        return error
    return ObjectTrouble("FailedCreate", f"{subject} was refused: {error.message}", _REFUSED_PERIOD)
