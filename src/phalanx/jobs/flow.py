"""What is to be done for a JobFlow: which of its jobs to create or delete, what to ask pods, what its status says.

The status lists the jobs that have ended, and they count though they have been deleted since: a job that is
complete is not begun a second time because its time to live is over.
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
from phalanx.model.text.duration import parse_nanoseconds

_LISTS = {
    "pendingJobs": JobPhase.PENDING,
    "runningJobs": JobPhase.RUNNING,
    "failedJobs": JobPhase.FAILED,
    "completedJobs": JobPhase.COMPLETED,
    "terminatedJobs": JobPhase.TERMINATED,
}
# These two are in no list of upstream's.
_UNLISTED = frozenset({JobPhase.COMPLETING, JobPhase.TERMINATING})
_FAILURES = frozenset({JobPhase.FAILED, JobPhase.TERMINATED})
# Pods have phases of their own; a task's is told in a job's words too.
_POD_PHASES = {"Completed": "Succeeded"}


class ProbeQuestion(msgspec.Struct, frozen=True):
    """Whether all pods of a task of a job answer: over HTTP where there is a path, else by taking a connection."""

    job: str
    job_uid: str
    task: str
    replicas: int
    port: int
    path: str | None = None
    header: tuple[str, str] | None = None


class FlowPlan(msgspec.Struct, frozen=True):
    """Jobs of the steps `create` are created, then `status` is written, then `to_delete` go. To answer `questions`
    may allow more."""

    status: dict[str, Any]
    create: tuple[FlowStep, ...] = ()
    to_delete: tuple[ChildJob, ...] = ()
    questions: tuple[ProbeQuestion, ...] = ()
    events: tuple[EventNote, ...] = ()


def child_job_name(flow: str, step: str) -> str:
    return f"{flow}-{step}"


def why_refused(flow: JobFlow, faults: tuple[DecodingFault, ...] = ()) -> str:
    """Why nothing of it can be begun; empty if it can."""
    unread = [str(fault) for fault in faults if fault.path.startswith("spec")]
    if unread:
        return " ".join(unread)
    names = Counter(step.name for step in flow.spec.flows)
    for index, step in enumerate(flow.spec.flows):
        if not step.name:
            return f"spec.flows[{index}].name: is missing; write the name of a JobTemplate"
        if names[step.name] > 1:
            return (
                f"spec.flows[{index}].name: {step.name!r} is there {names[step.name]} times; "
                "write each name once, and a JobTemplate of another name for another job"
            )
        for target in _targets(step):
            if target not in names:
                return f"spec.flows[{index}].dependsOn.targets: {target!r} is no name of spec.flows"
    if not is_acyclic({step.name: _targets(step) for step in flow.spec.flows}):
        return "spec.flows: steps wait for each other in a circle; remove one of the dependsOn.targets"
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
    """`jobs` are those that it controls, by name; `templates` the names of the JobTemplates that there are."""
    name = flow.metadata.name
    told = {text(mapping(each).get("name")): mapping(each) for each in sequence(flow.status.get("jobStatusList"))}
    phases = {job: text(entry.get("state")) for job, entry in told.items() if text(entry.get("state")) in ENDED} | {
        job.name: job.phase for job in jobs.values()
    }
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
    # Without the template of its first step a flow has no status, as upstream: its submitter can still change it.
    idle = not flow.status and not phases and not (create or refusal) and bool(events)
    return FlowPlan(
        {} if idle else _status(flow, phase, phases, told, jobs, now),
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
    """Whether each target is complete, or, where a probe asks after one of its tasks, all such probes hold."""
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
    asked = list(_about(job, probe))
    if not asked or job.deleting:
        return False
    if not all(_task_is(job, each) for each in asked if isinstance(each, TaskStatusProbe)):
        return False
    network = [_question(job, each) for each in asked if not isinstance(each, TaskStatusProbe)]
    questions.extend(question for question in network if question not in answers)
    return all(answers.get(question, False) for question in network)


def _about(job: ChildJob, probe: Probe) -> Iterator[HttpGetProbe | TcpSocketProbe | TaskStatusProbe]:
    """The probes of this job: of a task that it has."""
    listed: tuple[HttpGetProbe | TcpSocketProbe | TaskStatusProbe, ...] = (
        *probe.task_status_list,
        *probe.tcp_socket_list,
        *probe.http_get_list,
    )
    for each in listed:
        if each.task_name in job.tasks:
            yield each


def _task_is(job: ChildJob, probe: TaskStatusProbe) -> bool:
    """Whether all pods of the task are in the phase, or have been where it is one that passes."""
    state = job.task_status_count.get(probe.task_name)
    counts = state.phase if state is not None else {}
    wanted = _POD_PHASES.get(probe.phase, probe.phase)
    come = counts.get(wanted, 0) + (counts.get("Succeeded", 0) if wanted == "Running" else 0)
    return come >= max(1, job.tasks[probe.task_name])


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
    told: Mapping[str, Mapping[str, Any]],
    jobs: Mapping[str, ChildJob],
    now: int,
) -> dict[str, Any]:
    """With upstream's fields; empty ones are left out, as an API server would."""
    order = [*told, *sorted(name for name in jobs if name not in told)]
    named = [name for name in order if name in phases]
    status: dict[str, Any] = {
        field: [name for name in named if phases[name] == wanted] for field, wanted in _LISTS.items()
    }
    listed = {*_LISTS.values(), *_UNLISTED}
    status["unKnowJobs"] = [name for name in named if phases[name] not in listed]
    status["jobStatusList"] = [
        _entry(jobs[name], told.get(name, {}), now) if name in jobs else dict(told[name]) for name in order
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
    found = {
        "phase": job.phase,
        "createTime": format_time(job.created),
        "runningDuration": job.running_duration,
        "taskStatusCount": msgspec.to_builtins(job.task_status_count),
    }
    return {field: value for field, value in found.items() if value}


def _entry(job: ChildJob, told: Mapping[str, Any], now: int) -> dict[str, Any]:
    histories = [dict(mapping(each)) for each in sequence(told.get("runningHistories"))]
    if job.phase and (not histories or histories[-1].get("state") != job.phase):
        if histories:
            histories[-1]["endTimestamp"] = format_time(now)
        histories.append({"startTimestamp": format_time(now), "state": job.phase})
    found = {
        "name": job.name,
        "state": job.phase,
        "startTimestamp": format_time(job.created),
        "endTimestamp": _end(job),
        "restartCount": job.retries,
        "runningHistories": histories,
    }
    return {field: value for field, value in found.items() if value}


def _end(job: ChildJob) -> str | None:
    if not job.running_duration:
        return None
    try:
        return format_time(job.created + parse_nanoseconds(job.running_duration) // 10**9)
    except ValueError:
        return None


# -- the spec of a job -------------------------------------------------------------------------------------

# Where a patch says nothing, upstream's definition says this in its place.
_FILLED_IN = {"queue": "default", "maxRetry": 3}


def patched_spec(template: Mapping[str, Any], step: FlowStep) -> dict[str, Any]:
    """The spec of a template with what a step changes in it. Of two objects with names in lists (tasks, containers,
    variables) one changes the other where the names are the same; other lists take the place of those before."""
    patch = (step.patch.job_spec if step.patch is not None else None) or {}
    stated = {name: value for name, value in patch.items() if _FILLED_IN.get(name) != value}
    merged: dict[str, Any] = _merged(dict(template), stated)
    return merged


def _merged(old: Any, new: Any) -> Any:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        return {**old, **{name: _merged(old.get(name), value) for name, value in new.items() if value is not None}}
    if isinstance(old, list) and isinstance(new, list) and new and _named(old) and _named(new):
        changes = {each["name"]: each for each in new}
        known = {each["name"] for each in old}
        return [
            *(_merged(each, changes[each["name"]]) if each["name"] in changes else each for each in old),
            *(each for each in new if each["name"] not in known),
        ]
    return new


def _named(items: list[Any]) -> bool:
    return all(isinstance(each, Mapping) and isinstance(each.get("name"), str) for each in items)
