"""PodGroup of kube-batch, and its variant in the design, KEP 34 (docs/rules/coscheduling.md, 1.1)."""

from __future__ import annotations

from importlib import resources
from typing import Any

from phalanx.dialects.api_groups import KUBE_BATCH, KUBE_BATCH_DESIGN, KUBE_BATCH_GROUPS, KUBE_BATCH_LAST
from phalanx.dialects.dialect import READ, AccessRule, AccountKind, Dialect, GroupKind
from phalanx.dialects.families.volcano import NAMED, gang_conditions, is_stuck
from phalanx.dialects.gangs.group_spec import GroupReader, GroupSpec, independent_of_status
from phalanx.dialects.gangs.status_input import GroupStatusInput
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.quotas.queues import read_queue
from phalanx.dialects.quotas.usage_status import kube_batch_queue_status
from phalanx.dialects.reader import Document


def read_pod_group(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    """Decode a PodGroup of kube-batch. `totalResources` is the design's name for the size of the whole group: a
    hint, like minResources."""
    reader = GroupReader(resource, document)
    min_member = reader.min_member("minMember", "minMembers", "numMember")
    min_resources = reader.resources("minResources")
    total_resources = reader.resources("totalResources")
    queue, priority_class = reader.text("queue"), reader.text("priorityClassName")
    spec = GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        created=reader.created,
        min_member=min_member,
        min_resources=total_resources if min_resources is None else min_resources,
        queue=queue,
        priority_class=priority_class,
        extras=reader.extras,
        run_time=reader.run_time,
        preemptable=reader.preemptable,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )
    return (spec,)


def status_of(group: GroupStatusInput) -> dict[str, Any]:
    """Return the phase Pending, Running or Unknown, the counts, and the condition Unschedulable.

    Succeeded members keep a group Running, since kube-batch has no phase for a completed one.
    """
    counts = group.counts
    if is_stuck(group):
        phase = "Unknown"
    else:
        phase = "Running" if group.is_ready() and not group.is_empty else "Pending"
    status: dict[str, Any] = {
        "phase": phase,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "conditions": [entry for entry in gang_conditions(group) if entry["type"] != "Scheduled"],
    }
    if group.ref.group == KUBE_BATCH_DESIGN:
        status["admitted"] = group.scheduled + counts.failed
    return status


_VERSIONS = {KUBE_BATCH: "v1alpha1", KUBE_BATCH_DESIGN: "v1alpha1", KUBE_BATCH_LAST: "v1alpha2"}


def _access(group: str) -> tuple[AccessRule, ...]:
    # Most of kube-batch's CRDs have no status subresource: there, the status is a field of the object.
    queues = ("queues/status",) if group == KUBE_BATCH_DESIGN else ("queues", "queues/status")
    return (
        AccessRule(group, ("podgroups",), READ),
        AccessRule(group, ("podgroups", "podgroups/status"), ("patch",)),
        AccessRule(group, ("queues",), READ),
        AccessRule(group, queues, ("patch",)),
    )


# Pods refer to these groups by the annotation that Volcano inherited from kube-batch.
KUBE_BATCH_DIALECT = Dialect(
    "kube-batch",
    groups=tuple(
        GroupKind(
            WantedKind(group, "podgroups", "PodGroup", (version,)),
            read_pod_group,
            NAMED,
            status_of,
            queue_counts=True,
            restate=independent_of_status,
        )
        for group, version in _VERSIONS.items()
    ),
    accounts=tuple(
        AccountKind(WantedKind(group, "queues", "Queue", (version,)), read_queue, kube_batch_queue_status)
        for group, version in _VERSIONS.items()
    ),
    access=tuple(rule for group in KUBE_BATCH_GROUPS for rule in _access(group)),
    definitions=resources.files("phalanx.dialects").joinpath("crds/kube-batch"),
    retired=KUBE_BATCH_GROUPS,
)
