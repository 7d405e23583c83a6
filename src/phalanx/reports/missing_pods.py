"""Answers of `phalanx why` about pods that their owner cannot create, mostly because of a ResourceQuota. Read-only.

A pod that was never created has no condition or event of its own, so the reason is read from its owner.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

import msgspec

from phalanx.dialects.workloads.kubernetes import failed_indexes
from phalanx.jobs.quota_shortage import NamespaceQuota, QuotaShortage, quota_shortage, read_quota
from phalanx.jobs.suspended import JOB as NATIVE_JOB
from phalanx.jobs.suspended import QUEUE_LABEL, next_group_name
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS, RESOURCE_QUOTAS
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from phalanx.model.gang import GangKey
from phalanx.model.pod_quota import mapping, sequence, text
from phalanx.model.text.counts import count_of
from phalanx.model.text.quantity import Quantity
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS
from phalanx.reports.jobs.document_facts import document_facts
from phalanx.reports.jobs.read_documents import job_entry, read_pod
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_state import GangState, gang_state

EVENTS = Resource("", "v1", "events", "Event")
JOBS = Resource("batch", "v1", "jobs", "Job")
VOLCANO_JOBS = Resource("batch.volcano.sh", "v1alpha1", "jobs", "Job")

#: Kinds of owners by their name on the command line.
OWNERS: Mapping[str, Resource] = MappingProxyType(
    {
        "job": JOBS,
        "vcjob": VOLCANO_JOBS,
        "replicaset": Resource("apps", "v1", "replicasets", "ReplicaSet"),
        "statefulset": Resource("apps", "v1", "statefulsets", "StatefulSet"),
    }
)
_FINISHED = ("Succeeded", "Failed")
_ENDED = ("Complete", "Completed", "Failed", "Terminated", "Aborted")


class MissingPods(msgspec.Struct, frozen=True):
    """Missing pods of an owner that wants `wanted` pods, with the reason and the fix."""

    wanted: int
    missing: int
    reason: str
    message: str
    change: str = ""


class WhyAnswers(Protocol):
    """Answers of one dry run about gangs and pods; None for an object that does not exist."""

    async def pod(self, namespace: str, name: str) -> WhyAnswer | None: ...

    async def gang(self, key: GangKey) -> WhyAnswer | None: ...


async def why_owner(
    client: KubeClient, report: WhyAnswers, kind: str, namespace: str, name: str
) -> WhyAnswer | None:
    """Return the answer about a Job, ReplicaSet or StatefulSet and its missing pods; None if it does not exist.
    The kind `job` is the built-in kind, or else Volcano's."""
    found = None
    for word in (kind, "vcjob") if kind == "job" else (kind,):
        found = await _get(client, OWNERS[word].path(namespace, name))
        if found is not None:
            kind = word
            break
    if found is None:
        return None
    answer = WhyAnswer(OWNERS[kind].kind, f"{namespace}/{name}", GangState.PENDING, "", uid=_uid(found))
    every = await _pods_of(client, namespace, {answer.uid})
    pods = [pod for pod in every if mapping(pod.get("status")).get("phase") not in _FINISHED]
    if _has_said(answer, kind, found, every):
        return answer
    told = await _missing(client, OWNERS[kind], namespace, found, len(pods))
    waits = next_group_name(NATIVE_JOB, found) if QUEUE_LABEL in _labels(found) else ""
    if told is not None and told.reason == "Suspended" and waits:
        gang = await report.gang(GangKey(namespace, waits))
        queue = _labels(found)[QUEUE_LABEL]
        if gang is not None:
            gang.message = f"{told.message}, in queue {queue}; {gang.message}"
            return gang
        short = quota_shortage(await _quotas(client, namespace), _sets(OWNERS[kind], found))
        if short is not None:
            answer.reason, answer.change = "QuotaExceeded", _advice(short, namespace)
            answer.message = f"{told.message}, in queue {queue}: {short}"
            return answer
    if told is not None:
        answer.reason, answer.message, answer.change = told.reason, told.message, told.change
        answer.missing = told.missing
        group = await _group_of(report, answer) if kind == "vcjob" and not told.change else None
        if group is not None:
            # The job repeats the message of its group.
            answer.gang, answer.change = group.gang, group.change
        return answer
    return await _through(report, kind, answer, found, pods)


