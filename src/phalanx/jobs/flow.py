"""Plan of a JobFlow: jobs to create or delete, probes to run, and the next status.

The status lists the finished jobs, which count even after their deletion: a completed job is not started again
after its TTL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from typing import Any

import msgspec

from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.times import format_time
from phalanx.jobs.child_jobs import ENDED, ChildJob
from phalanx.jobs.notes import EventNote
from phalanx.jobs.spec import FlowStep, HttpGetProbe, JobFlow, JobPhase, Probe, TaskStatusProbe, TcpSocketProbe
from phalanx.jobs.task_graph import is_acyclic
from phalanx.model.pod_quota import mapping, sequence, text
from phalanx.model.text.decoding import quoted
from phalanx.model.text.duration import parse_nanoseconds

_LISTS = {
    "pendingJobs": JobPhase.PENDING,
    "runningJobs": JobPhase.RUNNING,
    "failedJobs": JobPhase.FAILED,
    "completedJobs": JobPhase.COMPLETED,
    "terminatedJobs": JobPhase.TERMINATED,
}
# Phases that are in no list of upstream's status.
_UNLISTED = frozenset({JobPhase.COMPLETING, JobPhase.TERMINATING})
_FAILURES = frozenset({JobPhase.FAILED, JobPhase.TERMINATED})
# Pods have their own phases; users can also write the phase of a job for a task.
_POD_PHASES = {"Completed": "Succeeded"}


class ProbeQuestion(msgspec.Struct, frozen=True):
    """Probe of all pods of one task of a job: over HTTP if there is a path, else by a TCP connection."""

    job: str
    job_uid: str
    task: str
    replicas: int
    port: int
    path: str | None = None
    header: tuple[str, str] | None = None


class FlowPlan(msgspec.Struct, frozen=True):
    """Steps for a JobFlow, in this order: create the jobs of the steps `create`, write `status`, delete
    `to_delete`.

    The results of the probes in `questions` can enable more steps.
    """

    status: dict[str, Any]
    create: tuple[FlowStep, ...] = ()
    to_delete: tuple[ChildJob, ...] = ()
    questions: tuple[ProbeQuestion, ...] = ()
    events: tuple[EventNote, ...] = ()


def child_job_name(flow: str, step: str) -> str:
    return f"{flow}-{step}"


def refusal_reason(flow: JobFlow, faults: tuple[DecodingFault, ...] = ()) -> str:
    """Return the reason why a JobFlow cannot start; "" if it can."""
    unreadable = [str(fault) for fault in faults if fault.path.startswith("spec")]
    if unreadable:
        return " ".join(unreadable)
    names = Counter(step.name for step in flow.spec.flows)
    for index, step in enumerate(flow.spec.flows):
        if not step.name:
            return f"spec.flows[{index}].name: is missing; set the name of a JobTemplate"
        if names[step.name] > 1:
            return (
                f"spec.flows[{index}].name: {quoted(step.name)} occurs {names[step.name]} times; "
                "use each name once, and another JobTemplate for another job"
            )
        for target in _targets(step):
            if target not in names:
                return f"spec.flows[{index}].dependsOn.targets: {quoted(target)} is not a name in spec.flows"
    if not is_acyclic({step.name: _targets(step) for step in flow.spec.flows}):
        return "spec.flows: the dependencies of the steps form a cycle; remove one of the dependsOn.targets"
    return ""


def _targets(step: FlowStep) -> tuple[str, ...]:
    return step.depends_on.targets if step.depends_on is not None else ()


def plan_flow(
    flow: JobFlow,
    refusal: str,
    jobs: Mapping[str, ChildJob],
    templates: Container[str],
    answers: Mapping[ProbeQuestion, bool],
    now: int,
) -> FlowPlan:
    """Return the next steps of a JobFlow. `jobs` are the jobs that the flow controls, by name; `templates` the
    names of the existing JobTemplates."""
    name = flow.metadata.name
    former_entries = {
        text(mapping(entry).get("name")): mapping(entry) for entry in sequence(flow.status.get("jobStatusList"))
    }
    phases = {
        job: text(entry.get("state")) for job, entry in former_entries.items() if text(entry.get("state")) in ENDED
    } | {job.name: job.phase for job in jobs.values()}
    create: list[FlowStep] = []
    questions: list[ProbeQuestion] = []
    events: list[EventNote] = []
    if refusal:
        events.append(EventNote("Warning", "InvalidJobFlow", refusal))
    elif not _FAILURES & set(phases.values()):
        for step in flow.spec.flows:
            if child_job_name(name, step.name) in phases or not _may_begin(
                name, step, jobs, phases, answers, questions
            ):
                continue
            if step.name in templates:
                create.append(step)
            else:
                note = f"JobTemplate {step.name} of spec.flows does not exist: create it"
                events.append(EventNote("Warning", "JobTemplateNotFound", note, step.name))
    phase = _phase(flow, refusal, phases)
    ended = phase == "Succeed" and flow.spec.job_retain_policy == "delete"
    # Without the template of its first step a flow has no status, as upstream: users can still change it.
    idle = not flow.status and not phases and not (create or refusal) and bool(events)
    return FlowPlan(
        {} if idle else _status(flow, phase, phases, former_entries, jobs, now),
        tuple(create),
        tuple(job for job in jobs.values() if not job.deleting) if ended else (),
        tuple(questions),
        tuple(events),
    )


def _phase(flow: JobFlow, refusal: str, phases: Mapping[str, str]) -> str:
    steps = [phases.get(child_job_name(flow.metadata.name, step.name), "") for step in flow.spec.flows]
    present = set(phases.values())
    if refusal or _FAILURES & present:
        return "Failed"
    if steps and all(phase == JobPhase.COMPLETED for phase in steps):
        return "Succeed"
    begun = text(mapping(flow.status.get("state")).get("phase")) in ("Running", "Succeed")
    return "Running" if begun or present & {JobPhase.RUNNING, JobPhase.COMPLETED} else "Pending"


# -- dependencies ------------------------------------------------------------------------------------------


def _may_begin(
    flow: str,
    step: FlowStep,
    jobs: Mapping[str, ChildJob],
    phases: Mapping[str, str],
    answers: Mapping[ProbeQuestion, bool],
    questions: list[ProbeQuestion],
) -> bool:
    """Return whether the job of a flow step can be created: each dependency is complete, or all its probes
    succeed."""
    probe = step.depends_on.probe if step.depends_on is not None else None
    for target in _targets(step):
        name = child_job_name(flow, target)
        if phases.get(name) == JobPhase.COMPLETED:
            continue
        job = jobs.get(name)
        if job is None or probe is None or not _holds(job, probe, answers, questions):
            return False
    return True


def _holds(
    job: ChildJob, probe: Probe, answers: Mapping[ProbeQuestion, bool], questions: list[ProbeQuestion]
) -> bool:
    probes = list(_probes_of(job, probe))
    if not probes or job.deleting:
        return False
    if not all(
        _task_reached_phase(job, task_probe) for task_probe in probes if isinstance(task_probe, TaskStatusProbe)
    ):
        return False
    network = [_question(job, task_probe) for task_probe in probes if not isinstance(task_probe, TaskStatusProbe)]
    questions.extend(question for question in network if question not in answers)
    return all(answers.get(question, False) for question in network)


def _probes_of(job: ChildJob, probe: Probe) -> Iterator[HttpGetProbe | TcpSocketProbe | TaskStatusProbe]:
    """Yield the probes of a step's dependency that concern the tasks of one job."""
    listed: tuple[HttpGetProbe | TcpSocketProbe | TaskStatusProbe, ...] = (
        *probe.task_status_list,
        *probe.tcp_socket_list,
        *probe.http_get_list,
    )
    for task_probe in listed:
        if task_probe.task_name in job.tasks:
            yield task_probe


