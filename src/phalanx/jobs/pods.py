"""Pods of a Volcano Job, built from a task's template (docs/rules/jobs.md, B2)."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from phalanx.jobs.members import (
    JOB_KIND,
    JOB_NAME,
    JOB_VERSION,
    PARTITION,
    RETRY_COUNT,
    TASK_INDEX,
    TASK_SPEC,
)
from phalanx.jobs.spec import BATCH, DEFAULT_QUEUE, VERSION, Job, TaskSpec

GROUP_NAME = "scheduling.k8s.io/group-name"
QUEUE_NAME = "volcano.sh/queue-name"
JOB_NAMESPACE = "volcano.sh/job-namespace"
TEMPLATE_UID = "volcano.sh/template-uid"
NUMA_POLICY = "volcano.sh/numa-topology-policy"
# Annotation of Phalanx: spec.runningEstimate of the job, which the scheduler reads from its pods.
RUNNING_ESTIMATE = "phalanx.dev/job-running-estimate"

# Labels and annotations that pods inherit from their job; of the last two only the first present one.
_LABELS = ("volcano.sh/preemptable", "volcano.sh/cooldown-time")
_NOTES = (
    *_LABELS,
    "volcano.sh/revocable-zone",
    "phalanx.dev/expected-run-time",
    "phalanx.dev/max-run-time",
    "phalanx.dev/notify",
    "phalanx.dev/notify-target",
    "phalanx.dev/notify-to",
)
_BUDGET = ("volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable")

Manifest = dict[str, Any]


def pod_name(job: str, task: str, index: int) -> str:
    return f"{job}-{task}-{index}"


def group_name(job: Job) -> str:
    """Return the name of a job's PodGroup."""
    return f"{job.metadata.name}-{job.metadata.uid}"


def owned_by(job: Job) -> list[Manifest]:
    """Return the owner references for objects of a job, which are deleted with the job."""
    return [
        {
            "apiVersion": f"{BATCH}/{VERSION}",
            "kind": JOB_KIND,
            "name": job.metadata.name,
            "uid": job.metadata.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def desired_pod(
    job: Job,
    task: TaskSpec,
    index: int,
    *,
    version: int,
    retry_count: int,
    scheduler_name: str = "phalanx",
    group: str = "",
) -> Manifest:
    """Return the whole manifest of a job's pod, before plugins and volumes are added.

    `version` and `retry_count` are those of the job at the pod's creation; `scheduler_name` is the default for
    jobs that name no scheduler, `group` is the job's PodGroup if that has an older name.
    """
    metadata, queue = job.metadata, job.spec.queue or DEFAULT_QUEUE
    template = _mapping(task.template.get("metadata"))
    notes = {
        **_mapping(template.get("annotations")),
        TASK_INDEX: str(index),
        TASK_SPEC: task.name,
        GROUP_NAME: group or group_name(job),
        JOB_NAME: metadata.name,
        QUEUE_NAME: queue,
        JOB_VERSION: str(version),
        TEMPLATE_UID: f"{metadata.name}-{task.name}",
        RETRY_COUNT: str(retry_count),
    }
    if task.topology_policy:
        notes[NUMA_POLICY] = task.topology_policy
    notes |= {key: metadata.annotations[key] for key in _NOTES if key in metadata.annotations}
    if job.spec.running_estimate is not None:
        notes[RUNNING_ESTIMATE] = str(job.spec.running_estimate)
    budget = next((key for key in _BUDGET if key in metadata.annotations), None)
    if budget is not None:
        notes[budget] = metadata.annotations[budget]
    labels = {
        **_mapping(template.get("labels")),
        TASK_INDEX: str(index),
        TASK_SPEC: task.name,
        JOB_NAME: metadata.name,
        JOB_NAMESPACE: metadata.namespace,
        QUEUE_NAME: queue,
        **{key: metadata.labels[key] for key in _LABELS if key in metadata.labels},
    }
    if task.partition_policy is not None:
        size = task.partition_policy.partition_size
        labels[PARTITION] = str(index // size if size > 0 else 0)
    spec: Manifest = copy.deepcopy(dict(_mapping(task.template.get("spec"))))
    if not spec.get("schedulerName"):
        spec["schedulerName"] = job.spec.scheduler_name or scheduler_name
    if spec.get("hostNetwork") is True and not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    if not spec.get("priorityClassName") and job.spec.priority_class_name:
        spec["priorityClassName"] = job.spec.priority_class_name
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name(metadata.name, task.name, index),
            "namespace": metadata.namespace,
            "labels": labels,
            "annotations": notes,
            "ownerReferences": owned_by(job),
        },
        "spec": spec,
    }


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
