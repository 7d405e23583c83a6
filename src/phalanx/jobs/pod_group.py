"""PodGroup of a Volcano Job, and its fields that are updated with the job."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from phalanx.jobs.pods import Manifest, group_name, owned_by
from phalanx.jobs.spec import DEFAULT_QUEUE, Job, JobSpec, NetworkTopology, TaskSpec
from phalanx.model.pod_quota import Amounts, mapping, plus, pod_usage, text
from phalanx.model.text.quantity import Quantity

#: Annotation with the run of the whole job to which the group belongs.
JOB_VERSION_KEY = "phalanx.dev/job-version"
# Fields that follow the job. Queue and topology are set once, as upstream does.
_JOB_FIELDS = ("minMember", "minTaskMember", "minResources", "priorityClassName", "subGroupPolicy")
_TASK_SPEC, _PARTITION = "volcano.sh/task-spec", "volcano.sh/partition-id"
# Annotation in which `kubectl apply` stores the job.
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NATIVE = ("cpu", "memory", "ephemeral-storage", "pods", "storage")


def desired_pod_group(
    job: Job, *, priorities: Mapping[str, int] | None = None, held_back: Collection[str] = ()
) -> Manifest:
    """Return the whole manifest of a job's PodGroup.

    `priorities` are the values of PriorityClasses by name. The group does not count tasks in `held_back`: their
    pods are created only after other tasks run.
    """
    metadata, spec = job.metadata, job.spec
    tasks = [task for task in spec.named_tasks() if task.name not in held_back]
    minimum = _min_members(spec, tasks)
    body: Manifest = {
        "minMember": minimum,
        "minTaskMember": {task.name: task.minimum for task in tasks},
        "queue": spec.queue or DEFAULT_QUEUE,
        "minResources": written(_min_resources(tasks, minimum, priorities or {})),
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


def _min_members(spec: JobSpec, tasks: Sequence[TaskSpec]) -> int:
    """Return the part of the job's minimum that the pods of `tasks` must provide: all but the part of other tasks,
    and at most their replicas.

    If the job's minimum is below the sum of its tasks' minima, the smaller number applies.
    """
    every, own = (sum(task.minimum for task in task_list) for task_list in (spec.named_tasks(), tasks))
    return min(spec.minimum, max(spec.minimum - (every - own), own), sum(task.replicas for task in tasks))


def changed(existing: Mapping[str, Any], desired: Mapping[str, Any]) -> Manifest | None:
    """Return the merge patch that updates an existing PodGroup to its job; None if it is up to date."""
    current, wanted = mapping(existing.get("spec")), mapping(desired.get("spec"))
    spec: Manifest = {}
    for key in _JOB_FIELDS:
        old, new = current.get(key), wanted.get(key)
        if old == new or (not old and not new):
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            # A merge patch preserves keys that it does not name.
            spec[key] = {name: None for name in old if name not in new} | new
        else:
            spec[key] = new
    notes = mapping(mapping(existing.get("metadata")).get("annotations"))
    if JOB_VERSION_KEY in notes:
        return {"spec": spec} if spec else None
    # Another client without run counts created the group: it belongs to the current run.
    version = desired["metadata"]["annotations"][JOB_VERSION_KEY]
    patch: Manifest = {"metadata": {"annotations": {JOB_VERSION_KEY: version}}}
    return {**patch, "spec": spec} if spec else patch


def _min_resources(tasks: Sequence[TaskSpec], minimum: int, priorities: Mapping[str, int]) -> Amounts:
    """Return the requests of the job's first `minimum` pods: those within the tasks' minima first, then by the
    tasks' priority."""

    def priority(task: TaskSpec) -> int:
        return priorities.get(_class_of(task), 0)

    ordered = sorted(tasks, key=lambda task: -priority(task))
    total: Amounts = {}
    remaining = minimum
    surplus = []
    if minimum < sum(task.minimum for task in tasks):
        surplus = [(task, task.replicas) for task in ordered]
    else:
        for task in ordered:
            count = min(remaining, task.minimum)
            add_pods(total, mapping(task.template.get("spec")), count)
            remaining -= count
            surplus.append((task, task.replicas - task.minimum))
    for task, most in surplus:
        count = min(remaining, max(0, most))
        add_pods(total, mapping(task.template.get("spec")), count)
        remaining -= count
    return total


def priority_classes(job: Job) -> list[str]:
    """Return the names of the PriorityClasses by which a job's tasks are ordered."""
    return sorted({name for task in job.spec.named_tasks() if (name := _class_of(task))})


def _class_of(task: TaskSpec) -> str:
    return text(mapping(task.template.get("spec")).get("priorityClassName"))


def add_pods(total: Amounts, spec: Mapping[str, Any], count: int) -> None:
    """Add the requests of `count` pods with this spec to `total`, under every name that a queue or a quota can
    use."""
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
    """Format resource amounts as a Kubernetes resource list without zeros."""
    return {name: str(amount) for name, amount in sorted(amounts.items()) if amount.nano}


def _topology(topology: NetworkTopology) -> Manifest:
    manifest: Manifest = {"mode": topology.mode or "hard"}
    if topology.highest_tier_allowed is not None:
        manifest["highestTierAllowed"] = topology.highest_tier_allowed
    elif topology.highest_tier_name:
        manifest["highestTierName"] = topology.highest_tier_name
    return manifest


def _subgroup(task: TaskSpec) -> Manifest:
    """Return the subgroup policy of a partitioned task: each partition is a gang within the gang."""
    policy = task.partition_policy
    assert policy is not None
    manifest: Manifest = {
        "name": task.name,
        "labelSelector": {"matchLabels": {_TASK_SPEC: task.name}},
        "matchLabelKeys": [_PARTITION],
        "subGroupSize": policy.partition_size,
        "minSubGroups": policy.min_partitions,
    }
    if policy.network_topology is not None:
        manifest["networkTopology"] = _topology(policy.network_topology)
    return manifest
