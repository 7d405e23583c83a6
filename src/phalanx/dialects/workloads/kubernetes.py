"""Job, JobSet and LeaderWorkerSet: what their pods' labels say, and what only their objects know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.core import PodObject
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.workloads.rule import (
    STAGED_OWNERS,
    Membership,
    OwnerReader,
    WorkloadPart,
    WorkloadRule,
    WorkloadSize,
    by_owner,
    group_of,
    inner,
    requests_of_template,
    tied,
    whole,
)
from phalanx.model.resources import Requests

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB = WantedKind("batch", "jobs", "Job", ("v1",))


def _job_member(pod: PodObject) -> Membership | None:
    """Only indexed Jobs may be gangs: pods of others are told from each other by nobody."""
    metadata = pod.metadata
    owner = controlling_owner(metadata)
    if owner is None or owner.kind != "Job" or COMPLETION_INDEX not in metadata.annotations:
        return None
    return Membership(by_owner("Job", owner.name, owner.uid), f"Job {owner.name}", kind=("batch", "jobs"))


def _job_sizes(job: OwnerReader) -> tuple[WorkloadSize, ...]:
    if job.is_over("Complete", "Failed"):
        return ()
    gang = by_owner("Job", job.name, job.uid)
    stated = None if job.opts_out() else job.stated_minimum()
    if stated is None:
        spec = job.spec
        parallelism = whole(spec, "spec.parallelism", 1)
        completions = whole(spec, "spec.completions", parallelism)
        together = spec.get("completionMode") == "Indexed" and completions == parallelism and not job.opts_out()
        # Indexes that have succeeded come no more, and their pods may be gone.
        succeeded = whole(job.status, "status.succeeded")
        stated = max(1, parallelism - succeeded) if together else 1
    return (WorkloadSize(gang, stated, uid=job.uid),)


JOB = WorkloadRule("Job", _job_member, annotations=(COMPLETION_INDEX,), owner=_JOB, sizes=_job_sizes)

_JS = "jobset.sigs.k8s.io/"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
_JOBSET = WantedKind("jobset.x-k8s.io", "jobsets", "JobSet", ("v1", "v1alpha2"))


def _jobset_member(pod: PodObject) -> Membership | None:
    """A gang for each replicatedJob and attempt; those that exist at the same time start together (a gang group).

    Where topology is exclusive, the first pod of each Job comes first: the others are created once it has a node.
    """
    metadata = pod.metadata
    labels, annotations = metadata.labels, metadata.annotations
    name, uid, part = (labels.get(f"{_JS}{key}", "") for key in ("jobset-name", "jobset-uid", "replicatedjob-name"))
    if not name or not uid or not part:
        return None
    replica = labels.get(f"{_JS}restart-attempt") or "0"
    if _EXCLUSIVE in annotations and _NODE_SELECTOR not in annotations:
        first = annotations.get(COMPLETION_INDEX) == "0"
        part += "+leaders" if first else "+followers"
        replica += "" if first else f".{labels.get(f'{_JS}job-index', '')}"
    gang = f"{by_owner('JobSet', name, uid)}/{part}/{replica}"
    return Membership(gang, f"JobSet {name}", part, kind=(_JOBSET.group, _JOBSET.plural))


class _Part(msgspec.Struct, frozen=True):
    """A replicatedJob: `jobs` that have not succeeded of `pods` each. `now` once those that it comes `after` have
    come as far as it waits for, and still run if it runs `beside` them; `ready` once its own have started."""

    name: str
    jobs: int
    pods: int
    exclusive: bool
    after: frozenset[str]
    now: bool
    ready: bool
    beside: bool = True
    asked: Requests = ()


def _jobset_sizes(jobset: OwnerReader) -> tuple[WorkloadSize, ...]:
    if jobset.is_over("Completed", "Failed"):
        return ()
    base = by_owner("JobSet", jobset.name, jobset.uid)
    parts = _parts(jobset)
    stages: dict[frozenset[str], list[_Part]] = {}
    for part in parts:
        if part.jobs and part.pods:
            stages.setdefault(part.after, []).append(part)
    sizes: list[WorkloadSize] = []
    for part in parts:
        apart = jobset.opts_out() or not part.jobs
        gang, least = f"{base}/{part.name}", 1 if apart else max(1, part.jobs * part.pods)
        stage = () if apart else stages.get(part.after, ())
        names = tuple(f"{base}/{each.name}{'+leaders' if each.exclusive else ''}" for each in stage)
        gang_group, later = names if len(names) > 1 else (), _later(part, parts)
        if not part.exclusive:
            sizes.append(WorkloadSize(gang, least, gang_group=gang_group, later=later, uid=jobset.uid))
            continue
        first, others = (1, 1) if apart else (part.jobs, max(1, part.pods - 1))
        sizes.append(WorkloadSize(f"{gang}+leaders", first, gang_group=gang_group, later=later, uid=jobset.uid))
        sizes.append(WorkloadSize(f"{gang}+followers", others, uid=jobset.uid))
    if not jobset.opts_out():
        sizes = _tied_stages(base, parts, sizes)
    # A TrainJob makes the PodGroup of its JobSet's pods.
    makers = [jobset.uid, *([jobset.controller[2]] if jobset.controller[:2] in STAGED_OWNERS else [])]
    staged = tuple(each for part in parts for each in _staged(part))
    sizes += [WorkloadSize(group_of(maker), uid=jobset.uid, parts=staged) for maker in makers]
    return tuple(sizes)


def _tied_stages(base: str, parts: list[_Part], sizes: list[WorkloadSize]) -> list[WorkloadSize]:
    """The first part expects the next one, which is created when the first runs."""
    if not parts or not parts[0].jobs or parts[0].exclusive:
        return sizes
    first = parts[0]
    following = [each for each in parts[1:] if each.beside and first.name in each.after and each.asked]
    following = [each for each in following if each.jobs and each.pods and not each.exclusive]
    if not following:
        return sizes
    later, by_gang = following[0], {each.gang: each for each in sizes}
    one, other = (by_gang[f"{base}/{each.name}"] for each in (first, later))
    ties = {each.gang: each for each in tied(one, other, later.jobs * later.pods, later.asked)}
    return [ties.get(each.gang, each) for each in sizes]


def _staged(part: _Part) -> tuple[WorkloadPart, ...]:
    """The pods of a replicatedJob that are created at the same time."""
    count = part.jobs * part.pods
    later = f"{count} pods of {part.name} are created only after {', '.join(sorted(part.after))}"
    if not part.exclusive:
        return (WorkloadPart(part.name, count, part.now, later, part.beside),)
    rest = count - part.jobs
    followers = f"{rest} pods of {part.name} are created only after the first of their Job has a node"
    return (
        WorkloadPart(f"{part.name}+leaders", part.jobs, part.now, later, part.beside),
        WorkloadPart(f"{part.name}+followers", rest, not rest, followers),
    )


def _parts(jobset: OwnerReader) -> list[_Part]:
    told = {
        str(each.get("name")): tuple(whole(each, f"{path}.{field}") for field in ("succeeded", "ready", "failed"))
        for path, each in jobset.objects(jobset.status, "status.replicatedJobsStatus")
    }
    in_order = inner(jobset.spec, "spec.startupPolicy").get("startupPolicyOrder") == "InOrder"
    parts: list[_Part] = []
    for path, each in jobset.objects(jobset.spec, "spec.replicatedJobs"):
        template = inner(each, f"{path}.template")
        spec = inner(template, f"{path}.template.spec")
        name, pods = str(each.get("name")), whole(spec, f"{path}.template.spec.parallelism", 1)
        pods = min(pods, whole(spec, f"{path}.template.spec.completions", pods))
        replicas = whole(each, f"{path}.replicas", 1)
        succeeded, ready, failed = told.get(name, (0, 0, 0))
        jobs = max(0, replicas - succeeded)
        after = {
            str(other.get("name")): other.get("status") == "Ready"
            for _, other in jobset.objects(each, f"{path}.dependsOn")
        }
        if in_order:
            after = {part.name: True for part in parts} | after
        # (A dependency stands before whoever has it.)
        now = all(not part.jobs or (after[part.name] and part.ready) for part in parts if part.name in after)
        exclusive = _is_exclusive(jobset.annotations) or _is_exclusive(
            inner(inner(template, f"{path}.template.metadata"), f"{path}.template.metadata.annotations")
        )
        started = succeeded + ready + failed >= replicas
        pod_template = inner(spec, f"{path}.template.spec.template")
        asked = requests_of_template(pod_template) if after else ()
        beside = all(after.values())
        parts.append(_Part(name, jobs, pods, exclusive, frozenset(after), now, started, beside, asked))
    return parts


def _is_exclusive(annotations: Mapping[str, Any]) -> bool:
    return _EXCLUSIVE in annotations and _NODE_SELECTOR not in annotations


def _later(part: _Part, parts: list[_Part]) -> str:
    """What comes only after the part."""
    if part.exclusive and part.pods > 1:
        return f"{part.jobs * (part.pods - 1)} pods are created only after the first of their Job has a node"
    waits = [other for other in parts if part.name in other.after]
    if not waits:
        return ""
    count = sum(other.jobs * other.pods for other in waits)
    names = ", ".join(other.name for other in waits)
    return f"{count} pods of {names} are created only after {part.name}"


JOBSET = WorkloadRule(
    "JobSet", _jobset_member, labels=(f"{_JS}jobset-uid",), owner=_JOBSET, sizes=_jobset_sizes, staged=True
)

_LWS_KEY = "leaderworkerset.sigs.k8s.io/"
_LWS = WantedKind("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet", ("v1",))


def _lws_member(pod: PodObject) -> Membership | None:
    """A leader and its workers are a gang each, of which the pods know the size; the object tells whether both
    exist at the same time."""
    metadata = pod.metadata
    labels, annotations = metadata.labels, metadata.annotations
    name, group = labels.get(f"{_LWS_KEY}name", ""), labels.get(f"{_LWS_KEY}group-index", "")
    size, key = annotations.get(f"{_LWS_KEY}size", ""), f"annotation {_LWS_KEY}size"
    if not name or not group or not (size.isascii() and size.isdecimal()):
        return None
    leads = labels.get(f"{_LWS_KEY}worker-index") == "0"
    part = "leader" if leads else "workers"
    least = 1 if leads else max(1, int(size[:9]) - 1)
    revision = labels.get(f"{_LWS_KEY}template-revision-hash", "")
    gang = f"lws:{name}/{part}/{group}.{revision}.{size[:9]}"
    kind = (_LWS.group, _LWS.plural)
    return Membership(gang, f"LeaderWorkerSet {name}", part, Stated(key, str(least)), kind)


def _lws_sizes(lws: OwnerReader) -> tuple[WorkloadSize, ...]:
    base = f"lws:{lws.name}"
    if lws.opts_out():
        return (WorkloadSize(f"{base}/leader"), WorkloadSize(f"{base}/workers"))
    template = inner(lws.spec, "spec.leaderWorkerTemplate")
    size = whole(template, "spec.leaderWorkerTemplate.size", 1)
    after = ""
    if lws.spec.get("startupPolicy") == "LeaderReady":
        after = "is ready"
    elif f"{_LWS_KEY}exclusive-topology" in lws.annotations:
        after = "has a node"
    parts = (f"{base}/leader", f"{base}/workers")
    gang_group = parts if size > 1 and not after else ()
    later = f"{size - 1} workers are created only after their leader {after}" if after and size > 1 else ""
    asked = requests_of_template(inner(template, "spec.leaderWorkerTemplate.workerTemplate")) if later else ()
    leader = WorkloadSize(parts[0], 1, gang_group=gang_group, later=later)
    # (The number of workers is that of the pods' own revision: 0 leaves it to them.)
    return tied(leader, WorkloadSize(parts[1], 0, gang_group=gang_group), size - 1, asked)


LEADER_WORKER_SET = WorkloadRule(
    "LeaderWorkerSet", _lws_member, labels=(f"{_LWS_KEY}name",), owner=_LWS, sizes=_lws_sizes
)
