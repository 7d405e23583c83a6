"""PodGroup and Workload of scheduling.k8s.io, Kubernetes' own gang API (kubernetes_native.md, A2-A4 and A6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.groupspec import MAX_MEMBERS, GroupReader, GroupSpec
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document, is_whole
from phalanx.dialects.standing import Standing, current_conditions, find_condition
from phalanx.dialects.times import format_time
from phalanx.model.gang import Dialect

GROUP = "scheduling.k8s.io"

# The condition that says the quorum has been placed; from v1beta1 on it says "once", and never goes back.
SCHEDULED = "PodGroupScheduled"
INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"

_POLICIES = ("basic", "gang")


def read_pod_group(resource: ServedKind, document: Document) -> GroupSpec:
    reader = GroupReader(resource, document)
    min_member = _min_count(reader, reader.spec.get("schedulingPolicy"), "spec.schedulingPolicy")
    _refuse_unbuilt(reader)
    return GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        family=Dialect.NATIVE,
        created=reader.created,
        min_member=min_member,
        priority=reader.number("priority"),
        preemption_policy=reader.text("preemptionPolicy"),
        extras=reader.extras,
        once_satisfied=reader.once_satisfied or _was_scheduled(reader),
        unit=_is_unit(reader.spec.get("disruptionMode")),
        preemptable=reader.preemptable,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )


def read_workload(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    """The groups of a 1.35 Workload; one is named `workload/podGroup`, and its replicas share it."""
    groups = GroupReader(resource, document).spec.get("podGroups")
    specs = []
    for at, group in enumerate(groups if isinstance(groups, list) else ()):
        if not isinstance(group, Mapping) or not isinstance(group.get("name"), str):
            continue
        reader = GroupReader(resource, document)
        min_member = _min_count(reader, group.get("policy"), f"spec.podGroups[{at}].policy")
        specs.append(
            GroupSpec(
                ref=reader.ref,
                gang=f"{reader.ref.name}/{group['name']}",
                family=Dialect.NATIVE,
                created=reader.created,
                min_member=min_member,
                extras=reader.extras,
                preemptable=reader.preemptable,
                problem=reader.problem,
                warnings=tuple(reader.warnings),
            )
        )
    return tuple(specs)


def scheduled_condition(version: str) -> str:
    """The gang condition that this version of the API knows."""
    return SCHEDULED if version == "v1alpha2" else INITIALLY_SCHEDULED


def _min_count(reader: GroupReader, policy: object, path: str) -> int:
    if not isinstance(policy, Mapping) or len(policy) != 1:
        reader.refuse(path, policy, 'state exactly one of {"basic": {}} and {"gang": {"minCount": 3}}')
        return 1
    (kind,) = policy
    if kind not in _POLICIES:
        reader.refuse(path, policy, f"the policy {kind!r} is not known; use basic or gang", code="UnknownPolicy")
        return 1
    if kind == "basic":
        return 1
    gang = policy["gang"]
    count = gang.get("minCount") if isinstance(gang, Mapping) else None
    if not is_whole(count) or not 1 <= count <= MAX_MEMBERS:
        reader.refuse(f"{path}.gang.minCount", count, "write a whole number of at least 1, such as 3")
        return 1
    return count


def _is_unit(mode: object) -> bool:
    """Whether members may only be disrupted together. What we do not know counts as yes: that is the safe side."""
    if mode is None:
        return False
    if isinstance(mode, Mapping):
        return {member for member, value in mode.items() if value is not None} != {"single"}
    return mode != "Pod"


def _was_scheduled(reader: GroupReader) -> bool:
    conditions = reader.status.get("conditions")
    return any(
        isinstance(condition, Mapping)
        and condition.get("type") in (SCHEDULED, INITIALLY_SCHEDULED)
        and condition.get("status") == "True"
        for condition in (conditions if isinstance(conditions, list) else ())
    )


def _refuse_unbuilt(reader: GroupReader) -> None:
    advice = "this scheduler cannot honour it yet; remove it"
    constraints = reader.spec.get("schedulingConstraints")
    if constraints:
        reader.refuse("spec.schedulingConstraints", constraints, advice, code="UnsupportedField")
    for name in ("resourceClaims", "parentCompositePodGroupName"):
        if reader.spec.get(name):
            reader.refuse(f"spec.{name}", reader.spec[name], advice, code="UnsupportedField")


def condition_of(standing: Standing) -> dict[str, Any] | None:
    """The gang condition as it should be; None where it should stay as it is (kubernetes_native.md, N12).

    Once True it says that the first quorum has been placed, which nothing takes back.
    """
    kind = scheduled_condition(standing.ref.version)
    last = find_condition(current_conditions(standing), kind)
    if last is not None and last.get("status") == "True":
        return None
    told = _told(standing)
    if told is None:
        return None
    status, reason, message = told
    fresh: dict[str, Any] = {"type": kind, "status": status, "reason": reason, "message": message}
    if standing.generation:
        fresh["observedGeneration"] = standing.generation
    if last is not None and all(last.get(field, "") == value for field, value in fresh.items()):
        return None
    same = last is not None and last.get("status") == status and last.get("lastTransitionTime")
    fresh["lastTransitionTime"] = same or format_time(standing.now)
    return fresh


def _told(standing: Standing) -> tuple[str, str, str] | None:
    if standing.ever_scheduled or (standing.scheduled >= standing.gang.min_member):
        return "True", "Scheduled", "the members that the policy asks for have been placed"
    problem, verdict = standing.gang.problem, standing.verdict
    if problem is not None:
        mismatch = problem.code.endswith("Mismatch")
        return "False", "SchedulerError" if mismatch else "Unschedulable", problem.message
    # A quota or a turn in the queue is no lack of nodes, and the API has no other word.
    if verdict is not None and verdict.unschedulable:
        return "False", "Unschedulable", verdict.message
    return None
