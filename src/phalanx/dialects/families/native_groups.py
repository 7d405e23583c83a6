"""PodGroup and Workload of scheduling.k8s.io, Kubernetes' own gang API.

v1alpha1 (1.35) has Workloads with the groups that pods name. From v1alpha2 (1.36) on, a Workload is a template and
PodGroups are the groups; v1beta1 and v1alpha3 (1.37) rename some fields. The readers accept all versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from phalanx.dialects.gangs.group_spec import MAX_MEMBERS, GroupReader, GroupSpec
from phalanx.dialects.gangs.status_input import conditions_in
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document, ObjectReader, is_whole
from phalanx.dialects.workloads.rule import controller_of
from phalanx.model.gang import GroupClaim
from phalanx.model.text.decoding import quoted
from phalanx.model.topology import TopologyRule

# The condition for a placed quorum; from v1beta1 on it is called "initially" scheduled, and is final.
SCHEDULED = "PodGroupScheduled"
INITIALLY_SCHEDULED = "PodGroupInitiallyScheduled"

# From 1.37 on, kube-scheduler rejects groups with members that differ in priority or preemption policy. Before, the
# group's priority only determines whether it can preempt, and the members' own priorities apply otherwise.
_FREE_PRIORITIES = ("v1alpha1", "v1alpha2")
UNKNOWN_POLICY = "UnknownPolicy"


def read_pod_group(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    reader = GroupReader(resource, document)
    min_count = least_of(reader, reader.spec.get("schedulingPolicy"), "spec.schedulingPolicy", "minCount")
    topology = topology_of(reader)
    _, maker, maker_uid = controller_of(reader.metadata)
    spec = GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        created=reader.created,
        min_member=max(1, min_count),
        priority=reader.number("priority"),
        preemption_policy=reader.text("preemptionPolicy"),
        uniform=resource.version not in _FREE_PRIORITIES,
        extras=reader.extras,
        run_time=reader.run_time,
        once_satisfied=was_scheduled(reader, SCHEDULED, INITIALLY_SCHEDULED),
        unit=is_unit(reader.spec.get("disruptionMode")),
        preemptable=reader.preemptable,
        topology=topology,
        claims=_claims(reader),
        composite=reader.text("parentCompositePodGroupName"),
        workload=workload_of(reader),
        owner=maker_uid if not min_count else "",
        basic=bool(maker) and not min_count,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )
    return (spec,)


def read_workload(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    """Return the gangs that a Workload of Kubernetes 1.35 declares; each is named `workload/podGroup`, and its
    replicas share it."""
    groups = GroupReader(resource, document).spec.get("podGroups")
    specs = []
    for position, group in enumerate(groups if isinstance(groups, list) else ()):
        if not isinstance(group, Mapping) or not isinstance(group.get("name"), str):
            continue
        reader = GroupReader(resource, document)
        min_count = least_of(reader, group.get("policy"), f"spec.podGroups[{position}].policy", "minCount")
        specs.append(
            GroupSpec(
                ref=reader.ref,
                gang=f"{reader.ref.name}/{group['name']}",
                created=reader.created,
                min_member=max(1, min_count),
                uniform=resource.version not in _FREE_PRIORITIES,
                extras=reader.extras,
                run_time=reader.run_time,
                preemptable=reader.preemptable,
                workload=reader.ref.name,
                template=True,
                problem=reader.problem,
                warnings=tuple(reader.warnings),
            )
        )
    return tuple(specs)


def least_of(reader: ObjectReader, policy: object, path: str, count: str) -> int:
    """Return the number of members that start together by a PodGroup's policy: `count` of a gang policy, 0 for a
    basic policy."""
    if not isinstance(policy, Mapping) or len(policy) != 1:
        reader.refuse(path, policy, f'state exactly one of {{"basic": {{}}}} and {{"gang": {{"{count}": 3}}}}')
        return 0
    (kind,) = policy
    if kind == "basic":
        return 0
    if kind != "gang":
        reader.refuse(
            path, policy, f"the policy {quoted(kind)} is not known; use basic or gang", code=UNKNOWN_POLICY
        )
        return 0
    gang = policy["gang"]
    minimum = gang.get(count) if isinstance(gang, Mapping) else None
    if not is_whole(minimum) or not 1 <= minimum <= MAX_MEMBERS:
        reader.refuse(f"{path}.gang.{count}", minimum, "write a whole number of at least 1, such as 3")
        return 0
    return minimum


def topology_of(reader: ObjectReader) -> TopologyRule | None:
    """Decode a PodGroup's schedulingConstraints.topology: all members in one domain of a node label."""
    path, constraints = "spec.schedulingConstraints", reader.spec.get("schedulingConstraints")
    if not constraints:
        return None
    if not isinstance(constraints, Mapping) or constraints.keys() - {"topology"}:
        reader.refuse(path, constraints, "use topology and nothing else", code="UnsupportedField")
        return None
    topology = constraints.get("topology") or []
    if not isinstance(topology, list):
        topology = [topology]
    keys = [item.get("key") if isinstance(item, Mapping) else None for item in topology]
    if not keys:
        return None
    if len(keys) > 1 or not isinstance(keys[0], str) or not keys[0] or topology[0].keys() - {"key"}:
        reader.refuse(
            f"{path}.topology", topology, 'write one entry such as {"key": "topology.kubernetes.io/rack"}'
        )
        return None
    return TopologyRule.by_label(keys[0])


def is_unit(mode: object) -> bool:
    """Return whether a disruptionMode allows members to be evicted only together. An unknown mode counts as True,
    the safe choice."""
    if mode is None:
        return False
    if isinstance(mode, Mapping):
        return {member for member, value in mode.items() if value is not None} != {"single"}
    return mode != "Pod"


def was_scheduled(reader: ObjectReader, *kinds: str) -> bool:
    """Return whether one of these conditions in a PodGroup's status is True: its first quorum was placed."""
    conditions = conditions_in(reader.status)
    return any(condition["type"] in kinds and condition.get("status") == "True" for condition in conditions)


def workload_of(reader: ObjectReader) -> str:
    """Return the name of the Workload with the template of a PodGroup; "" if none is named."""
    reference = reader.spec.get("workloadRef")
    if not isinstance(reference, Mapping):
        template = reader.spec.get("podGroupTemplateRef")
        reference = template.get("workload") if isinstance(template, Mapping) else None
    name = reference.get("workloadName") if isinstance(reference, Mapping) else None
    return name if isinstance(name, str) else ""


def _claims(reader: ObjectReader) -> tuple[GroupClaim, ...]:
    """Return the ResourceClaims that all members share, with the names that the resourceclaim controller assigned
    to claims from templates."""
    made = {
        entry.get("name"): entry.get("resourceClaimName")
        for entry in _items(reader.status.get("resourceClaimStatuses"))
    }
    claims = []
    for entry in _items(reader.spec.get("resourceClaims")):
        name, claim, template = (
            entry.get(field) for field in ("name", "resourceClaimName", "resourceClaimTemplateName")
        )
        if not isinstance(name, str) or (isinstance(claim, str) is isinstance(template, str)):
            reader.refuse(
                "spec.resourceClaims",
                entry,
                "give each a name and one of resourceClaimName, resourceClaimTemplateName",
            )
            continue
        claim_name = claim if isinstance(claim, str) else made.get(name)
        claims.append(
            GroupClaim(
                name,
                claim_name if isinstance(claim_name, str) else "",
                template if isinstance(template, str) else "",
            )
        )
    return tuple(claims)


def _items(value: object) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []
