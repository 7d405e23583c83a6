"""List of gangs from API objects; rights in one namespace suffice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.daemon.gang_entries import GangEntry, whole_or_part
from phalanx.dialects.gangs.declaration import QUEUE_ANNOTATION
from phalanx.dialects.gangs.generated_pod_groups import FORMER_GENERATED_FROM_PODS, GENERATED_FROM_PODS
from phalanx.dialects.options import DialectOptions
from phalanx.kube.core_resources import PODS
from phalanx.model.account import DEFAULT_QUEUE
from phalanx.model.devices.gpu_counts import gpu_percent, is_gpu
from phalanx.model.gang_names import PODGROUP
from phalanx.model.promise_records import StoredReservation
from phalanx.model.resources import parse_amount
from phalanx.model.text.quantity import QuantityError
from phalanx.reports.jobs.entries import JobEntry, PodEntry
from phalanx.reports.jobs.job_names import name_facts
from phalanx.reports.jobs.job_report import FoundJob
from phalanx.reports.jobs.kinds import GANG
from phalanx.reports.jobs.read_documents import mapping, number, text
from phalanx.views.gang_state import GangState
from phalanx.views.promises import PromisedStart, Promises

Json = Mapping[str, Any]

_DONE = frozenset({"Succeeded", "Failed"})
# Reasons of groups that are not admitted.
_BEFORE_PODS = frozenset(
    {"AwaitingAdmission", "QuotaExceeded", "QueueNotFound", "QueueNotLeaf", "QueueClosed", "BudgetSpent"}
)


def gang_entries(jobs: Sequence[FoundJob], options: DialectOptions, promises: Promises) -> list[GangEntry]:
    """Return the list entries of gangs in the order of the jobs. `options` define the user of a pod."""
    return [_entry(job, options, promises) for job in jobs]


def _entry(found: FoundJob, options: DialectOptions, promises: Promises) -> GangEntry:
    job, members = found.entry, found.members
    alive = [pod for pod in found.pods if not pod.finished and not pod.terminating]
    state = job.state
    reason, message = _reason(job, state, alive)
    promise = _promise(found, promises) if state.waits else None
    start = promises.start(promise) if promise is not None else PromisedStart()
    return GangEntry(
        kind=_kind(job, found),
        namespace=job.namespace,
        name=job.shown or job.name,
        uid=job.uid,
        target=found.target or _target(job),
        state=state,
        queue=job.queue or _of_groups(found, "queue") or _of_pods(found),
        user=_user(found, options),
        priority=max((number(mapping(each.get("spec")).get("priority")) for each in members), default=0),
        scheduler=job.scheduler
        or next((text(mapping(each.get("spec")).get("schedulerName")) for each in members), ""),
        running=job.running,
        minimum=job.minimum,
        total=max(job.total, len(alive)),
        gpus=_gpus(found),
        created=job.created,
        started=_started(members, job.minimum),
        finished=job.finished,
        start=start.no_later_than,
        expected=start.expected,
        promise=start.origin,
        nodes=tuple(sorted({pod.node for pod in alive if pod.node})),
        reason=reason,
        message=message,
        group=job.group if found.groups else "",
        owner=job.owner,
        labels=job.labels,
    )


def _promise(found: FoundJob, promises: Promises) -> StoredReservation | None:
    """Return the promised start of a single pod, of the first of a job's PodGroups that has one, or of the gang
    that only the pods declare."""
    job = found.entry
    if found.resource == PODS:
        return promises.of_pod(job.uid)
    for group in found.groups:
        if (promise := promises.of_gang(*_key(group))) is not None:
            return promise
    if job.kind == GANG and not found.groups:
        return promises.of_gang(job.namespace, job.name, "")
    return promises.of_owner(job.namespace, job.uid)


def _reason(job: JobEntry, state: GangState, alive: Sequence[PodEntry]) -> tuple[str, str]:
    if state in (GangState.RUNNING, GangState.STARTING):
        failing = [pod for pod in alive if pod.failing]
        if failing:
            return failing[0].reason, f"{len(failing)} of {len(alive)} pods: {failing[0].message}"
    if state in (GangState.RUNNING, GangState.COMPLETED):
        return "", ""
    # Operators create pods only after the group's admission.
    asks = job.phase == "Pending" and job.reason in _BEFORE_PODS
    if job.kind == GANG and state is GangState.PENDING and not alive and not asks:
        # The status of its group is outdated: it describes pods that no longer exist.
        return "NoPods", "none of its pods exists"
    return job.reason, job.message


def _kind(job: JobEntry, found: FoundJob) -> str:
    if job.kind != GANG:
        return job.kind
    if found.resource == PODS:
        return "pod"
    word = name_facts(found).kind
    if word != PODGROUP:
        return word
    return "podgroup" if found.resource is not None else GANG


def _target(job: JobEntry) -> str:
    """Return KIND/NAME of a job that was read without its namespace's other jobs."""
    return f"{job.kind if job.kind != GANG else PODGROUP}/{job.name}"