def _task_reached_phase(job: ChildJob, probe: TaskStatusProbe) -> bool:
    """Return whether all pods of the probed task are in the required phase (or beyond it, for Running)."""
    state = job.task_status_count.get(probe.task_name)
    counts = state.phase if state is not None else {}
    wanted = _POD_PHASES.get(probe.phase, probe.phase)
    arrived = counts.get(wanted, 0) + (counts.get("Succeeded", 0) if wanted == "Running" else 0)
    return arrived >= max(1, job.tasks[probe.task_name])


def _question(job: ChildJob, probe: HttpGetProbe | TcpSocketProbe) -> ProbeQuestion:
    path: str | None = None
    header: tuple[str, str] | None = None
    if isinstance(probe, HttpGetProbe):
        path = probe.path
        stated = mapping(probe.http_header)
        if text(stated.get("name")):
            header = (text(stated.get("name")), text(stated.get("value")))
    replicas = job.tasks[probe.task_name]
    return ProbeQuestion(job.name, job.uid, probe.task_name, replicas, probe.port, path, header)


# -- status ------------------------------------------------------------------------------------------------


def _status(
    flow: JobFlow,
    phase: str,
    phases: Mapping[str, str],
    former_entries: Mapping[str, Mapping[str, Any]],
    jobs: Mapping[str, ChildJob],
    now: int,
) -> dict[str, Any]:
    """Return the status of a JobFlow with upstream's fields; empty fields are omitted, as an API server would."""
    order = [*former_entries, *sorted(name for name in jobs if name not in former_entries)]
    named = [name for name in order if name in phases]
    status: dict[str, Any] = {
        field: [name for name in named if phases[name] == wanted] for field, wanted in _LISTS.items()
    }
    listed = {*_LISTS.values(), *_UNLISTED}
    status["unKnowJobs"] = [name for name in named if phases[name] not in listed]
    status["jobStatusList"] = [
        _entry(jobs[name], former_entries.get(name, {}), now) if name in jobs else dict(former_entries[name])
        for name in order
    ]
    before = mapping(flow.status.get("conditions"))
    status["conditions"] = {
        name: _condition(jobs[name]) if name in jobs else before[name]
        for name in named
        if name in jobs or name in before
    }
    status["state"] = {"phase": phase}
    return {field: value for field, value in status.items() if value}