async def add_missing_pods(
    client: KubeClient, answer: WhyAnswer | None, path: str, uids: Collection[str]
) -> WhyAnswer | None:
    """Add to the answer about a gang with missing members why their owners do not create them. `path` is the URL
    path of the object that declares the gang ("" for none), `uids` are its members."""
    if answer is None or answer.kind != "Gang" or answer.reason != NOT_ENOUGH_MEMBERS or not answer.missing:
        return answer
    namespace, _, name = answer.gang.partition("/")
    for resource, owner in await _owners(client, GangKey(namespace, name), path, uids):
        pods = await _pods_of(client, namespace, {_uid(owner)})
        alive = sum(mapping(pod.get("status")).get("phase") not in _FINISHED for pod in pods)
        told = await _missing(client, resource, namespace, owner, alive)
        if told is not None and told.reason != "Suspended":
            who = f"{resource.kind} {text(mapping(owner.get('metadata')).get('name'))}"
            answer.reason, answer.change = told.reason, told.change
            answer.message = f"{answer.message}; {who}: {told.message}"
            return answer
    return answer


async def _owners(
    client: KubeClient, key: GangKey, path: str, uids: Collection[str]
) -> list[tuple[Resource, dict[str, Any]]]:
    """Return the owners of the object that declares a gang and of the existing members."""
    references: dict[str, dict[str, Any]] = {}
    documents = [await _get(client, path)] if path else []
    documents += await _pods_named(client, key.namespace, uids)
    for document in documents:
        for each in sequence(mapping(mapping(document).get("metadata")).get("ownerReferences")):
            owner = mapping(each)
            if owner.get("controller") is True:
                references[text(owner.get("uid"))] = owner
    found = []
    for uid, owner in references.items():
        resource = next((each for each in OWNERS.values() if _names(owner, each)), None)
        read = await _get(client, resource.path(key.namespace, text(owner.get("name")))) if resource else None
        if resource is not None and read is not None and _uid(read) == uid:
            found.append((resource, read))
    return found


async def _missing(
    client: KubeClient, resource: Resource, namespace: str, owner: dict[str, Any], there: int
) -> MissingPods | None:
    """Return the missing pods of an owner; None if all wanted pods exist."""
    spec, status = mapping(owner.get("spec")), mapping(owner.get("status"))
    state = mapping(status.get("state")) if resource == VOLCANO_JOBS else {}
    conditions = sequence(status.get("conditions"))
    if state.get("phase") in _ENDED or any(mapping(each).get("type") in _ENDED for each in conditions):
        return None
    sets = _sets(resource, owner)
    wanted = sum(count for _, count in sets)
    missing = wanted - there
    if missing <= 0:
        return None
    some = f"only {there} of its {wanted} pods exist" if there else f"0 of its {count_of(wanted, 'pod')} exist"
    if spec.get("suspend") is True:
        return MissingPods(
            wanted, missing, "Suspended", f"{some}: it is suspended", "resume it (spec.suspend: false)"
        )
    # With several templates it is unknown which of them the existing pods have.
    asked = sets if not there else [(sets[0][0], missing)] if len(sets) == 1 else []
    shortage = quota_shortage(await _quotas(client, namespace), asked)
    if shortage is not None:
        return MissingPods(wanted, missing, "QuotaExceeded", f"{some}: {shortage}", _advice(shortage, namespace))
    if state.get("message"):
        return MissingPods(wanted, missing, text(state.get("reason")), f"{some}: {state['message']}")
    event = await _refusal(client, namespace, _uid(owner))
    if not event:
        return None
    reason = "QuotaExceeded" if "exceeded quota" in event else "FailedCreate"
    change = "free or raise the named quota" if reason == "QuotaExceeded" else ""
    return MissingPods(wanted, missing, reason, f"{some}: {event}", change)


