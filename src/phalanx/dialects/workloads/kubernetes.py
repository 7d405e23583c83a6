"""Gangs of Job, JobSet and LeaderWorkerSet: membership from pod labels, and sizes from their objects."""

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
from phalanx.model.text.decoding import parse_whole

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB = WantedKind("batch", "jobs", "Job", ("v1",))


def _job_member(pod: PodObject) -> Membership | None:
    """Return the gang of a Job's pod. Only indexed Jobs qualify: pods of any other Job are interchangeable."""
    metadata = pod.metadata
    owner = controlling_owner(metadata)
    if owner is None or owner.kind != "Job" or COMPLETION_INDEX not in metadata.annotations:
        return None
    return Membership(by_owner("Job", owner.name, owner.uid), f"Job {owner.name}", kind=("batch", "jobs"))


def _job_sizes(job: OwnerReader) -> tuple[WorkloadSize, ...]:
    if job.is_over("Complete", "Failed"):
        return ()
    gang = by_owner("Job", job.name, job.uid)
    spec = job.spec
    parallelism = whole(spec, "spec.parallelism", 1)
    completions = whole(spec, "spec.completions", parallelism)
    # Succeeded and failed indexes are not recreated, and their pods can be deleted already.
    ended = whole(job.status, "status.succeeded") + failed_indexes(job.status, completions)
    remaining = max(1, min(parallelism, completions - ended))
    stated = None if job.opts_out() else job.stated_minimum()
    if stated is None:
        together = spec.get("completionMode") == "Indexed" and completions == parallelism and not job.opts_out()
        stated = remaining if together else 1
    elif "completions" in spec:
        stated = min(stated, remaining)
    # The Job controller can make a PodGroup with a basic policy for its pods.
    return tuple(WorkloadSize(name, stated, uid=job.uid) for name in (gang, group_of(job.uid)))


def failed_indexes(status: Mapping[str, Any], completions: int) -> int:
    """Return the number of failed indexes below `completions`, from a text such as `1,3-5`. Unreadable parts count
    as none.
    """
    text = status.get("failedIndexes")
    count, before = 0, -1
    for part in text.split(",") if isinstance(text, str) else ():
        first, dash, last = part.partition("-")
        start, end = parse_whole(first, 0), parse_whole(last if dash else first, 0)
        if start is not None and end is not None:
            start, end = max(start, before + 1), min(end, completions - 1)
            count, before = count + max(0, end - start + 1), max(before, end)
    return count


JOB = WorkloadRule("Job", _job_member, annotations=(COMPLETION_INDEX,), owner=_JOB, sizes=_job_sizes)

_JS = "jobset.sigs.k8s.io/"
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
_JOBSET = WantedKind("jobset.x-k8s.io", "jobsets", "JobSet", ("v1", "v1alpha2"))


