"""The PodGroup of a job, and what of it follows the job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from phalanx.jobs.pods import Manifest, group_name, owned_by
from phalanx.jobs.spec import DEFAULT_QUEUE, Job, JobSpec, NetworkTopology, TaskSpec
from phalanx.model.pod_quota import Amounts, mapping, plus, pod_usage, text
from phalanx.model.text.quantity import Quantity

#: Which run of the whole job the group belongs to.
JOB_VERSION_KEY = "phalanx.dev/job-version"
# What follows the job while the group is there. Its queue and topology are set once, as upstream does.
_FOLLOWED = ("minMember", "minTaskMember", "minResources", "priorityClassName", "subGroupPolicy")
_TASK_SPEC, _PARTITION = "volcano.sh/task-spec", "volcano.sh/partition-id"
# What `kubectl apply` remembers of the job.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods", "storage")


def desired_pod_group(
    job: Job, *, priorities: Mapping[str, int] | None = None, held_back: Collection[str] = ()
) -> Manifest:
    """The whole manifest. `priorities` are the values of PriorityClasses by name. The group does not wait for tasks
    that are `held_back`: they have no pods before others run."""
    metadata, spec = job.metadata, job.spec
    tasks = [task for task in spec.named_tasks() if task.name not in held_back]
    least = _least_members(spec, tasks)
    body: Manifest = {
        "minMember": least,
        "minTaskMember": {task.name: task.minimum for task in tasks},
        "queue": spec.queue or DEFAULT_QUEUE,
        "minResources": written(_least_resources(tasks, least, priorities or {})),
    }
    if spec.priority_class_name:
        body["priorityClassName"] = spec.priority_class_name
    if spec.network_topology is not None:
        body["networkTopology"] = _topology(spec.network_topology)
    subgroups = [_subgroup(task) for task in tasks if task.partition_policy is not None]
    if subgroups:
        body["subGroupPolicy"] = subgroups
    return {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": group_name(job),
            "namespace": metadata.namespace,
            "labels": dict(metadata.labels),
            "annotations": {
                **{key: value for key, value in metadata.annotations.items() if key != _LAST_APPLIED},
                JOB_VERSION_KEY: str(job.status.version),
            },
            "ownerReferences": owned_by(job),
        },
        "spec": body,
    }


def _least_members(spec: JobSpec, tasks: Sequence[TaskSpec]) -> int:
    """Of the job's minimum what these tasks must bring: all but what the others must, and never more than they
    have. Where the job starts with fewer pods than its tasks' minima sum to, it still does."""
    every, own = (sum(task.minimum for task in each) for each in (spec.named_tasks(), tasks))
    return min(spec.minimum, max(spec.minimum - (every - own), own), sum(task.replicas for task in tasks))


def changed(existing: Mapping[str, Any], desired: Mapping[str, Any]) -> Manifest | None:
    """A merge patch that brings what follows the job up to date, None where nothing is to do."""
    told, wanted = mapping(existing.get("spec")), mapping(desired.get("spec"))
    spec: Manifest = {}
    for key in _FOLLOWED:
        old, new = told.get(key), wanted.get(key)
        if old == new or (not old and not new):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            # A merge patch keeps what it does not name.
            spec[key] = {name: None for name in old if name not in new} | new
        else:
            spec[key] = new
    notes = mapping(mapping(existing.get("metadata")).get("annotations"))
    if JOB_VERSION_KEY in notes:
        return {"spec": spec} if spec else None
    # Made by somebody who does not count versions: it is of the run that goes on.
    version = desired["metadata"]["annotations"][JOB_VERSION_KEY]
    patch: Manifest = {"metadata": {"annotations": {JOB_VERSION_KEY: version}}}
    return {**patch, "spec": spec} if spec else patch


def _least_resources(tasks: Sequence[TaskSpec], least: int, priorities: Mapping[str, int]) -> Amounts:
    """What the first `least` pods ask for: those that the tasks' own minima name, then by the tasks' priority."""

    def priority(task: TaskSpec) -> int:
        return priorities.get(_class_of(task), 0)

    ordered = sorted(tasks, key=lambda task: -priority(task))
    total: Amounts = {}
    left = least
    surplus = []
    if least < sum(task.minimum for task in tasks):
        surplus = [(task, task.replicas) for task in ordered]
    else:
        for task in ordered:
            count = min(left, task.minimum)
            add_pods(total, mapping(task.template.get("spec")), count)
            left -= count
            surplus.append((task, task.replicas - task.minimum))
    for task, most in surplus:
        count = min(left, max(0, most))
        add_pods(total, mapping(task.template.get("spec")), count)
        left -= count
    return total


def priority_classes(job: Job) -> list[str]:
    """The names of the PriorityClasses that decide which of its tasks come first."""
    return sorted({name for task in job.spec.named_tasks() if (name := _class_of(task))})


def _class_of(task: TaskSpec) -> str:
    return text(mapping(task.template.get("spec")).get("priorityClassName"))


def add_pods(total: Amounts, spec: Mapping[str, Any], count: int) -> None:
    """Adds what `count` pods with this spec ask for, under every name that a queue or a quota may use."""
    usage = pod_usage(dict(spec))
    usage["count/pods"] = usage["pods"]
    for name in list(usage):
        bare = name.removeprefix("requests.")
        if bare != name and bare not in _NATIVE and bare not in usage:
            usage[bare] = usage[name]
    for name, amount in usage.items():
        more = Quantity(amount.nano * count, amount.style)
        total[name] = plus(total[name], more) if name in total else more


def written(amounts: Amounts) -> dict[str, str]:
    """As a resource list; what is nothing is left out."""
    return {name: str(amount) for name, amount in sorted(amounts.items()) if amount.nano}


def _topology(topology: NetworkTopology) -> Manifest:
    found: Manifest = {"mode": topology.mode or "hard"}
    if topology.highest_tier_allowed is not None:
        found["highestTierAllowed"] = topology.highest_tier_allowed
    elif topology.highest_tier_name:
        found["highestTierName"] = topology.highest_tier_name
    return found


def _subgroup(task: TaskSpec) -> Manifest:
    """Each partition of a task is a gang within the gang."""
    policy = task.partition_policy
    assert policy is not None
    found: Manifest = {
        "name": task.name,
        "labelSelector": {"matchLabels": {_TASK_SPEC: task.name}},
        "matchLabelKeys": [_PARTITION],
        "subGroupSize": policy.partition_size,
        "minSubGroups": policy.min_partitions,
    }
    if policy.network_topology is not None:
        found["networkTopology"] = _topology(policy.network_topology)
    return found