async def _through(
    report: WhyAnswers, kind: str, answer: WhyAnswer, owner: dict[str, Any], pods: list[dict[str, Any]]
) -> WhyAnswer:
    """Return the answer about the job's gang or its first pending pod, if no pod is missing for a known reason."""
    namespace = text(mapping(owner.get("metadata")).get("namespace"))
    if kind == "vcjob":
        group = await _group_of(report, answer)
        if group is not None:
            return group
    waiting = sorted(
        (each for each in pods if mapping(each.get("status")).get("phase") == "Pending"),
        key=lambda each: text(mapping(each.get("metadata")).get("name")),
    )
    for each in waiting:
        pod = await report.pod(namespace, text(mapping(each.get("metadata")).get("name")))
        if pod is not None:
            gang = await report.gang(GangKey(*pod.gang.split("/", 1))) if pod.gang else None
            if gang is None and pod.state is GangState.OTHER_SCHEDULER:
                # All pods of an owner have the same schedulerName.
                answer.state, answer.reason, answer.change = pod.state, pod.reason, pod.change
                answer.message = f"its pods are pending: {pod.message}"
                return answer
            return gang or pod
    if pods:
        gang = await _gang_of_pods(report, namespace, pods)
        if gang is not None:
            # Its PodGroup can require more members than the owner declares.
            answer.state = gang.state
        answer.message = f"{count_of(len(pods), 'pod')} exist, 0 are pending"
    else:
        answer.message = "it requires 0 pods now"
    return answer


async def _gang_of_pods(report: WhyAnswers, namespace: str, pods: list[dict[str, Any]]) -> WhyAnswer | None:
    """Return the answer about the gang of the first of these pods; None if that pod has no gang."""
    pod = await report.pod(namespace, text(mapping(pods[0].get("metadata")).get("name")))
    return await report.gang(GangKey(*pod.gang.split("/", 1))) if pod is not None and pod.gang else None


def _has_said(answer: WhyAnswer, kind: str, owner: dict[str, Any], pods: list[dict[str, Any]]) -> bool:
    """Set the state of an owner with these pods. Return whether the answer is complete: the job has ended, or it is
    suspended and has no missing pods."""
    members = [read_pod(pod) for pod in pods]
    job = job_entry(kind if kind == "vcjob" else "job", owner, members, (), 0.0)
    if kind not in ("job", "vcjob"):
        # ReplicaSets and StatefulSets neither start nor end as a gang.
        job = msgspec.structs.replace(job, minimum=0)
    answer.state = gang_state(document_facts(job, owner, members))
    if answer.state.over:
        answer.reason = job.reason
        answer.message = f"the job has ended: {job.message or job.phase}"
        return True
    if answer.state is GangState.SUSPENDED and not sum(count for _, count in _sets(OWNERS[kind], owner)):
        answer.reason, answer.message = "Suspended", "the job is suspended and requires 0 pods now"
        answer.change = "resume it (spec.suspend: false)"
        return True
    return False


async def _group_of(report: WhyAnswers, job: WhyAnswer) -> WhyAnswer | None:
    """Return the answer about the gang of a Volcano Job, by the new or the old name of its PodGroup."""
    namespace, _, name = job.name.partition("/")
    for group in (f"{name}-{job.uid}", name):
        if (answer := await report.gang(GangKey(namespace, group))) is not None:
            return answer
    return None


