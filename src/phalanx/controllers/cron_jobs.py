"""Controller of Volcano's CronJob: creates a job at each scheduled time and limits the history.

Each reconciliation decides from the state in the API server (`phalanx.jobs.cron`). The job of a scheduled time is
created before the status mentions it. Its name contains the scheduled time, so the job is created only once even if
the process dies in between.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.event_notes import EventNotes
from phalanx.controllers.jobs.job_controller import JOBS
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.dialects.core import Metadata, Named
from phalanx.dialects.lenient import decode_leniently
from phalanx.dialects.times import format_time
from phalanx.jobs.child_jobs import SCHEDULED_TIMESTAMP, ChildJob, controlled_by, read_child_job
from phalanx.jobs.cron import (
    CronPlan,
    child_name,
    plan_runs,
    scheduled_timestamp,
)
from phalanx.jobs.notes import EventNote
from phalanx.jobs.spec import BATCH, VERSION, CronJob, CronJobStatus
from phalanx.kube.changes import Key
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.model.pod_quota import mapping
from phalanx.model.text.decoding import decode_json

log = logging.getLogger(__name__)

CRON_JOBS = Resource(BATCH, VERSION, "cronjobs", "CronJob")
# The wall clock can be changed, so the controller checks it regularly.
_MAX_SLEEP = 600.0
_RUN_NAME = re.compile(r"(.+)-[0-9]{1,12}", re.ASCII)


class CronJobRecord(msgspec.Struct, frozen=True):
    uid: str
    resource_version: str
    raw: bytes
    deleting: bool


def _read_cron_job(raw: bytes) -> CronJobRecord:
    metadata = msgspec.json.decode(raw, type=Named).metadata
    return CronJobRecord(metadata.uid, metadata.resource_version, raw, metadata.deletion_timestamp is not None)


def _read_run(raw: bytes) -> ChildJob | None:
    """Decode a job whose name has the form of a CronJob's jobs; return None for other jobs."""
    job = read_child_job(raw)
    return job if _RUN_NAME.fullmatch(job.name) else None


def _cron_job_of(job: ChildJob) -> str:
    return f"{job.namespace}/{job.name.rpartition('-')[0]}"


