"""Controller of Volcano's JobFlow: creates jobs from JobTemplates when the jobs that they depend on have reached
the required state.

Each reconciliation decides from the existing jobs and the status (`phalanx.jobs.flow`). Jobs have the names of
their steps and are created before the status mentions them, so no job is created twice even if the process dies in
between.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from phalanx.controllers.controller import ControllerContext, WatchedKind
from phalanx.controllers.event_notes import EventNotes
from phalanx.controllers.flows.probes import PodProbes
from phalanx.controllers.jobs.job_controller import JOBS
from phalanx.controllers.store import ObjectStore
from phalanx.controllers.work_queue import WorkQueue
from phalanx.dialects.core import Metadata, Named
from phalanx.dialects.lenient import decode_leniently
from phalanx.jobs.child_jobs import (
    CREATED_BY_FLOW,
    CREATED_BY_TEMPLATE,
    ChildJob,
    controlled_by,
    read_child_job,
)
from phalanx.jobs.flow import (
    FlowPlan,
    ProbeQuestion,
    child_job_name,
    patched_spec,
    plan_flow,
    refusal_reason,
)
from phalanx.jobs.notes import EventNote
from phalanx.jobs.spec import FLOW, VERSION, FlowStep, JobFlow
from phalanx.kube.changes import Key
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.model.pod_quota import mapping, sequence, text
from phalanx.model.text.decoding import decode_json

log = logging.getLogger(__name__)

JOB_FLOWS = Resource(FLOW, VERSION, "jobflows", "JobFlow")
JOB_TEMPLATES = Resource(FLOW, VERSION, "jobtemplates", "JobTemplate")
# Seconds between probes of pods, and between checks of another owner's job that has the name of a step.
_PROBE_PERIOD = 5.0
_FOREIGN_PERIOD = 10.0
_LABEL = re.compile(r"(?=.{1,63}\Z)[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?", re.ASCII)


class FlowObject(msgspec.Struct, frozen=True):
    """JobFlow or JobTemplate object. `steps` are the JobTemplates that a flow names."""

    uid: str
    resource_version: str
    raw: bytes
    deleting: bool
    steps: frozenset[str] = frozenset()


def read_flow_object(raw: bytes) -> FlowObject:
    metadata = msgspec.json.decode(raw, type=Named).metadata
    deleting = metadata.deletion_timestamp is not None
    return FlowObject(metadata.uid, metadata.resource_version, raw, deleting)


def _read_flow(raw: bytes) -> FlowObject:
    flow = read_flow_object(raw)
    listed = sequence(mapping(mapping(decode_json(raw)).get("spec")).get("flows"))
    return msgspec.structs.replace(flow, steps=frozenset(text(mapping(step).get("name")) for step in listed))


def _read_job(raw: bytes) -> ChildJob | None:
    job = read_child_job(raw)
    return job if job.owner_kind == JOB_FLOWS.kind else None


class JobFlowController:
    """Controller that reconciles a JobFlow when it, one of its jobs or one of its templates changes."""

    name = "job flow controller"

    def __init__(
        self,
        context: ControllerContext,
        holds: Callable[[str, ProbeQuestion], Awaitable[bool]] | None = None,
    ) -> None:
        self._context = context
        self._holds = holds or PodProbes(context.client).holds
        self._queue: WorkQueue[Key] = WorkQueue()
        self.flows: ObjectStore[FlowObject] = ObjectStore(_read_flow, changed=self._flow_changed)
        self.templates: ObjectStore[FlowObject] = ObjectStore(read_flow_object, changed=self._template_changed)
        self.jobs: ObjectStore[ChildJob] = ObjectStore(
            _read_job, index=lambda job: job.owner, changed=self._job_changed
        )
        self._by_uid: dict[str, Key] = {}
        self._notes = EventNotes(context, JOB_FLOWS)
        # Status of flows (by uid) that an older definition of the kind stored only in part.
        self._truncated: dict[str, dict[str, Any]] = {}
        # Jobs of other owners with the name of a step.
        self._foreign: set[Key] = set()

    @property
    def watches(self) -> Sequence[WatchedKind]:
        return (
            WatchedKind(JOB_FLOWS, self.flows.sink),
            WatchedKind(JOB_TEMPLATES, self.templates.sink),
            WatchedKind(JOBS, self.jobs.sink),
        )

    async def run(self, workers: int) -> None:
        await self._queue.run(self._try_reconcile, workers)

    def waiting(self) -> int:
        return len(self._queue)

    def _flow_changed(self, key: Key, old: FlowObject | None, new: FlowObject | None) -> None:
        if old is not None and (new is None or new.uid != old.uid):
            self._by_uid.pop(old.uid, None)
            self._notes.forget(old.uid)
            self._truncated.pop(old.uid, None)
            self._foreign -= {(key[0], child_job_name(key[1], step)) for step in old.steps}
        if new is not None:
            self._by_uid[new.uid] = key
            self._queue.add(key)
        else:
            self._queue.forget(key)

    def _template_changed(self, key: Key, old: FlowObject | None, new: FlowObject | None) -> None:
        if old is not None and new is not None:
            return  # existing jobs do not change with their template
        for place, flow in self.flows.items():
            if place[0] == key[0] and key[1] in flow.steps:
                self._queue.add(place)

    def _job_changed(self, key: Key, old: ChildJob | None, new: ChildJob | None) -> None:
        for job in (old, new):
            owner = self._by_uid.get(job.owner) if job is not None else None
            if owner is not None:
                self._queue.add(owner)

    async def _try_reconcile(self, key: Key) -> float | None:
        try:
            return await self.reconcile(key)
        except (ApiError, ConnectionLost) as error:
            if not isinstance(error, ApiError) or error.status not in (404, 409):
                log.warning("job flow %s/%s: %s", *key, error)
            raise
        except Exception as error:
            self._context.failures.record_failure(self.name, "/".join(key), error)
            raise

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile a JobFlow. Return the seconds until the next reconciliation; None to wait for a change."""
        record = self.flows.get(key)
        if record is None or record.deleting:
            return None  # the garbage collector deletes its jobs
        document: dict[str, Any] = decode_json(record.raw)
        flow, faults = decode_leniently(JobFlow, document)
        refusal = refusal_reason(flow, faults)
        answers: dict[ProbeQuestion, bool] = {}
        plan = self._plan(key, flow, refusal, answers)
        if plan.questions:
            questions = list(dict.fromkeys(plan.questions))
            results = await asyncio.gather(*(self._holds(key[0], question) for question in questions))
            answers = dict(zip(questions, results, strict=True))
            plan = self._plan(key, flow, refusal, answers)
        self._notes.record(flow.metadata, plan.events)
        again = _PROBE_PERIOD if not all(answers.values()) else None
        for step in plan.create:
            if not await self._create(key, flow, step):
                again = min(again or _FOREIGN_PERIOD, _FOREIGN_PERIOD)
        if plan.create:
            plan = self._plan(key, flow, refusal, answers)
        known = {name: value for name, value in flow.status.items() if name in _STATUS_FIELDS}
        if known != plan.status and self._truncated.get(flow.metadata.uid) != plan.status:
            await self._write_status(key, document, plan.status)
        for job in plan.to_delete:
            await self._delete(job)
        return again

    def _plan(self, key: Key, flow: JobFlow, refusal: str, answers: dict[ProbeQuestion, bool]) -> FlowPlan:
        jobs = {job.name: job for job in self.jobs.of(flow.metadata.uid) if job.namespace == key[0]}
        present = {step.name for step in flow.spec.flows if self._template(key[0], step.name) is not None}
        return plan_flow(flow, refusal, jobs, present, answers, int(self._context.clock()))

    def _template(self, namespace: str, name: str) -> FlowObject | None:
        template = self.templates.get((namespace, name))
        return None if template is None or template.deleting else template

    async def _create(self, key: Key, flow: JobFlow, step: FlowStep) -> bool:
        """Create the job of a JobFlow's step. Return whether the job exists now; False if another owner has a job
        of this name."""
        template = self._template(key[0], step.name)
        if template is None:
            return True  # the template was deleted; the next reconciliation records it
        name = child_job_name(flow.metadata.name, step.name)
        place = (key[0], name)
        if place in self._foreign:
            try:
                return self._adopt(flow.metadata, place, await self._context.client.get(JOBS.path(*place)))
            except ApiError as error:
                if error.status != 404:
                    raise
                self._foreign.discard(place)
        spec = patched_spec(mapping(decode_json(template.raw).get("spec")), step)
        try:
            answer = await self._context.writer.create(
                JOBS.path(key[0]), _job(flow.metadata, step.name, name, spec)
            )
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return self._adopt(flow.metadata, place, await self._context.client.get(JOBS.path(*place)))
            note = f"Failed to create job {name}: {error.message}"
            self._notes.record(flow.metadata, (EventNote("Warning", "FailedCreate", note, name),))
            raise
        self.jobs.put(place, msgspec.json.encode(answer))
        self._notes.record(flow.metadata, (EventNote("Normal", "Created", f"create a job named {name}!", name),))
        return True

    def _adopt(self, metadata: Metadata, place: Key, existing: dict[str, Any]) -> bool:
        """Return whether an existing job of this name belongs to the JobFlow."""
        raw = msgspec.json.encode(existing)
        if read_child_job(raw).owner == metadata.uid:
            self._foreign.discard(place)
            self.jobs.put(place, raw)
            return True
        self._foreign.add(place)
        note = f"Job {place[1]} exists but is not owned by this JobFlow: delete or rename it"
        self._notes.record(metadata, (EventNote("Warning", "ForeignJob", note, place[1]),))
        return False

    async def _delete(self, job: ChildJob) -> None:
        key = (job.namespace, job.name)
        try:
            answer = await self._context.writer.delete(JOBS.path(*key), uid=job.uid, propagation="Background")
        except ApiError as error:
            if error.status not in (404, 409):
                raise
        else:
            if isinstance(answer, dict) and mapping(answer.get("metadata")).get("deletionTimestamp"):
                self.jobs.put(key, msgspec.json.encode(answer))
                return
        self.jobs.remove(key, job.uid)

    async def _write_status(self, key: Key, document: dict[str, Any], status: dict[str, Any]) -> None:
        """Write the status of a JobFlow. Raise ApiError 409 after a concurrent write of another client."""
        unmanaged = {
            name: value for name, value in mapping(document.get("status")).items() if name not in _STATUS_FIELDS
        }
        body = {**document, "status": {**unmanaged, **status}}
        answer = await self._context.writer.replace(JOB_FLOWS.path(*key, "status"), body)
        if {**unmanaged, **status} != answer.get("status"):
            self._truncated[answer["metadata"]["uid"]] = status
        self.flows.put(key, msgspec.json.encode(answer))


_STATUS_FIELDS = frozenset(
    {
        "pendingJobs",
        "runningJobs",
        "failedJobs",
        "completedJobs",
        "terminatedJobs",
        "unKnowJobs",
        "jobStatusList",
        "conditions",
        "state",
    }
)


def _job(metadata: Metadata, step: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    origin = {
        CREATED_BY_TEMPLATE: f"{metadata.namespace}.{step}",
        CREATED_BY_FLOW: f"{metadata.namespace}.{metadata.name}",
    }
    return {
        "apiVersion": JOBS.api_version,
        "kind": JOBS.kind,
        "metadata": {
            "name": name,
            "namespace": metadata.namespace,
            # Annotation values can be longer than label values.
            "labels": {key: value for key, value in origin.items() if _LABEL.fullmatch(value)},
            "annotations": origin,
            "ownerReferences": [controlled_by(JOB_FLOWS.api_version, JOB_FLOWS.kind, metadata)],
        },
        "spec": spec,
    }