def _sets(resource: Resource, owner: dict[str, Any]) -> list[tuple[dict[str, Any], int]]:
    """Return the pods that an owner wants now, as (pod spec, number)."""
    spec, status = mapping(owner.get("spec")), mapping(owner.get("status"))
    template = mapping(mapping(spec.get("template")).get("spec"))
    if resource == VOLCANO_JOBS:
        return [
            (mapping(mapping(mapping(task).get("template")).get("spec")), _count(task, "replicas", 1))
            for task in sequence(spec.get("tasks"))
        ]
    if resource != JOBS:
        return [(template, _count(spec, "replicas", 1))]
    wanted = _count(spec, "parallelism", 1)
    if isinstance(spec.get("completions"), int):
        ended = _count(status, "succeeded", 0) + failed_indexes(status, spec["completions"])
        wanted = min(wanted, max(0, spec["completions"] - ended))
    return [(template, wanted)]


def _advice(shortage: QuotaShortage, namespace: str) -> str:
    if shortage.hopeless:
        return f"raise quota {namespace}/{shortage.quota} to {shortage.wanted} {shortage.resource}"
    missing = Quantity(shortage.wanted.nano - max(0, shortage.room.nano), shortage.wanted.style)
    amount = f"{missing} {shortage.resource}"
    return f"free {amount} in namespace {namespace}, or raise quota {namespace}/{shortage.quota} by {amount}"


def _count(document: object, field: str, default: int) -> int:
    found = mapping(document).get(field, default)
    return max(0, found) if isinstance(found, int) and not isinstance(found, bool) else default


def _names(owner: Mapping[str, Any], resource: Resource) -> bool:
    group = text(owner.get("apiVersion")).rpartition("/")[0]
    return (group, owner.get("kind")) == (resource.group, resource.kind)


def _labels(document: Mapping[str, Any]) -> dict[str, str]:
    return mapping(mapping(document.get("metadata")).get("labels"))


def _uid(document: Mapping[str, Any]) -> str:
    return text(mapping(document.get("metadata")).get("uid"))


async def _get(client: KubeClient, path: str) -> dict[str, Any] | None:
    """Return an API object; None if it does not exist or is not readable."""
    try:
        return dict(await client.get(path))
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return None


async def _list(client: KubeClient, path: str, **params: str) -> list[dict[str, Any]]:
    try:
        found = await client.list_all(path, dict(params) or None)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return []
    return [dict(item) for item in found.get("items") or ()]


async def _pods_of(client: KubeClient, namespace: str, owners: Iterable[str]) -> list[dict[str, Any]]:
    """Return the pods that these owners created, including finished pods."""
    uids = set(owners)
    return [
        pod
        for pod in await _list(client, PODS.path(namespace))
        if any(each.get("uid") in uids for each in sequence(mapping(pod.get("metadata")).get("ownerReferences")))
    ]


async def _pods_named(client: KubeClient, namespace: str, uids: Iterable[str]) -> list[dict[str, Any] | None]:
    wanted = set(uids)
    return [pod for pod in await _list(client, PODS.path(namespace)) if _uid(pod) in wanted] if wanted else []


async def _quotas(client: KubeClient, namespace: str) -> list[NamespaceQuota]:
    items = await _list(client, RESOURCE_QUOTAS.path(namespace))
    quotas = (read_quota(msgspec.json.encode(item)) for item in items)
    return [quota for quota in quotas if quota is not None]


async def _refusal(client: KubeClient, namespace: str, uid: str) -> str:
    """Return the message of the last failed creation of a pod by this owner."""
    found = await _list(
        client, EVENTS.path(namespace), fieldSelector=f"involvedObject.uid={uid},reason=FailedCreate"
    )
    # Some API servers ignore these field selectors.
    mine = [
        each
        for each in found
        if each.get("reason") == "FailedCreate" and mapping(each.get("involvedObject")).get("uid") == uid
    ]
    if not mine:
        return ""
    last = max(mine, key=lambda each: text(each.get("lastTimestamp")) or text(each.get("eventTime")))
    return text(last.get("message")).removeprefix("Error creating: ")
