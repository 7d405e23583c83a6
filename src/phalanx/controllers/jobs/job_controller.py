"""Volcano's Job: its pods, its PodGroup and what its plugins make, from the first look to the last.

Every look decides anew from what the API server has (`phalanx.jobs.reconciliation`), writes the status first, and
then what follows from it. So the process may die after any write.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from phalanx.admission.context import AdmissionContext
from phalanx.admission.jobs import validate
from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.jobs.job_objects import JobObjects, ObjectTrouble
from phalanx.controllers.jobs.pod_creation import PodCreation
from phalanx.controllers.jobs.quota_order import QuotaOrder
from phalanx.controllers.jobs.records import (
    CommandRecord,
    JobGroupRecord,
    JobRecord,
    PriorityClassRecord,
    read_command,
    read_group,
    read_job_record,
    read_priority_class,
)
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.jobs.members import JobPod, read_pod
from phalanx.jobs.phases import ENDED
from phalanx.jobs.plugins.plugin import JobPluginError
from phalanx.jobs.plugins.registry import plugin_resources
from phalanx.jobs.reconciliation import JobPlan, JobWorld, outdated, plan
from phalanx.jobs.spec import BATCH, BUS, VERSION, Job, JobPhase, JobStatus, decode_job
from phalanx.jobs.volumes import volume_resources
from phalanx.kube.changes import Key
from phalanx.kube.core_resources import PODS, PRIORITY_CLASSES, RESOURCE_QUOTAS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.events import ObjectReference
from phalanx.kube.paths import Resource
from phalanx.model.text.decoding import decode_json

log = logging.getLogger(__name__)

JOBS = Resource(BATCH, VERSION, "jobs", "Job")
COMMANDS = Resource(BUS, VERSION, "commands", "Command")
POD_GROUPS = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")

# Pods of a gang change together: their changes are looked at, and counted in the status, together.
_GATHER = 0.05
_COMMAND = "command-"


class VolcanoJobController:
    """Looks at a job whenever it, its pods, its group or a Command for it changes."""

    name = "job controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._queue: WorkQueue[Key] = WorkQueue()
        self.jobs: ObjectStore[JobRecord] = ObjectStore(read_job_record, changed=self._job_changed)
        self.pods: ObjectStore[JobPod] = ObjectStore(
            read_pod, index=lambda pod: pod.owner, changed=self._pod_changed
        )
        self.groups: ObjectStore[JobGroupRecord] = ObjectStore(
            read_group, index=lambda group: group.owner, changed=self._group_changed
        )
        self.commands: ObjectStore[CommandRecord] = ObjectStore(
            read_command, index=lambda command: command.job, changed=self._command_changed
        )
        self._by_uid: dict[str, Key] = {}
        # Why what a job (by uid) needs beside pods is not there: reason and message.
        self._troubles: dict[str, tuple[str, str]] = {}
        self._admission = AdmissionContext(scheduler_names=context.scheduler_names)
        self.classes: ObjectStore[PriorityClassRecord] = ObjectStore(read_priority_class)
        self._objects = JobObjects(context, self.groups, self.classes)
        self._quotas = QuotaOrder(context, self._queue.add)
        self._creation = PodCreation(context, self.pods, self._quotas)

    @property
    def watches(self) -> Sequence[WatchedKind]:
        return (
            WatchedKind(JOBS, self.jobs.sink),
            WatchedKind(PODS, self.pods.sink, label_selector="volcano.sh/job-name"),
            WatchedKind(POD_GROUPS, self.groups.sink),
            WatchedKind(COMMANDS, self.commands.sink),
            WatchedKind(RESOURCE_QUOTAS, self._quotas.quotas.sink),
            WatchedKind(PRIORITY_CLASSES, self.classes.sink),
        )

    async def run(self, workers: int) -> None:
        await self._queue.run(self._look, workers)

    def waiting(self) -> int:
        return len(self._queue)

    # -- what changes ------------------------------------------------------------------------------------

    def _job_changed(self, key: Key, old: JobRecord | None, new: JobRecord | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._by_uid.pop(old.uid, None)
            self._objects.forget(old.uid)
            self._troubles.pop(old.uid, None)
            self._creation.forget(key[0], old.uid)
        if new is not None:
            self._by_uid[new.uid] = key
            self._queue.add(key)
        elif old is not None:
            self._queue.forget(key)

    def _pod_changed(self, key: Key, old: JobPod | None, new: JobPod | None) -> None:
        for pod in (old, new):
            owner = self._by_uid.get(pod.owner) if pod is not None else None
            if owner is not None:
                self._queue.add(owner, _GATHER)

    def _group_changed(self, key: Key, old: JobGroupRecord | None, new: JobGroupRecord | None) -> None:
        for group in (old, new):
            owner = self._by_uid.get(group.owner) if group is not None else None
            if owner is not None:
                self._queue.add(owner)

    def _command_changed(self, key: Key, old: CommandRecord | None, new: CommandRecord | None) -> None:
        if new is not None:
            namespace, _, name = new.job.partition("/")
            self._queue.add((namespace, name))

    # -- one look ----------------------------------------------------------------------------------------

    async def _look(self, key: Key) -> float | None:
        try:
            return await self.reconcile(key)
        except ApiError as error:
            if error.status not in (404, 409):
                # 404 and 409: somebody was faster, and the watch tells what he did.
                log.warning("job %s/%s: %s", *key, error)
            raise
        except ConnectionLost as error:
            log.warning("job %s/%s: %s", *key, error)
            raise
        except Exception as error:
            self._context.failures.record_failure("job controller", "/".join(key), error)
            raise

    async def reconcile(self, key: Key) -> float | None:
        record = self.jobs.get(key)
        if record is None:
            return await self._drop_orphans(key)
        if record.deleting:
            self._creation.forget(key[0], record.uid)
            return None  # what it owns goes with it
        commands = tuple(sorted(self.commands.of("/".join(key)), key=lambda each: each.name))
        if record.settled and record.phase in ENDED and not commands and not self._remains(record.uid):
            return await self._expire(key, record)
        job, faults = decode_job(record.raw)
        if job.status.phase is JobPhase.NEW:
            # The webhook may not be there. What it would have refused is not begun, and told in its words.
            refusals = [str(fault) for fault in faults] or validate(decode_json(record.raw), None, self._admission)
            if refusals:
                await self._refuse(key, record.raw, job, " ".join(refusals))
                return None
        group = next((each for each in self.groups.of(record.uid) if not each.deleting), None)
        # One for an earlier job of this name is not for this one: it only goes.
        new = [
            command
            for command in commands
            if _COMMAND + command.uid not in job.status.controlled_resources
            and command.target_uid in ("", record.uid)
        ]
        current = next((command for command in new if command.order is not None), None)
        now = int(self._context.clock())
        pods = tuple(sorted(self.pods.of(record.uid), key=lambda pod: (pod.task, pod.index, pod.name)))
        orders = (current.order,) if current is not None and current.order is not None else ()
        decided = plan(JobWorld(job, pods, group.group if group is not None else None, now, orders))
        # A Command is remembered until it is gone: it is carried out once, whenever the process dies.
        later = [command for command in new if command.order is not None and command is not current]
        done = [command for command in commands if command not in later]
        kept = decided.status.controlled_resources.items()
        remembered = {name: value for name, value in kept if not name.startswith(_COMMAND)}
        remembered |= {_COMMAND + command.uid: command.name for command in done} | _listed(job)
        status = replace(decided.status, controlled_resources=remembered)
        status = self._explained(record.uid, status, group, decided)
        if status != job.status:
            await self._write_status(key, record.raw, status)
            self._publish(job, status, decided)
            job = replace(job, status=status)
        await self._drop_commands(key, done)
        again = await self._carry_out(key, job, group, decided)
        if later:
            return 0.0
        wake = decided.wake_at - now if decided.wake_at is not None else None
        return min((each for each in (again, wake) if each is not None), default=None)

    def _remains(self, uid: str) -> bool:
        """Whether anything of a job that has ended is still to go."""
        return any(pod.alive for pod in self.pods.of(uid)) or any(True for _ in self.groups.of(uid))

    async def _carry_out(self, key: Key, job: Job, group: JobGroupRecord | None, decided: JobPlan) -> float | None:
        """Writes what follows from the status. The seconds after which to try again what could not be done."""
        if not decided.wanted:
            self._creation.forget(key[0], job.metadata.uid)
        if not decided.keep_group or (group is not None and outdated(job.status, group.group)):
            await asyncio.gather(*map(self._delete_pod, decided.to_delete))
            if group is not None:
                await self._objects.delete_group(key[0], group)
            return None if not decided.keep_group else 0.0
        try:
            await self._objects.ensure(job, group, decided.waiting_tasks)
        except ObjectTrouble as trouble:
            if self._troubles.get(job.metadata.uid) != (trouble.reason, str(trouble)):
                self._troubles[job.metadata.uid] = (trouble.reason, str(trouble))
                self.record(job, "Warning", trouble.reason, str(trouble))
                return 0.0  # the status says so too
            return trouble.again
        finally:
            # Those that stay learn who is left before the others go.
            await asyncio.gather(*map(self._delete_pod, decided.to_delete))
        self._troubles.pop(job.metadata.uid, None)
        if decided.wanted:
            return await self._creation.create(job, decided.wanted, self.pods.of(job.metadata.uid))
        return None

    async def _delete_pod(self, pod: JobPod) -> None:
        key = (pod.namespace, pod.name)
        try:
            answer = await self._context.writer.delete(PODS.path(*key), uid=pod.uid)
        except ApiError as error:
            if error.status not in (404, 409):
                raise
            self.pods.remove(key, pod.uid)
            return
        if isinstance(answer, dict) and answer.get("metadata", {}).get("deletionTimestamp"):
            self.pods.put(key, msgspec.json.encode(answer))
        else:
            self.pods.remove(key, pod.uid)

    # -- status ------------------------------------------------------------------------------------------

    def _explained(self, uid: str, status: JobStatus, group: JobGroupRecord | None, decided: JobPlan) -> JobStatus:
        """Why a job does not run, in its state."""
        reason, message = "", ""
        if status.phase in (JobPhase.PENDING, JobPhase.RESTARTING):
            told = self._troubles.get(uid) or self._creation.trouble(uid)
            if told is not None:
                reason, message = told
            elif group is not None and group.message:
                reason, message = "Unschedulable", group.message
            elif decided.waiting_tasks:
                reason = "WaitsForTasks"
                message = f"tasks {', '.join(decided.waiting_tasks)} wait for those that they depend on"
        if (reason, message) == (status.state.reason, status.state.message):
            return status
        return replace(status, state=replace(status.state, reason=reason, message=message))

    async def _write_status(self, key: Key, raw: bytes, status: JobStatus) -> dict[str, Any]:
        """Fields that we do not know stay. Raises ApiError 409 where somebody else has written meanwhile."""
        document: dict[str, Any] = decode_json(raw)
        known = {field.encode_name for field in msgspec.structs.fields(JobStatus)}
        kept = {name: value for name, value in (document.get("status") or {}).items() if name not in known}
        body = {**document, "status": {**kept, **msgspec.to_builtins(status)}}
        answer = await self._context.writer.replace(JOBS.path(*key, "status"), body)
        self.jobs.put(key, msgspec.json.encode(answer))
        return dict(answer)

    async def _refuse(self, key: Key, raw: bytes, job: Job, text: str) -> None:
        state = replace(job.status.state, reason="InvalidJob", message=text)
        if state != job.status.state:
            await self._write_status(key, raw, replace(job.status, state=state))
            self.record(job, "Warning", "InvalidJob", text)

    def _publish(self, job: Job, status: JobStatus, decided: JobPlan) -> None:
        if decided.order is not None:
            action = decided.order.action.value
            self.record(job, "Normal", "ExecuteAction", f"Start to execute action {action} ")
        if status.phase is JobPhase.FAILED and job.status.phase is JobPhase.RESTARTING:
            self.record(job, "Warning", "ExecuteAction", "Job failed for retry limit reached")
        state = status.state
        if state.reason == "Unschedulable" and state.message != job.status.state.message:
            self.record(
                job,
                "Warning",
                "PodGroupPending",
                f"PodGroup {job.metadata.namespace}:{job.metadata.name} unschedulable, reason: {state.message}",
            )

    def record(self, job: Job, kind: str, reason: str, note: str) -> None:
        metadata = job.metadata
        regarding = ObjectReference(
            JOBS.kind,
            metadata.name,
            metadata.namespace,
            metadata.uid,
            JOBS.api_version,
            metadata.resource_version,
        )
        self._context.recorder.record(regarding, type=kind, reason=reason, action=reason, note=note)

    # -- Commands and the end ------------------------------------------------------------------------------

    async def _drop_commands(self, key: Key, commands: Sequence[CommandRecord]) -> None:
        """Those that have been carried out, or that nobody can carry out, go."""
        for command in commands:
            path = COMMANDS.path(key[0], command.name)
            try:
                await self._context.writer.delete(path, uid=command.uid)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            self.commands.remove((key[0], command.name), command.uid)

    async def _drop_orphans(self, key: Key) -> float | None:
        """Commands for a job that is not there go; but the watch of jobs may only be behind that of Commands."""
        commands = tuple(self.commands.of("/".join(key)))
        if not commands:
            return None
        try:
            await self._context.client.get(JOBS.path(*key))
        except ApiError as error:
            if error.status != 404:
                raise
            await self._drop_commands(key, commands)
            return None
        return _GATHER

    async def _expire(self, key: Key, record: JobRecord) -> float | None:
        """Deletes a job that has ended when its time is over; the seconds until then."""
        if record.ttl is None or not record.finished:
            return None
        left = record.finished + record.ttl - self._context.clock()
        if left > 0:
            return left
        await self._context.writer.delete(JOBS.path(*key), uid=record.uid, propagation="Foreground")
        return None


def _listed(job: Job) -> dict[str, str]:
    """What a job's status lists as its own beside pods. A plugin that it cannot have is told elsewhere."""
    with contextlib.suppress(JobPluginError):
        return plugin_resources(job) | volume_resources(job)
    return volume_resources(job)