def _jobset_member(pod: PodObject) -> Membership | None:
    """Return the gang of a JobSet's pod: one per replicatedJob and attempt; simultaneous ones form a gang group.

    With exclusive topology, the first pod of each Job starts alone: the rest is created once it has a node.
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
    """A replicatedJob: `jobs` unfinished ones of `pods` each. `now` means that its dependencies (`after`) have
    reached the required state; with `beside` they still run then. `ready` means that its own Jobs have started.
    `requests` are those of one pod."""

    name: str
    jobs: int
    pods: int
    exclusive: bool
    after: frozenset[str]
    now: bool
    ready: bool
    beside: bool = True
    requests: Requests = ()


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
        separate = jobset.opts_out() or not part.jobs
        gang, minimum = f"{base}/{part.name}", 1 if separate else max(1, part.jobs * part.pods)
        stage = () if separate else stages.get(part.after, ())
        names = tuple(
            f"{base}/{member_part.name}{'+leaders' if member_part.exclusive else ''}" for member_part in stage
        )
        gang_group, later = names if len(names) > 1 else (), _later(part, parts)
        if not part.exclusive:
            sizes.append(WorkloadSize(gang, minimum, gang_group=gang_group, later=later, uid=jobset.uid))
            continue
        first, follower_count = (1, 1) if separate else (part.jobs, max(1, part.pods - 1))
        sizes.append(WorkloadSize(f"{gang}+leaders", first, gang_group=gang_group, later=later, uid=jobset.uid))
        sizes.append(WorkloadSize(f"{gang}+followers", follower_count, uid=jobset.uid))
    if not jobset.opts_out():
        sizes = _tied_stages(base, parts, sizes)
    # A TrainJob creates the PodGroup for the pods of its JobSet.
    makers = [jobset.uid, *([jobset.controller[2]] if jobset.controller[:2] in STAGED_OWNERS else [])]
    staged = tuple(staged_part for part in parts for staged_part in _staged(part))
    sizes += [WorkloadSize(group_of(maker), uid=jobset.uid, parts=staged) for maker in makers]
    return tuple(sizes)


def _tied_stages(base: str, parts: list[_Part], sizes: list[WorkloadSize]) -> list[WorkloadSize]:
    """Let the first part of a JobSet expect the members of the next one, which is created once the first runs."""
    if not parts or not parts[0].jobs or parts[0].exclusive:
        return sizes
    first = parts[0]
    following = [part for part in parts[1:] if part.beside and first.name in part.after and part.requests]
    following = [part for part in following if part.jobs and part.pods and not part.exclusive]
    if not following:
        return sizes
    later, by_gang = following[0], {size.gang: size for size in sizes}
    first_size, later_size = (by_gang[f"{base}/{part.name}"] for part in (first, later))
    tied_sizes = {size.gang: size for size in tied(first_size, later_size, later.jobs * later.pods, later.requests)}
    return [tied_sizes.get(size.gang, size) for size in sizes]


def _staged(part: _Part) -> tuple[WorkloadPart, ...]:
    """Return the parts of a replicatedJob by time of creation."""
    count = part.jobs * part.pods
    later = f"{count} pods of {part.name} are created only after {', '.join(sorted(part.after))}"
    if not part.exclusive:
        return (WorkloadPart(part.name, count, part.now, later, part.beside),)
    follower_count = count - part.jobs
    followers = f"{follower_count} pods of {part.name} are created only after the first of their Job has a node"
    return (
        WorkloadPart(f"{part.name}+leaders", part.jobs, part.now, later, part.beside),
        WorkloadPart(f"{part.name}+followers", follower_count, not follower_count, followers),
    )


def _parts(jobset: OwnerReader) -> list[_Part]:
    counts = {
        str(entry.get("name")): tuple(whole(entry, f"{path}.{field}") for field in ("succeeded", "ready", "failed"))
        for path, entry in jobset.objects(jobset.status, "status.replicatedJobsStatus")
    }
    in_order = inner(jobset.spec, "spec.startupPolicy").get("startupPolicyOrder") == "InOrder"
    parts: list[_Part] = []
    for path, entry in jobset.objects(jobset.spec, "spec.replicatedJobs"):
        template = inner(entry, f"{path}.template")
        spec = inner(template, f"{path}.template.spec")
        name, pods = str(entry.get("name")), whole(spec, f"{path}.template.spec.parallelism", 1)
        pods = min(pods, whole(spec, f"{path}.template.spec.completions", pods))
        replicas = whole(entry, f"{path}.replicas", 1)
        succeeded, ready, failed = counts.get(name, (0, 0, 0))
        jobs = max(0, replicas - succeeded)
        after = {
            str(dependency.get("name")): dependency.get("status") == "Ready"
            for _, dependency in jobset.objects(entry, f"{path}.dependsOn")
        }
        if in_order:
            after = {part.name: True for part in parts} | after
        # A replicatedJob is listed after its dependencies.
        now = all(not part.jobs or (after[part.name] and part.ready) for part in parts if part.name in after)
        exclusive = _is_exclusive(jobset.annotations) or _is_exclusive(
            inner(inner(template, f"{path}.template.metadata"), f"{path}.template.metadata.annotations")
        )
        started = succeeded + ready + failed >= replicas
        pod_template = inner(spec, f"{path}.template.spec.template")
        requests = requests_of_template(pod_template) if after else ()
        beside = all(after.values())
        parts.append(_Part(name, jobs, pods, exclusive, frozenset(after), now, started, beside, requests))
    return parts


def _is_exclusive(annotations: Mapping[str, Any]) -> bool:
    return _EXCLUSIVE in annotations and _NODE_SELECTOR not in annotations


def _later(part: _Part, parts: list[_Part]) -> str:
    """Return a description of the pods of a JobSet that are created only after the part."""
    if part.exclusive and part.pods > 1:
        return f"{part.jobs * (part.pods - 1)} pods are created only after the first of their Job has a node"
    waiting_parts = [waiting_part for waiting_part in parts if part.name in waiting_part.after]
    if not waiting_parts:
        return ""
    count = sum(waiting_part.jobs * waiting_part.pods for waiting_part in waiting_parts)
    names = ", ".join(waiting_part.name for waiting_part in waiting_parts)
    return f"{count} pods of {names} are created only after {part.name}"


JOBSET = WorkloadRule(
    "JobSet", _jobset_member, labels=(f"{_JS}jobset-uid",), owner=_JOBSET, sizes=_jobset_sizes, staged=True
)

_LWS_KEY = "leaderworkerset.sigs.k8s.io/"
_LWS = WantedKind("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet", ("v1",))


def _lws_member(pod: PodObject) -> Membership | None:
    """Return the gang of a LeaderWorkerSet's pod: leader and workers are one gang each, with a size known from
    the pod. The object determines whether both exist at the same time."""
    metadata = pod.metadata
    labels, annotations = metadata.labels, metadata.annotations
    name, group = labels.get(f"{_LWS_KEY}name", ""), labels.get(f"{_LWS_KEY}group-index", "")
    size, key = annotations.get(f"{_LWS_KEY}size", ""), f"annotation {_LWS_KEY}size"
    if not name or not group or not (size.isascii() and size.isdecimal()):
        return None
    leads = labels.get(f"{_LWS_KEY}worker-index") == "0"
    part = "leader" if leads else "workers"
    minimum = 1 if leads else max(1, int(size[:9]) - 1)
    revision = labels.get(f"{_LWS_KEY}template-revision-hash", "")
    gang = f"lws:{name}/{part}/{group}.{revision}.{size[:9]}"
    kind = (_LWS.group, _LWS.plural)
    return Membership(gang, f"LeaderWorkerSet {name}", part, Stated(key, str(minimum)), kind)


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
    requests = requests_of_template(inner(template, "spec.leaderWorkerTemplate.workerTemplate")) if later else ()
    leader = WorkloadSize(parts[0], 1, gang_group=gang_group, later=later)
    # The number of workers is defined by the revision of the pods: 0 means to use theirs.
    return tied(leader, WorkloadSize(parts[1], 0, gang_group=gang_group), size - 1, requests)


LEADER_WORKER_SET = WorkloadRule(
    "LeaderWorkerSet", _lws_member, labels=(f"{_LWS_KEY}name",), owner=_LWS, sizes=_lws_sizes
)
