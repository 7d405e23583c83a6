"""PodGroup of scheduling.x-k8s.io and its older group scheduling.sigs.k8s.io, which Koordinator and ACK use."""

from __future__ import annotations

from importlib import resources
from typing import Any

from phalanx.dialects.api_groups import SIGS, X_K8S
from phalanx.dialects.dialect import READ, AccessRule, AccountKind, Dialect, GroupKind
from phalanx.dialects.gangs.generated_pod_groups import generated_pod_group
from phalanx.dialects.gangs.group_spec import GroupReader, GroupSpec, independent_of_status
from phalanx.dialects.gangs.naming import GangNaming, InvalidMinimum, MinimumKey, Precedence
from phalanx.dialects.gangs.status_input import GroupStatusInput
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.quotas.account_spec import AccountSpec
from phalanx.dialects.quotas.elastic_quotas import read_elastic_quota
from phalanx.dialects.quotas.koordinator_quotas import is_koordinators, read_quota
from phalanx.dialects.quotas.usage_status import elastic_quota_status
from phalanx.dialects.reader import Document
from phalanx.dialects.times import format_time
from phalanx.model.gang import GangRules, MatchPolicy

LABEL = GangNaming(
    GangRules(X_K8S),
    MatchPolicy.WAITING_AND_RUNNING,
    Precedence.LABEL,
    labels=("scheduling.x-k8s.io/pod-group",),
)
OLD_LABEL = GangNaming(
    GangRules(SIGS),
    MatchPolicy.ONCE_SATISFIED,
    Precedence.LABEL,
    labels=("pod-group.scheduling.sigs.k8s.io",),
    objects=(SIGS, X_K8S),
)
LABELS_ALONE = GangNaming(
    GangRules("pod-group.scheduling.sigs.k8s.io", alone=True),
    MatchPolicy.ONCE_SATISFIED,
    Precedence.LABEL,
    labels=("pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.x-k8s.io/name"),
    minima=(
        MinimumKey(
            "pod-group.scheduling.sigs.k8s.io/min-available", "pod-group.scheduling.sigs.k8s.io/name", label=True
        ),
        MinimumKey("pod-group.scheduling.x-k8s.io/min-available", "pod-group.scheduling.x-k8s.io/name", label=True),
    ),
    invalid_minimum=InvalidMinimum.POLICY,
    objects=(SIGS, X_K8S),
)
LIGHTWEIGHT = GangNaming(
    GangRules("pod-group", alone=True),
    MatchPolicy.WAITING_AND_RUNNING,
    Precedence.LABEL,
    labels=("pod-group/name",),
    minima=(MinimumKey("pod-group/min-available", "pod-group/name", label=True),),
    invalid_minimum=InvalidMinimum.POLICY,
)


def read_pod_group(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    reader = GroupReader(resource, document)
    min_member = reader.min_member("minMember")
    min_resources = reader.resources("minResources")
    timeout = reader.timeout("scheduleTimeoutSeconds")
    made = generated_pod_group(resource, document)
    spec = GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        created=reader.created,
        min_member=min_member,
        min_resources=min_resources,
        timeout=timeout,
        extras=reader.extras,
        run_time=reader.run_time,
        preemptable=reader.preemptable,
        owner=reader.owner,
        owner_kind=reader.owner_kind,
        pays_ahead=reader.pays_ahead,
        made=made is not None and not made.adopted,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )
    return (spec,)


def status_of(group: GroupStatusInput) -> dict[str, Any] | None:
    """Return the status fields of a PodGroup that need an update; None for a finished group, whose phase never
    changes."""
    if group.phase == "Finished":
        return None
    counts = group.counts
    old = group.ref.group == SIGS
    phase = _phase(group, old)
    status: dict[str, Any] = {
        "phase": phase,
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
    }
    # The first owner is recorded; later owners do not replace it.
    if not group.current.get("occupiedBy") and phase != "Pending" and group.occupied_by:
        status["occupiedBy"] = group.occupied_by
    if old:
        status["scheduled"] = group.scheduled
        if group.scheduled and not group.current.get("scheduleStartTime"):
            status["scheduleStartTime"] = format_time(group.now)
    return status


def _phase(group: GroupStatusInput, old: bool) -> str:
    """Return the phase of a PodGroup from its pods alone (docs/rules/coscheduling.md, 2.3); a replacement pod ends
    the phase Failed."""
    counts, needed = group.counts, group.gang.min_member
    if counts.succeeded >= max(needed, group.gang.stated_member):
        return "Finished"
    if _has_failed(group):
        return "Failed"
    if counts.running + counts.succeeded >= needed:
        return "Running"
    if old and group.scheduled >= needed:
        return "Scheduled"
    if group.members < needed:
        return "Pending"
    return "PreScheduling" if old and not group.scheduled else "Scheduling"


def _has_failed(group: GroupStatusInput) -> bool:
    counts, needed = group.counts, group.gang.min_member
    if not counts.failed:
        return False
    if group.fail_on_any_member:
        return counts.failed + counts.running + counts.succeeded >= needed
    return group.survivors < needed


def _read_old_quota(resource: ServedKind, document: Document) -> AccountSpec:
    """Decode an ElasticQuota of the older group, which Koordinator and scheduler-plugins interpret differently."""
    return (read_quota if is_koordinators(document) else read_elastic_quota)(resource, document)


def _access(group: str) -> tuple[AccessRule, ...]:
    return (
        AccessRule(group, ("podgroups",), READ),
        # Where the project's own CRD has no status subresource, the status is a field of the object.
        AccessRule(group, ("podgroups", "podgroups/status"), ("patch",)),
        # Gangs that only pods declare get a PodGroup (the policy's `phalanx.createPodGroups`).
        AccessRule(group, ("podgroups",), ("create", "delete")),
        AccessRule(group, ("elasticquotas",), READ),
        AccessRule(group, ("elasticquotas/status",), ("patch",)),
    )


SCHEDULER_PLUGINS_DIALECT = Dialect(
    "scheduler-plugins",
    (LABEL, OLD_LABEL, LABELS_ALONE, LIGHTWEIGHT),
    tuple(
        GroupKind(
            WantedKind(group, "podgroups", "PodGroup", ("v1alpha1",)),
            read_pod_group,
            naming,
            status_of,
            names_owners=True,
            restate=independent_of_status,
        )
        for group, naming in ((X_K8S, LABEL), (SIGS, OLD_LABEL))
    ),
    (
        AccountKind(
            WantedKind(X_K8S, "elasticquotas", "ElasticQuota", ("v1alpha1",)),
            read_elastic_quota,
            elastic_quota_status,
        ),
        AccountKind(
            WantedKind(SIGS, "elasticquotas", "ElasticQuota", ("v1alpha1",)), _read_old_quota, elastic_quota_status
        ),
    ),
    access=(*_access(X_K8S), *_access(SIGS), AccessRule(SIGS, ("elasticquotas",), ("patch",))),
    definitions=resources.files("phalanx.dialects").joinpath("crds/scheduler-plugins"),
    retired=(SIGS,),
)
