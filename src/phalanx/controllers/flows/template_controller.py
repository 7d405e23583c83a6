"""Controller of Volcano's JobTemplate: its status lists the jobs created from it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.flows.flow_controller import JOB_TEMPLATES, FlowObject, read_flow_object
from phalanx.controllers.jobs.job_controller import JOBS
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.jobs.child_jobs import ChildJob, read_child_job
from phalanx.kube.changes import Key
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.pod_quota import mapping
from phalanx.model.text.decoding import decode_json

log = logging.getLogger(__name__)

_FIELD = "jobDependsOnList"
# Delay that groups the changes of a flow's jobs.
_GATHER = 0.1


def _read_job(raw: bytes) -> ChildJob | None:
    """Decode a job that names a JobTemplate of its own namespace; return None for other jobs."""
    job = read_child_job(raw)
    return job if job.template.startswith(f"{job.namespace}.") else None


class JobTemplateController:
    """Controller that reconciles a JobTemplate when it changes, or when one of its jobs is created or deleted."""

    name = "job template controller"

    def __init__(self, context: ControllerContext) -> None:
        self._context = context
        self._queue: WorkQueue[Key] = WorkQueue()
        self.templates: ObjectStore[FlowObject] = ObjectStore(read_flow_object, changed=self._template_changed)
        self.jobs: ObjectStore[ChildJob] = ObjectStore(
            _read_job, index=lambda job: job.template, changed=self._job_changed
        )

    @property
    def watches(self) -> Sequence[WatchedKind]:
        return (WatchedKind(JOB_TEMPLATES, self.templates.sink), WatchedKind(JOBS, self.jobs.sink))

    async def run(self, workers: int) -> None:
        await self._queue.run(self._try_reconcile, workers)

    def waiting(self) -> int:
        return len(self._queue)

    def _template_changed(self, key: Key, old: FlowObject | None, new: FlowObject | None) -> None:
        if new is not None:
            self._queue.add(key)
        else:
            self._queue.forget(key)

    def _job_changed(self, key: Key, old: ChildJob | None, new: ChildJob | None) -> None:
        if old is not None and new is not None and old.template == new.template:
            return
        for job in (old, new):
            if job is not None:
                template = (key[0], job.template.removeprefix(f"{key[0]}."))
                if self.templates.get(template) is not None:
                    self._queue.add(template, _GATHER)

    async def _try_reconcile(self, key: Key) -> float | None:
        try:
            await self.reconcile(key)
        except (ApiError, ConnectionLost) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("job template %s/%s: %s", *key, error)
            raise
        except Exception as error:
            self._context.failures.record_failure(self.name, "/".join(key), error)
            raise
        return None

    async def reconcile(self, key: Key) -> None:
        record = self.templates.get(key)
        if record is None or record.deleting:
            return
        document: dict[str, Any] = decode_json(record.raw)
        status = mapping(document.get("status"))
        names = sorted(job.name for job in self.jobs.of(".".join(key)))
        if names == (status.get(_FIELD) or []):
            return
        body = {**document, "status": {**status, _FIELD: names}}
        answer = await self._context.writer.replace(JOB_TEMPLATES.path(*key, "status"), body)
        self.templates.put(key, msgspec.json.encode(answer))
