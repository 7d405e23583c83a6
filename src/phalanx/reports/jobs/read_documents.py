"""Job and pod entries built from API documents. A field of a wrong type counts as absent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from phalanx.dialects.families.native_status import ADMITTED
from phalanx.dialects.times import parse_time
from phalanx.jobs.members import TASK_INDEX, TASK_SPEC
from phalanx.jobs.spec import LifecyclePolicy, read_job
from phalanx.model.verdict_condition import LAST_VERDICT, ToldVerdict, exact_code, is_vague, read_told
from phalanx.reports.jobs.document_facts import is_queued
from phalanx.reports.jobs.entries import (
    PATIENCE_WITH_CONTROLLERS,
    SUSPENDED,
    ConditionEntry,
    JobEntry,
    PodEntry,
    TaskEntry,
)
from phalanx.reports.jobs.kinds import GANG, JOB, JOB_SET, VCJOB
from phalanx.reports.pod_troubles import PodTrouble, container_trouble

Json = Mapping[str, Any]

QUEUE_KEYS = ("scheduling.volcano.sh/queue-name", "kueue.x-k8s.io/queue-name", "volcano.sh/queue-name")
_INDEX = "batch.kubernetes.io/job-completion-index"
_REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
# Conditions of PodGroups with members that cannot start.
_SHORT = frozenset({("Unschedulable", "True"), ("PodGroupScheduled", "False")})
_DONE = frozenset({"Succeeded", "Failed"})
_NO_CONTROLLER = (
    "NoController",
    "no controller has accepted the job: run `phalanx controllers` (or Volcano's own), or check its log",
)


def mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def number(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def controller_of(document: Json) -> dict[str, Any]:
    owners = mapping(document.get("metadata")).get("ownerReferences")
    references = [mapping(reference) for reference in owners] if isinstance(owners, list) else []
    return next((reference for reference in references if reference.get("controller")), {})


# pods


def read_pod(document: Json) -> PodEntry:
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    status, labels = mapping(document.get("status")), mapping(metadata.get("labels"))
    notes = mapping(metadata.get("annotations"))
    index = text(notes.get(TASK_INDEX) or labels.get(TASK_INDEX) or notes.get(_INDEX) or labels.get(_INDEX))
    conditions = conditions_of(document)
    statuses = [mapping(container_status) for container_status in status.get("containerStatuses") or ()]
    owner = controller_of(document)
    trouble = container_trouble(status)
    reason, message = _trouble(
        conditions, trouble, statuses, text(status.get("reason")), text(status.get("message"))
    )
    return PodEntry(
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        task=text(notes.get(TASK_SPEC) or labels.get(TASK_SPEC) or labels.get(_REPLICATED_JOB)),
        index=int(index) if index.isascii() and index.isdecimal() and len(index) < 10 else -1,
        phase=text(status.get("phase")) or "Pending",
        ready=any(
            container_status.type == "Ready" and container_status.status == "True"
            for container_status in conditions
        ),
        terminating=bool(metadata.get("deletionTimestamp")),
        node=text(spec.get("nodeName")),
        created=text(metadata.get("creationTimestamp")),
        restarts=sum(number(container_status.get("restartCount")) for container_status in statuses),
        exit_code=_exit_code(statuses),
        reason=reason,
        message=message,
        containers=tuple(
            text(mapping(container_status).get("name")) for container_status in spec.get("containers") or ()
        ),
        owner=f"{owner.get('kind')}/{owner.get('name')}" if owner else "",
        gated=bool(spec.get("schedulingGates")),
        failing=trouble is not None and text(status.get("phase")) not in _DONE,
        evicted=any(
            container_status.type == "DisruptionTarget" and container_status.status == "True"
            for container_status in conditions
        ),
    )


def conditions_of(document: Json, about: str = "") -> list[ConditionEntry]:
    conditions = mapping(document.get("status")).get("conditions")
    return [
        ConditionEntry(
            about=about,
            type=text(entry.get("type")) or text(entry.get("status")),
            status=text(entry.get("status")) if entry.get("type") else "",
            reason=text(entry.get("reason")),
            message=text(entry.get("message")),
            since=text(entry.get("lastTransitionTime")),
        )
        for entry in (conditions if isinstance(conditions, list) else ())
        if isinstance(entry, dict)
    ]


def _trouble(
    conditions: Iterable[ConditionEntry],
    trouble: PodTrouble | None,
    statuses: Iterable[Json],
    reason: str,
    message: str,
) -> tuple[str, str]:
    """Return (reason, message) why a pod is not running, from its conditions and container statuses."""
    if reason:
        return reason, message
    by_type = {entry.type: entry for entry in conditions}
    # A pod that a queue or quota delays can lack other reasons; a bound pod is no longer delayed.
    scheduled = "PodScheduled" in by_type and by_type["PodScheduled"].status == "True"
    for entry in filter(None, map(by_type.get, () if scheduled else (ADMITTED, "PodScheduled"))):
        if entry.status == "False":
            return exact_code(entry.reason, told_verdict(by_type.values())), entry.message
    if trouble is not None:
        return trouble.reason, f"container {trouble.container}: {trouble.message or trouble.reason}"
    for status in statuses:
        ended = mapping(mapping(status.get("state")).get("terminated"))
        if number(ended.get("exitCode")):
            return text(ended.get("reason")) or "Error", text(ended.get("message"))
    return "", ""


def _exit_code(statuses: Iterable[Json]) -> int | None:
    codes = [
        number(ended.get("exitCode"))
        for status in statuses
        if (ended := mapping(mapping(status.get("state")).get("terminated")))
    ]
    return max(codes) if codes else None


# jobs


def job_entry(kind: str, document: Json, pods: Sequence[PodEntry], groups: Sequence[Json], now: float) -> JobEntry:
    """Return the entry of a job with its pods and PodGroups."""
    read = {VCJOB: _volcano, JOB: _native, JOB_SET: _job_set, GANG: _gang}[kind]
    entry = _common(kind, document, pods)
    entry = read(entry, document, pods)
    group = groups[0] if groups else None
    if group is not None and kind != GANG:
        spec = mapping(group.get("spec"))
        entry = msgspec.structs.replace(
            entry,
            group=text(mapping(group.get("metadata")).get("name")),
            minimum=_minimum(kind, entry, groups),
            queue=entry.queue or text(spec.get("queue")),
        )
    if is_vague(entry.reason) and not entry.over:
        # A Volcano Job has the verdict of its group.
        exact = next(filter(None, (told_verdict(conditions_of(pod_group)) for pod_group in groups)), None)
        entry = msgspec.structs.replace(entry, reason=_of_pods(exact_code(entry.reason, exact), pods))
    if not entry.reason and not entry.over:
        reason, message = _waits_for(entry, document, pods, groups, now)
        entry = msgspec.structs.replace(entry, reason=reason, message=entry.message or message)
    return entry


def _common(kind: str, document: Json, pods: Sequence[PodEntry]) -> JobEntry:
    metadata = mapping(document.get("metadata"))
    owner = controller_of(document)
    alive = [pod for pod in pods if not pod.terminating]
    return JobEntry(
        kind=kind,
        namespace=text(metadata.get("namespace")),
        name=text(metadata.get("name")),
        uid=text(metadata.get("uid")),
        queue=_queue_of(document),
        created=text(metadata.get("creationTimestamp")),
        owner=f"{owner.get('kind')}/{owner.get('name')}" if owner else "",
        labels={key: text(value) for key, value in mapping(metadata.get("labels")).items()},
        pending=sum(pod.phase == "Pending" for pod in alive),
        running=sum(pod.phase == "Running" for pod in alive),
        ready=sum(pod.phase == "Running" and pod.ready for pod in alive),
        succeeded=sum(pod.phase == "Succeeded" for pod in alive),
        failed=sum(pod.phase == "Failed" for pod in alive),
        terminating=sum(pod.terminating for pod in pods),
    )


def _volcano(entry: JobEntry, document: Json, pods: Sequence[PodEntry]) -> JobEntry:
    job, _ = read_job(document)
    status, spec = job.status, job.spec
    return msgspec.structs.replace(
        entry,
        phase=status.state.phase,
        queue=spec.queue or "default",
        scheduler=spec.scheduler_name,
        minimum=spec.minimum,
        total=spec.replicas,
        pending=status.pending,
        running=status.running,
        succeeded=status.succeeded,
        failed=status.failed,
        terminating=status.terminating,
        unknown=status.unknown,
        retries=status.retry_count,
        retry_limit=spec.retries,
        job_type=entry.labels.get("volcano.sh/job-type", ""),
        finished=(status.state.last_transition_time or "") if status.state.phase in _FINAL else "",
        reason=status.state.reason,
        message=status.state.message,
    )


_FINAL = frozenset({"Completed", "Failed", "Terminated", "Aborted"})


def _native(entry: JobEntry, document: Json, pods: Sequence[PodEntry]) -> JobEntry:
    spec, status = mapping(document.get("spec")), mapping(document.get("status"))
    parallelism = number(spec.get("parallelism", 1))
    completions = spec.get("completions")
    indexed = spec.get("completionMode") == "Indexed" and completions == spec.get("parallelism", 1)
    template = mapping(mapping(spec.get("template")).get("spec"))
    phase, reason, message, finished = _native_phase(document, entry)
    return msgspec.structs.replace(
        entry,
        phase=phase,
        scheduler=text(template.get("schedulerName")),
        minimum=parallelism if indexed else min(1, parallelism),
        total=number(completions) if completions is not None else parallelism,
        succeeded=max(entry.succeeded, number(status.get("succeeded"))),
        failed=max(entry.failed, number(status.get("failed"))),
        retries=number(status.get("failed")),
        retry_limit=number(spec.get("backoffLimit", 6)),
        finished=finished,
        reason=reason,
        message=message,
    )


def _native_phase(document: Json, entry: JobEntry) -> tuple[str, str, str, str]:
    """Return phase, reason, message and end time of a native Job."""
    for condition in conditions_of(document):
        if condition.status != "True":
            continue
        if condition.type in ("Complete", "Completed"):
            return "Completed", "", "", condition.since
        if condition.type == "Failed":
            return "Failed", condition.reason, condition.message, condition.since
    if mapping(document.get("spec")).get("suspend") is True:
        return "Suspended", "", "", ""
    if entry.running:
        return "Running", "", "", ""
    return "Pending", "", "", ""


def _job_set(entry: JobEntry, document: Json, pods: Sequence[PodEntry]) -> JobEntry:
    spec = mapping(document.get("spec"))
    total = 0
    for replicated_job in spec.get("replicatedJobs") or ():
        job = mapping(mapping(mapping(replicated_job).get("template")).get("spec"))
        total += number(mapping(replicated_job).get("replicas", 1)) * number(job.get("parallelism", 1))
    phase, reason, message, finished = _native_phase(document, entry)
    status = mapping(document.get("status"))
    return msgspec.structs.replace(
        entry,
        phase=phase,
        total=total,
        minimum=total,
        retries=number(status.get("restarts")),
        retry_limit=number(mapping(spec.get("failurePolicy")).get("maxRestarts")),
        finished=finished,
        reason=reason,
        message=message,
    )


def _gang(entry: JobEntry, document: Json, pods: Sequence[PodEntry]) -> JobEntry:
    phase = text(mapping(document.get("status")).get("phase"))
    if not phase and pods:
        done = all(pod.phase in _DONE for pod in pods)
        phase = "Completed" if done else "Running" if entry.running else "Pending"
    return msgspec.structs.replace(
        entry,
        phase={"Finished": "Completed"}.get(phase, phase),
        group=entry.name,
        minimum=minimum_of(document),
        total=len(pods),
    )


def _minimum(kind: str, entry: JobEntry, groups: Sequence[Json]) -> int:
    """Return the minimum of a job with PodGroups: a Volcano Job states it itself; for other kinds the PodGroups
    state it."""
    stated = sum(map(minimum_of, groups))
    return entry.minimum or stated if kind == VCJOB else stated or entry.minimum


def minimum_of(group: Json) -> int:
    """Return the minimum of members that a PodGroup of any API states."""
    spec = mapping(group.get("spec"))
    gang = mapping(mapping(spec.get("schedulingPolicy")).get("gang"))
    spellings = (spec.get(name) for name in ("minMember", "minMembers", "numMember"))
    return next(filter(None, map(number, spellings)), 0) or number(gang.get("minCount"))


def _queue_of(document: Json) -> str:
    metadata, spec = mapping(document.get("metadata")), mapping(document.get("spec"))
    if queue := text(spec.get("queue")):
        return queue
    template = mapping(mapping(spec.get("template")).get("metadata"))
    for place in (metadata, template):
        for notes in (mapping(place.get("annotations")), mapping(place.get("labels"))):
            for key in QUEUE_KEYS:
                if text(notes.get(key)):
                    return text(notes[key])
    return ""


def _waits_for(
    entry: JobEntry, document: Json, pods: Sequence[PodEntry], groups: Sequence[Json], now: float
) -> tuple[str, str]:
    """Return (reason, message) why a job waits: the verdict in its PodGroup's condition, else in a pod's
    condition."""
    if entry.phase in SUSPENDED and not is_queued(entry.kind, document):
        return "", ""
    created = parse_time(entry.created)
    if entry.kind == VCJOB and not entry.phase:
        return _NO_CONTROLLER if now - created > PATIENCE_WITH_CONTROLLERS else ("", "")
    for group in groups:
        for condition in conditions_of(group):
            if (condition.type, condition.status) in _SHORT and entry.running < entry.minimum:
                exact = exact_code(condition.reason, told_verdict(conditions_of(group)))
                return _of_pods(exact, pods), condition.message
    for pod in pods:
        if pod.reason and (pod.phase == "Pending" or pod.failing) and not pod.terminating:
            return pod.reason, pod.message
    for condition in conditions_of(document):
        if condition.status == "False" and condition.reason:
            return condition.reason, condition.message
    return "", ""


def told_verdict(conditions: Iterable[ConditionEntry]) -> ToldVerdict | None:
    """Return the last verdict of the scheduler in an object's conditions; None without one."""
    verdict = next(
        (condition for condition in conditions if condition.type == LAST_VERDICT and condition.status == "True"),
        None,
    )
    return read_told(verdict.reason, verdict.message) if verdict is not None else None


