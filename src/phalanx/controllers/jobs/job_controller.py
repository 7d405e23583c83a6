"""Controller of Volcano's Job: its pods, its PodGroup and the objects of its plugins.

Each reconciliation decides from the state in the API server (`phalanx.jobs.reconciliation`), writes the status
first, and then executes the plan. So the process can die after any write.
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
from phalanx.dialects.times import parse_time
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

# Delay that groups the changes of a gang's pods in one status.
_GATHER = 0.05
_COMMAND = "command-"
# Seconds after which a PodGroup without a phase was seen by no scheduler.
_UNSEEN_SECONDS = 15.0


class VolcanoJobController:
    """Controller that reconciles a Volcano Job when it, its pods, its PodGroup or a Command for it changes."""

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
        # Reason and message, by the uid of the job, why its objects besides pods are missing.
        self._troubles: dict[str, tuple[str, str]] = {}
        # Names of deleted pods that were evicted for a cause outside of their job, by the uid of the job.
        self._disrupted: dict[str, set[str]] = {}
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
        await self._queue.run(self._try_reconcile, workers)

    def waiting(self) -> int:
        return len(self._queue)

    # -- changes -------------------------------------------------------------------------------------------

    def _job_changed(self, key: Key, old: JobRecord | None, new: JobRecord | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._by_uid.pop(old.uid, None)
            self._objects.forget(old.uid)
            self._troubles.pop(old.uid, None)
            self._disrupted.pop(old.uid, None)
            self._creation.forget(key[0], old.uid)
        if new is not None:
            self._by_uid[new.uid] = key
            self._queue.add(key)
        elif old is not None:
            self._queue.forget(key)

    def _pod_changed(self, key: Key, old: JobPod | None, new: JobPod | None) -> None:
        if old is not None and old.disrupted and (new is None or new.uid != old.uid):
            self._disrupted.setdefault(old.owner, set()).add(old.name)
        if new is not None and (old is None or new.uid != old.uid):
            self._disrupted.get(new.owner, set()).discard(new.name)
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

    # -- reconciliation ------------------------------------------------------------------------------------

    async def _try_reconcile(self, key: Key) -> float | None:
        try:
            return await self.reconcile(key)
        except ApiError as error:
            if error.status not in (404, 409):
                # After 404 and 409, another client was faster: its change arrives by the watch.
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
            return None  # the garbage collector deletes its objects
        commands = tuple(sorted(self.commands.of("/".join(key)), key=lambda candidate: candidate.name))
        if record.settled and record.phase in ENDED and not commands and not self._has_remains(record.uid):
            return await self._expire(key, record)
        job, faults = decode_job(record.raw)
        if job.status.phase is JobPhase.NEW:
            # The webhook can be missing. Jobs that it would reject are not started, with its error message.
            refusals = [str(fault) for fault in faults] or validate(decode_json(record.raw), None, self._admission)
            if refusals:
                await self._reject(key, record.raw, job, " ".join(refusals))
                return None
        group = next((candidate for candidate in self.groups.of(record.uid) if not candidate.deleting), None)
        # A Command for an earlier job of this name is only deleted.
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
        disrupted = frozenset(self._disrupted.get(record.uid, ()))
        decided = plan(JobWorld(job, pods, group.group if group is not None else None, now, orders, disrupted))
        # A Command is remembered until it is deleted, so that it is executed once even if the process dies.
        later = [command for command in new if command.order is not None and command is not current]
        done = [command for command in commands if command not in later]
        former = decided.status.controlled_resources.items()
        remembered = {name: value for name, value in former if not name.startswith(_COMMAND)}
        remembered |= {_COMMAND + command.uid: command.name for command in done} | _listed(job)
        status = replace(decided.status, controlled_resources=remembered)
        status = self._with_reason(job, status, group, decided)
        if status != job.status:
            await self._write_status(key, record.raw, status)
            self._publish(job, status, decided)
            job = replace(job, status=status)
        await self._drop_commands(key, done)
        again = await self._execute(key, job, group, decided)
        if later:
            return 0.0
        wake = decided.wake_at - now if decided.wake_at is not None else None
        unseen = self._unseen_in(job, group)
        return min((pause for pause in (again, wake, unseen) if pause is not None and pause >= 0), default=None)

    def _has_remains(self, uid: str) -> bool:
        """Return whether a finished job still has pods or a PodGroup."""
        return any(pod.alive for pod in self.pods.of(uid)) or any(True for _ in self.groups.of(uid))

    async def _execute(self, key: Key, job: Job, group: JobGroupRecord | None, decided: JobPlan) -> float | None:
        """Write the pods, the PodGroup and the other objects that the job's status requires. Return the seconds
        until the next try."""
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
            # The host files of the remaining pods are updated before other pods are deleted.
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

    def _with_reason(
        self, job: Job, status: JobStatus, group: JobGroupRecord | None, decided: JobPlan
    ) -> JobStatus:
        """Return the job's status with the reason why the job does not run."""
        if status.phase is JobPhase.FAILED:
            return status  # the reason was set with the phase
        reason, message = "", ""
        if status.phase in (JobPhase.PENDING, JobPhase.RESTARTING):
            uid = job.metadata.uid
            trouble = self._troubles.get(uid) or self._creation.trouble(uid)
            if trouble is not None:
                reason, message = trouble
            elif group is not None and group.message:
                reason, message = "Unschedulable", group.message
            elif self._is_unseen(job, group):
                reason, message = "NoScheduler", self._no_scheduler(job)
            elif decided.waiting_tasks:
                reason = "WaitsForTasks"
                message = f"tasks {', '.join(decided.waiting_tasks)} wait for the tasks that they depend on"
        if (reason, message) == (status.state.reason, status.state.message):
            return status
        return replace(status, state=replace(status.state, reason=reason, message=message))

    def _unseen_in(self, job: Job, group: JobGroupRecord | None) -> float | None:
        """Return the seconds until a group without a phase counts as unseen by its scheduler, below 0 if it does
        already; None if Phalanx serves the scheduler's name or the group has a phase."""
        name = job.spec.scheduler_name
        if not name or name in self._context.scheduler_names or group is None or group.group.phase:
            return None
        return parse_time(job.metadata.creation_timestamp) + _UNSEEN_SECONDS - self._context.clock()

    def _is_unseen(self, job: Job, group: JobGroupRecord | None) -> bool:
        remaining = self._unseen_in(job, group)
        return remaining is not None and remaining <= 0

    def _no_scheduler(self, job: Job) -> str:
        name = job.spec.scheduler_name
        flags = " ".join(f"--scheduler-name {served}" for served in (*self._context.scheduler_names, name))
        return (
            f'no scheduler named "{name}" has seen the PodGroup of the job; run it, or let Phalanx serve the '
            f"name: start `phalanx scheduler` and `phalanx controllers` with {flags}"
        )

    async def _write_status(self, key: Key, raw: bytes, status: JobStatus) -> dict[str, Any]:
        """Write the status of a job; unknown fields are preserved. Raise ApiError 409 after a concurrent write of
        another client."""
        document: dict[str, Any] = decode_json(raw)
        known = {field.encode_name for field in msgspec.structs.fields(JobStatus)}
        unknown_fields = {
            name: value for name, value in (document.get("status") or {}).items() if name not in known
        }
        body = {**document, "status": {**unknown_fields, **msgspec.to_builtins(status)}}
        answer = await self._context.writer.replace(JOBS.path(*key, "status"), body)
        self.jobs.put(key, msgspec.json.encode(answer))
        return dict(answer)

    async def _reject(self, key: Key, raw: bytes, job: Job, text: str) -> None:
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
        """Delete Commands of a job that are executed or not executable."""
        for command in commands:
            path = COMMANDS.path(key[0], command.name)
            try:
                await self._context.writer.delete(path, uid=command.uid)
            except ApiError as error:
                if error.status not in (404, 409):
                    raise
            self.commands.remove((key[0], command.name), command.uid)

    async def _drop_orphans(self, key: Key) -> float | None:
        """Delete Commands for a missing job, unless the watch of jobs is only behind the watch of Commands."""
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
        """Delete a finished job after its ttlSecondsAfterFinished. Return the seconds until then."""
        if record.ttl is None or not record.finished:
            return None
        remaining = record.finished + record.ttl - self._context.clock()
        if remaining > 0:
            return remaining
        await self._context.writer.delete(JOBS.path(*key), uid=record.uid, propagation="Foreground")
        return None


def _listed(job: Job) -> dict[str, str]:
    """Return the objects besides pods that the job's status lists. An invalid plugin is reported elsewhere."""
    with contextlib.suppress(JobPluginError):
        return plugin_resources(job) | volume_resources(job)
    return volume_resources(job)