def _condition(job: ChildJob) -> dict[str, Any]:
    fields = {
        "phase": job.phase,
        "createTime": format_time(job.created),
        "runningDuration": job.running_duration,
        "taskStatusCount": msgspec.to_builtins(job.task_status_count),
    }
    return {field: value for field, value in fields.items() if value}


def _entry(job: ChildJob, former_entry: Mapping[str, Any], now: int) -> dict[str, Any]:
    histories = [dict(mapping(history)) for history in sequence(former_entry.get("runningHistories"))]
    if job.phase and (not histories or histories[-1].get("state") != job.phase):
        if histories:
            histories[-1]["endTimestamp"] = format_time(now)
        histories.append({"startTimestamp": format_time(now), "state": job.phase})
    fields = {
        "name": job.name,
        "state": job.phase,
        "startTimestamp": format_time(job.created),
        "endTimestamp": _end(job),
        "restartCount": job.retries,
        "runningHistories": histories,
    }
    return {field: value for field, value in fields.items() if value}


def _end(job: ChildJob) -> str | None:
    if not job.running_duration:
        return None
    try:
        return format_time(job.created + parse_nanoseconds(job.running_duration) // 10**9)
    except ValueError:
        return None


# -- the spec of a job -------------------------------------------------------------------------------------

# Default values of upstream's definition; a patch with such a value does not change the field.
_DEFAULTS = {"queue": "default", "maxRetry": 3}


def patched_spec(template: Mapping[str, Any], step: FlowStep) -> dict[str, Any]:
    """Return the job spec of a JobTemplate with the patch of a flow's step.

    Lists of named objects (tasks, containers, variables) merge by name; other lists are replaced.
    """
    patch = (step.patch.job_spec if step.patch is not None else None) or {}
    stated = {name: value for name, value in patch.items() if _DEFAULTS.get(name) != value}
    merged: dict[str, Any] = _merged(dict(template), stated)
    return merged


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{name: _merged(old.get(name), value) for name, value in new.items() if value is not None}}
    if isinstance(old, list) and isinstance(new, list) and new and _named(old) and _named(new):
        changes = {item["name"]: item for item in new}
        known = {item["name"] for item in old}
        return [
            *(_merged(item, changes[item["name"]]) if item["name"] in changes else item for item in old),
            *(item for item in new if item["name"] not in known),
        ]
    return new


def _named(items: list[Any]) -> bool:
    return all(isinstance(item, Mapping) and isinstance(item.get("name"), str) for item in items)