def _of_pods(reason: str, pods: Sequence[PodEntry]) -> str:
    """Return the common reason of the job's pending pods if the PodGroup's reason is vague: some kinds of groups
    have no detailed conditions."""
    waiting = (pod.reason for pod in pods if pod.reason and pod.phase == "Pending" and not pod.terminating)
    return next(waiting, reason) if is_vague(reason) else reason


# further parts of a description


def task_entries(document: Json) -> list[TaskEntry]:
    job, _ = read_job(document)
    entries = []
    for task in job.spec.named_tasks():
        state = job.status.task_status_count.get(task.name)
        counts = state.phase if state is not None else {}
        entries.append(
            TaskEntry(
                name=task.name,
                replicas=task.replicas,
                minimum=task.minimum,
                pending=counts.get("Pending", 0),
                running=counts.get("Running", 0),
                succeeded=counts.get("Succeeded", 0),
                failed=counts.get("Failed", 0),
            )
        )
    return entries


def policy_lines(document: Json) -> list[str]:
    """Return the lifecycle policies of a Volcano Job as lines such as `PodFailed: RestartJob`; lines of a task have
    its name in front."""
    job, _ = read_job(document)
    lines = [_policy(policy) for policy in job.spec.policies]
    for task in job.spec.named_tasks():
        lines += [f"task {task.name}: {_policy(policy)}" for policy in task.policies]
    return lines


def _policy(policy: LifecyclePolicy) -> str:
    when = f"exit code {policy.exit_code}" if policy.exit_code is not None else ", ".join(policy.all_events())
    return f"{when} -> {policy.action}" + (f" after {policy.timeout}" if policy.timeout else "")