def _key(group: Json) -> tuple[str, str, str]:
    metadata = mapping(group.get("metadata"))
    annotations = mapping(metadata.get("annotations"))
    # Such a PodGroup is generated from the pods, which remain the gang's declaration.
    generated = GENERATED_FROM_PODS in annotations or FORMER_GENERATED_FROM_PODS in annotations
    uid = "" if generated else text(metadata.get("uid"))
    return text(metadata.get("namespace")), text(metadata.get("name")), uid


def _of_groups(found: FoundJob, field: str) -> str:
    return next(filter(None, (text(mapping(group.get("spec")).get(field)) for group in found.groups)), "")


def _of_pods(found: FoundJob) -> str:
    """Return the queue that the pods of a gang without a job name; the scheduler charges pods without a queue to
    the default queue."""
    if found.entry.kind != GANG:
        return ""
    for pod in found.members:
        metadata = mapping(pod.get("metadata"))
        for part in ("annotations", "labels"):
            if queue := text(mapping(metadata.get(part)).get(QUEUE_ANNOTATION)):
                return queue
    return DEFAULT_QUEUE


def _user(found: FoundJob, options: DialectOptions) -> str:
    """Return the user of the gang by the policy's label or annotation, on a pod or on its template."""
    template = mapping(mapping(mapping(found.document.get("spec")).get("template")).get("metadata"))
    places = [mapping(document.get("metadata")) for document in (*found.members[:1], found.document)] + [template]
    for key, part in ((options.user_label, "labels"), (options.user_annotation, "annotations")):
        for place in places if key else ():
            if user := text(mapping(place.get(part)).get(key)):
                return user
    return ""


def _gpus(found: FoundJob) -> int | float:
    """Return the number of GPUs of the gang's unfinished pods; without pods, of its PodGroup's minResources."""
    percent = [
        _pod_gpus(pod) for pod in found.members if text(mapping(pod.get("status")).get("phase")) not in _DONE
    ]
    if percent:
        return whole_or_part(sum(percent))
    for group in found.groups:
        min_resources = mapping(mapping(group.get("spec")).get("minResources"))
        return whole_or_part(gpu_percent(_counts(min_resources)))
    return 0


def _pod_gpus(pod: Json) -> int:
    spec = mapping(pod.get("spec"))
    gpus = 0
    for part in ("containers", "initContainers"):
        containers = spec.get(part)
        amounts = []
        for container in containers if isinstance(containers, list) else ():
            resources = mapping(mapping(container).get("resources"))
            asked = mapping(resources.get("requests")) | mapping(resources.get("limits"))
            amounts.append(gpu_percent(_counts(asked)))
        # Init containers run one after another.
        gpus = max(gpus, (sum if part == "containers" else max)(amounts or [0]))
    return gpus


def _counts(amounts: Json) -> list[tuple[str, int]]:
    starts = []
    for resource, amount in amounts.items():
        if is_gpu(resource):
            try:
                starts.append((resource, parse_amount(resource, amount)))
            except QuantityError:
                continue
    return starts


def _started(members: Sequence[Json], minimum: int) -> str:
    """Return the time at which `minimum` members of the gang had started; "" before that."""
    begun = sorted(
        filter(
            None,
            (
                text(status.get("startTime"))
                for status in (mapping(member.get("status")) for member in members)
                if status.get("phase") in ("Running", *_DONE)
            ),
        )
    )
    required = max(1, minimum)
    return begun[required - 1] if len(begun) >= required else ""
