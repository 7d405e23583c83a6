"""PodGroup of kube-batch: the groups it served, and the spelling of its design (coscheduling.md, 1.1; seed 000)."""

from __future__ import annotations

from typing import Any

from phalanx.dialects.families.volcano import gang_conditions, is_stuck
from phalanx.dialects.gangs.group_spec import GroupReader, GroupSpec
from phalanx.dialects.gangs.status_input import Standing
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document
from phalanx.model.gang import Dialect

GROUP = "scheduling.incubator.k8s.io"
DESIGN_GROUP = "incubator.scheduling.k8s.io"
LAST_GROUP = "scheduling.sigs.dev"
GROUPS = (GROUP, DESIGN_GROUP, LAST_GROUP)


def read_pod_group(resource: ServedKind, document: Document) -> GroupSpec:
    """`totalResources` is the design's name for the size of the whole group: a hint, like minResources."""
    reader = GroupReader(resource, document)
    min_member = reader.min_member("minMember", "minMembers", "numMember")
    min_resources = reader.resources("minResources")
    total_resources = reader.resources("totalResources")
    queue, priority_class = reader.text("queue"), reader.text("priorityClassName")
    return GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        family=Dialect.KUBE_BATCH,
        created=reader.created,
        min_member=min_member,
        min_resources=total_resources if min_resources is None else min_resources,
        queue=queue,
        priority_class=priority_class,
        extras=reader.extras,
        preemptable=reader.preemptable,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )


def status_of(standing: Standing) -> dict[str, Any]:
    """Phase Pending, Running or Unknown, counts, and the condition Unschedulable.

    Members that have succeeded keep a group Running, because kube-batch has no word for one that is through.
    """
    counts = standing.counts
    if is_stuck(standing):
        phase = "Unknown"
    else:
        phase = "Running" if standing.is_ready() and not standing.is_empty else "Pending"
    status: dict[str, Any] = {
        "phase": phase,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "conditions": [entry for entry in gang_conditions(standing) if entry["type"] != "Scheduled"],
    }
    if standing.ref.group == DESIGN_GROUP:
        status["admitted"] = standing.scheduled + counts.failed
    return status
