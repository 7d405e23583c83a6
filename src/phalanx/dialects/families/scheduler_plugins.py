"""PodGroup of scheduling.x-k8s.io, and of scheduling.sigs.k8s.io, its older name that Koordinator and ACK use."""

from __future__ import annotations

from typing import Any

from phalanx.dialects.gangs.group_spec import GroupReader, GroupSpec
from phalanx.dialects.gangs.made_groups import made_group
from phalanx.dialects.gangs.status_input import Standing
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document
from phalanx.dialects.times import format_time
from phalanx.model.gang import Dialect

GROUP = "scheduling.x-k8s.io"
OLD_GROUP = "scheduling.sigs.k8s.io"


def read_pod_group(resource: ServedKind, document: Document) -> GroupSpec:
    reader = GroupReader(resource, document)
    min_member = reader.min_member("minMember")
    min_resources = reader.resources("minResources")
    timeout = reader.timeout("scheduleTimeoutSeconds")
    made = made_group(resource, document)
    return GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        family=Dialect.X_K8S if resource.group == GROUP else Dialect.SIGS,
        created=reader.created,
        min_member=min_member,
        min_resources=min_resources,
        timeout=timeout,
        extras=reader.extras,
        preemptable=reader.preemptable,
        made=made is not None and not made.adopted,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )


def status_of(standing: Standing) -> dict[str, Any] | None:
    """The fields of the status as they should be; None once the group has finished, which is final."""
    if standing.phase == "Finished":
        return None
    counts = standing.counts
    old = standing.ref.group == OLD_GROUP
    phase = _phase(standing, old)
    status: dict[str, Any] = {
        "phase": phase,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
    }
    # Whoever came first has it; later owners do not take it over.
    if not standing.current.get("occupiedBy") and phase != "Pending" and standing.occupied_by:
        status["occupiedBy"] = standing.occupied_by
    if old:
        status["scheduled"] = standing.scheduled
        if standing.scheduled and not standing.current.get("scheduleStartTime"):
            status["scheduleStartTime"] = format_time(standing.now)
    return status


def _phase(standing: Standing, old: bool) -> str:
    """Derived from the pods alone (coscheduling.md, 2.3, R), so that a replacement lifts a Failed group."""
    counts, needed = standing.counts, standing.gang.min_member
    if counts.succeeded >= needed:
        return "Finished"
    if _has_failed(standing):
        return "Failed"
    if counts.running + counts.succeeded >= needed:
        return "Running"
    if old and standing.scheduled >= needed:
        return "Scheduled"
    if standing.members < needed:
        return "Pending"
    return "PreScheduling" if old and not standing.scheduled else "Scheduling"


def _has_failed(standing: Standing) -> bool:
    counts, needed = standing.counts, standing.gang.min_member
    if not counts.failed:
        return False
    if standing.fail_on_any_member:
        return counts.failed + counts.running + counts.succeeded >= needed
    return standing.survivors < needed
