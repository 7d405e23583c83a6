"""Creation of a job's pods: all pods that the job needs to start, or none.

A ResourceQuota that is exhausted midway would leave a part of the pods, which are charged and never start. So
quotas are checked before (`quota_order`). If one of the first `minimum` pods is rejected nevertheless, the pods
created with it are deleted, and the job waits for quota; it never fails for that reason. Pods above the minimum
are created as far as they fit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext
from phalanx.controllers.jobs.quota_order import QuotaOrder, QuotaWait
from phalanx.controllers.store import ObjectStore
from phalanx.jobs.members import JobPod
from phalanx.jobs.plugins.plugin import JobPlugin, JobPluginError
from phalanx.jobs.plugins.registry import plugins_of, shape
from phalanx.jobs.pods import desired_pod
from phalanx.jobs.quota_shortage import fitting_pods, quota_shortage
from phalanx.jobs.restarts import restarts_begun
from phalanx.jobs.spec import Job, TaskSpec
from phalanx.kube.changes import Key
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import ObjectReference

log = logging.getLogger(__name__)

INITIAL_PAUSE, MAX_PAUSE = 1.0, 60.0
# Longest pause while another pod has the name of a pod to create: nothing may report the end of a foreign pod.
OCCUPIED_PAUSE = 5.0
_SHOWN = 3


class _Trouble(msgspec.Struct):
    reason: str
    message: str
    tries: int = 0
    retry_at: float = 0.0


class PodCreation:
    """Creator of jobs' pods, which also records why the pods of a job cannot be created."""

    def __init__(self, context: ControllerContext, pods: ObjectStore[JobPod], quotas: QuotaOrder) -> None:
        self._context = context
        self._pods = pods
        self._quotas = quotas
        self._troubles: dict[str, _Trouble] = {}

    def trouble(self, uid: str) -> tuple[str, str] | None:
        """Return reason and message if the API rejected the last pods of a job (by uid); None if not."""
        trouble = self._troubles.get(uid)
        return (trouble.reason, trouble.message) if trouble is not None else None

    def forget(self, namespace: str, uid: str) -> None:
        """Drop the creation state of a job that was deleted or wants no pods."""
        self._troubles.pop(uid, None)
        self._quotas.leave(namespace, uid)

    async def create(
        self, job: Job, wanted: Sequence[tuple[TaskSpec, int]], present: Iterable[JobPod]
    ) -> float | None:
        """Create the wanted pods of a job. Return the seconds until the next try, None if all were created."""
        metadata = job.metadata
        trouble = self._troubles.get(metadata.uid)
        if trouble is not None and (remaining := trouble.retry_at - self._context.clock()) > 0:
            return remaining
        # If not all pods fit, those within the tasks' minima are created first.
        first = sorted(wanted, key=lambda entry: entry[1] >= entry[0].minimum)
        try:
            plugins = plugins_of(job)
            manifests = [self._manifest(job, plugins, task, index) for task, index in first]
        except JobPluginError as error:
            return self._wait(job, "PluginError", str(error))
        living = [pod for pod in present if not pod.deleting]
        if not self._quotas.limited(metadata.namespace):
            return await self._post(job, manifests, living)
        async with self._quotas.turn(metadata.namespace):
            return await self._post_within(job, [task.name for task, _ in first], manifests, living)

    def _manifest(self, job: Job, plugins: Sequence[JobPlugin], task: TaskSpec, index: int) -> dict[str, Any]:
        pod = desired_pod(
            job,
            task,
            index,
            version=job.status.version,
            retry_count=restarts_begun(job.status),
            scheduler_name=self._context.scheduler_names[0],
        )
        return shape(plugins, job, task, index, pod)

    async def _post_within(
        self, job: Job, tasks: Sequence[str], manifests: Sequence[dict[str, Any]], living: Sequence[JobPod]
    ) -> float | None:
        """Create as many pods of a job as the ResourceQuotas allow, if these suffice for a start."""
        metadata, namespace = job.metadata, job.metadata.namespace
        # Pods of a task differ only in fields that quotas do not count.
        specs = {task: manifest["spec"] for task, manifest in zip(tasks, manifests, strict=True)}
        needed = max(1, job.spec.minimum - len(living))
        age = (metadata.creation_timestamp, metadata.name)
        for fresh in (False, True):
            if fresh:
                await self._quotas.refresh(namespace)
            quotas = list(self._quotas.quotas.of(namespace))
            count = fitting_pods(quotas, [specs[task] for task in tasks])
            pods = [(spec, tasks.count(task)) for task, spec in specs.items()]
            shortage = quota_shortage(quotas, pods)
            older = self._quotas.ahead(namespace, metadata.uid, age, pods)
            if shortage is None and older is None:
                continue
            text, line = str(shortage), shortage
            if older is not None:
                count = 0
                line = older.shortage
                text = f"{older.name} is older and waits for quota {line.quota}"
            assert line is not None
            quorum = len(living) < job.spec.minimum
            self._quotas.wait(
                QuotaWait(
                    namespace,
                    metadata.name,
                    (namespace, metadata.name),
                    metadata.uid,
                    age,
                    pods,
                    line,
                    quorum and count < needed,
                )
            )
            if count < needed:
                return self._wait(job, "QuotaExceeded", text)
            if fresh:
                again = await self._post(job, manifests[:count], living)
                return self._wait(job, "QuotaExceeded", text) if again is None else again
        self._quotas.leave(namespace, metadata.uid)
        return await self._post(job, manifests, living)

    def _wait(self, job: Job, reason: str, message: str) -> float:
        """Record the reason why a job's pods are not created; the job is reconciled when the reason ends."""
        known = self.trouble(job.metadata.uid)
        if known == (reason, message):
            return MAX_PAUSE
        self._troubles[job.metadata.uid] = _Trouble(reason, message)
        self._publish(job, message)
        return 0.0

    async def _post(self, job: Job, manifests: Sequence[dict[str, Any]], living: Sequence[JobPod]) -> float | None:
        metadata = job.metadata
        path = PODS.path(metadata.namespace)
        answers = await asyncio.gather(
            *(self._context.writer.create(path, manifest) for manifest in manifests), return_exceptions=True
        )
        created: list[JobPod] = []
        rejection: ApiError | None = None
        occupied: list[str] = []
        for manifest, answer in zip(manifests, answers, strict=True):
            key = (metadata.namespace, manifest["metadata"]["name"])
            if isinstance(answer, ApiError) and answer.status == 409 and answer.reason == "AlreadyExists":
                # A pod of this job terminates, or the watch is behind: its change wakes the job.
                if not await self._is_own(job, key):
                    occupied.append(key[1])
                continue
            if isinstance(answer, ApiError) and answer.status in (400, 403, 422):
                rejection = rejection or answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                self._pods.put(key, msgspec.json.encode(answer))
                pod = self._pods.get(key)
                if pod is not None:
                    created.append(pod)
        if rejection is None and occupied:
            shown = ", ".join(sorted(occupied)[:_SHOWN])
            more = f" and {len(occupied) - _SHOWN} more" if len(occupied) > _SHOWN else ""
            message = (
                f"waits for the end of {len(occupied)} pods that do not belong to this job and have the names of "
                f"its pods: {shown}{more}"
            )
            return self._record_failure(job, "NameOccupied", message, longest=OCCUPIED_PAUSE)
        if rejection is None:
            self._troubles.pop(metadata.uid, None)
            return None
        if sum(1 for pod in living if pod.bound or not pod.alive) < job.spec.minimum:
            await self._delete_surplus([*living, *created], job.spec.minimum)
        return self._record_failure(job, *_reason_of(rejection, len(manifests)))

    async def _is_own(self, job: Job, key: Key) -> bool:
        """Return whether the pod with this name belongs to the job; if the watch does not have the pod yet, read it
        from the API."""
        known = self._pods.get(key)
        if known is not None:
            return known.owner == job.metadata.uid
        try:
            pod = await self._context.client.get(PODS.path(*key))
        except ApiError as error:
            if error.status != 404:
                raise
            return False
        owners = pod["metadata"].get("ownerReferences") or ()
        return any(owner.get("uid") == job.metadata.uid for owner in owners)

    async def _delete_surplus(self, pods: Sequence[JobPod], minimum: int) -> None:
        """Delete the unbound new pods of a job if fewer than its minimum were created."""
        if len(pods) >= minimum:
            return
        for pod in pods:
            if pod.bound or not pod.alive:
                continue
            try:
                await self._context.writer.delete(PODS.path(pod.namespace, pod.name), uid=pod.uid)
            except (ApiError, ConnectionLost) as error:
                log.warning("surplus pod %s/%s was not deleted: %s", pod.namespace, pod.name, error)
            else:
                self._pods.remove((pod.namespace, pod.name), pod.uid)

    def _record_failure(self, job: Job, reason: str, message: str, longest: float = MAX_PAUSE) -> float:
        """Record and publish the reason why a job's pods cannot be created. Return the seconds until the next
        try."""
        metadata = job.metadata
        trouble = self._troubles.get(metadata.uid)
        known = trouble is not None and (trouble.reason, trouble.message) == (reason, message)
        if trouble is None or not known:
            tries = trouble.tries if trouble is not None else 0
            trouble = self._troubles[metadata.uid] = _Trouble(reason, message, tries)
        trouble.tries += 1
        self._publish(job, message)
        if not known and longest < MAX_PAUSE:
            return 0.0  # the status says so too
        pause = min(longest, INITIAL_PAUSE * 2.0 ** min(trouble.tries - 1, 10))
        trouble.retry_at = self._context.clock() + pause
        return pause

    def _publish(self, job: Job, message: str) -> None:
        metadata = job.metadata
        regarding = ObjectReference(
            "Job", metadata.name, metadata.namespace, metadata.uid, "batch.volcano.sh/v1alpha1"
        )
        self._context.recorder.record(
            regarding, type="Warning", reason="FailedCreate", action="FailedCreate", note=message
        )


def _reason_of(error: ApiError, count: int) -> tuple[str, str]:
    """Return reason and message of rejected pods for the job's state. The API server's message names the quota and
    the resources."""
    if error.status == 403 and "exceeded quota" in error.message:
        # The used amounts change with every try; the quota and its limit are sufficient.
        name, _, amounts = error.message.partition("exceeded quota: ")[2].partition(",")
        limited = amounts.rpartition("limited: ")[2]
        return "QuotaExceeded", f"quota {name} does not fit its {count} new pods (limit {limited})"
    return "FailedCreate", f"Error creating pods: {error.message}"