class CronJobController:
    """Controller that reconciles a CronJob when it or one of its jobs changes, and at its next scheduled time."""

    name = "cron job controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._queue: WorkQueue[Key] = WorkQueue()
        self.cron_jobs: ObjectStore[CronJobRecord] = ObjectStore(_read_cron_job, changed=self._cron_job_changed)
        self.jobs: ObjectStore[ChildJob] = ObjectStore(_read_run, index=_cron_job_of, changed=self._job_changed)
        self._notes = EventNotes(context, CRON_JOBS)

    @property
    def watches(self) -> Sequence[WatchedKind]:
        return (WatchedKind(CRON_JOBS, self.cron_jobs.sink), WatchedKind(JOBS, self.jobs.sink))

    async def run(self, workers: int) -> None:
        await self._queue.run(self._try_reconcile, workers)

    def waiting(self) -> int:
        return len(self._queue)

    def _cron_job_changed(self, key: Key, old: CronJobRecord | None, new: CronJobRecord | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._notes.forget(old.uid)
        if new is not None:
            self._queue.add(key)
        else:
            self._queue.forget(key)

    def _job_changed(self, key: Key, old: ChildJob | None, new: ChildJob | None) -> None:
        cron_job = (key[0], key[1].rpartition("-")[0])
        if self.cron_jobs.get(cron_job) is not None:
            self._queue.add(cron_job)

    async def _try_reconcile(self, key: Key) -> float | None:
        try:
            return await self.reconcile(key)
        except (ApiError, ConnectionLost) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("cron job %s/%s: %s", *key, error)
            raise
        except Exception as error:
            self._context.failures.record_failure(self.name, "/".join(key), error)
            raise

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a CronJob. Return the seconds until the next reconciliation."""
        record = self.cron_jobs.get(key)
        if record is None or record.deleting:
            return None  # the garbage collector deletes its jobs
        document: dict[str, Any] = decode_json(record.raw)
        cron_job, faults = decode_leniently(CronJob, document)
        problems = [str(fault) for fault in faults if not fault.path.startswith(("status", "spec.jobTemplate"))]
        if problems:
            # An unreadable field can be the one that suspends runs.
            self._notes.record(cron_job.metadata, (EventNote("Warning", "InvalidCronJob", " ".join(problems)),))
            return None
        plan = plan_runs(cron_job, list(self.jobs.of("/".join(key))), int(self._context.clock()))
        self._notes.record(cron_job.metadata, plan.events)
        status = plan.status
        if plan.start is not None:
            for job in plan.replaced:
                await self._delete(cron_job.metadata, job)
            status = await self._start(key, document, cron_job, plan, plan.start)
        if status != cron_job.status:
            await self._write_status(key, document, status)
        for job in plan.to_delete:
            await self._delete(cron_job.metadata, job)
        if plan.wake_at is None:
            return None
        return min(_MAX_SLEEP, max(0.0, plan.wake_at - self._context.clock()))

    async def _start(
        self, key: Key, document: dict[str, Any], cron_job: CronJob, plan: CronPlan, moment: int
    ) -> CronJobStatus:
        """Create the job of one scheduled time. Return the CronJob's status with this job."""
        metadata = cron_job.metadata
        name = child_name(metadata.name, moment)
        body = _job(document, cron_job, name, scheduled_timestamp(moment, plan.zone))
        try:
            answer = await self._context.writer.create(JOBS.path(key[0]), body)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                # The watch does not have the job yet; the next reconciliation uses it.
                existing = await self._context.client.get(JOBS.path(key[0], name))
                self.jobs.put((key[0], name), msgspec.json.encode(existing))
            elif error.namespace_terminating:
                note = f"Namespace {key[0]} is terminating, skipping job creation"
                self._notes.record(metadata, (EventNote("Warning", "NamespaceTerminating", note),))
            else:
                note = f"Failed to create job: {error.message}"
                self._notes.record(metadata, (EventNote("Warning", "FailedCreate", note, name),))
            raise
        self.jobs.put((key[0], name), msgspec.json.encode(answer))
        note = f"Created job {name} for CronJob {key[0]}/{key[1]}"
        self._notes.record(metadata, (EventNote("Normal", "SuccessfulCreate", note, name),))
        present = list(self.jobs.of("/".join(key)))
        status = plan_runs(cron_job, present, int(self._context.clock())).status
        return replace(status, last_schedule_time=format_time(moment))

    async def _delete(self, metadata: Metadata, job: ChildJob) -> None:
        key = (job.namespace, job.name)
        try:
            answer = await self._context.writer.delete(JOBS.path(*key), uid=job.uid, propagation="Background")
        except ApiError as error:
            if error.status not in (404, 409):
                note = f'Error deleting job "{job.name}": {error.message}'
                self._notes.record(metadata, (EventNote("Warning", "FailedDelete", note, job.uid),))
                raise
        else:
            note = f'Deleted job "{job.name}"'
            self._notes.record(metadata, (EventNote("Normal", "SuccessfulDelete", note, job.uid),))
            if isinstance(answer, dict) and mapping(answer.get("metadata")).get("deletionTimestamp"):
                self.jobs.put(key, msgspec.json.encode(answer))
                return
        self.jobs.remove(key, job.uid)

    async def _write_status(self, key: Key, document: dict[str, Any], status: CronJobStatus) -> None:
        """Write the status of a CronJob. Raise ApiError 409 after a concurrent write of another client."""
        body = {**document, "status": msgspec.to_builtins(status)}
        answer = await self._context.writer.replace(CRON_JOBS.path(*key, "status"), body)
        self.cron_jobs.put(key, msgspec.json.encode(answer))


def _job(document: dict[str, Any], cron_job: CronJob, name: str, timestamp: str) -> dict[str, Any]:
    """Return the manifest of a CronJob's job. The jobTemplate is copied unchanged."""
    template = mapping(mapping(document.get("spec")).get("jobTemplate"))
    template_metadata = mapping(template.get("metadata"))
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": cron_job.metadata.namespace,
            "labels": mapping(template_metadata.get("labels")),
            "annotations": {**mapping(template_metadata.get("annotations")), SCHEDULED_TIMESTAMP: timestamp},
            "ownerReferences": [controlled_by(CRON_JOBS.api_version, CRON_JOBS.kind, cron_job.metadata)],
        },
        "spec": mapping(template.get("spec")),
    }
