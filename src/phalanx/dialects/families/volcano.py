"""PodGroup of scheduling.volcano.sh (docs/rules/volcano.md, 1.1)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, TypedDict

import msgspec

from phalanx.dialects.api_groups import KUBE_BATCH_GROUPS, VOLCANO
from phalanx.dialects.core import PodObject
from phalanx.dialects.dialect import READ, AccessRule, AccountKind, Dialect, GroupKind
from phalanx.dialects.enricher import PodEnricher
from phalanx.dialects.families.native_status import ADMITTED
from phalanx.dialects.gangs.declaration import controlling_owner
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.gangs.group_spec import MAX_MEMBERS, GroupReader, GroupSpec
from phalanx.dialects.gangs.naming import GangNaming, InvalidMinimum, MinimumKey, Precedence
from phalanx.dialects.gangs.status_input import (
    Conditions,
    GroupStatusInput,
    conditions_in,
    current_conditions,
    find_condition,
    last_verdict,
    lost_members,
    set_condition,
    shortfall,
)
from phalanx.dialects.gangs.task_topology import task_topology
from phalanx.dialects.gangs.topology_annotations import network_topology, subgroup_rules
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.nodes.hypernodes import HyperNodes
from phalanx.dialects.nodes.numa import NumaEnricher
from phalanx.dialects.pods.revocable import MAX_UNAVAILABLE, MIN_AVAILABLE, portion_of, revocable_of
from phalanx.dialects.quotas.queues import read_queue
from phalanx.dialects.quotas.usage_status import volcano_queue_status
from phalanx.dialects.reader import Document, describe, is_whole
from phalanx.dialects.times import parse_time
from phalanx.dialects.warnings import ObjectWarnings
from phalanx.model.disruption import Portion
from phalanx.model.gang import GangRules, MatchPolicy, Problem
from phalanx.model.node_request import ADMISSION_WITHDRAWN

_MIN_MEMBER = ("scheduling.k8s.io/group-min-member", "scheduling.volcano.sh/group-min-member")
_JOBS = "batch.volcano.sh/"
# Our own condition: whether all members above the minimum have nodes, too.
ALL_PLACED = "AllMembersPlaced"
# Our own condition: the members have exceeded their run time.
EXCEEDED = "RunTimeExceeded"
# Annotation with the HyperNode that contains all members of a group.
ALLOCATED_HYPERNODE = "volcano.sh/job-allocated-hypernode"


def _unnamed(pod: PodObject) -> tuple[Stated, ...]:
    """Return the gang of a pod that states a minimum but no gang name: the gang is named after the pod's
    controller."""
    for key in _MIN_MEMBER:
        if pod.metadata.annotations.get(key):
            owner = controlling_owner(pod.metadata)
            return (Stated(f"annotation {key}", owner.uid if owner and owner.uid else pod.metadata.uid),)
    return ()


NAMED = GangNaming(
    GangRules("kube-batch"),
    MatchPolicy.WAITING_RUNNING_SUCCEEDED,
    Precedence.ANNOTATION,
    annotations=("scheduling.k8s.io/group-name",),
    objects=(VOLCANO, *KUBE_BATCH_GROUPS),
)
UNNAMED = GangNaming(
    GangRules("shadow"),
    MatchPolicy.WAITING_RUNNING_SUCCEEDED,
    Precedence.UNNAMED,
    read=_unnamed,
    minima=tuple(map(MinimumKey, _MIN_MEMBER)),
    invalid_minimum=InvalidMinimum.ONE,
    objects=NAMED.objects,
)


def read_pod_group(resource: ServedKind, document: Document) -> tuple[GroupSpec, ...]:
    reader = GroupReader(resource, document)
    min_member = reader.min_member("minMember")
    roles = _roles(reader, min_member)
    min_member = max(min_member, sum(minimum for _, minimum in roles))
    min_resources, min_limits = reader.resources("minResources"), reader.limits("minResources")
    queue, priority_class = reader.text("queue"), reader.text("priorityClassName")
    topology = network_topology(reader, reader.spec.get("networkTopology"), "spec.networkTopology")
    subgroups = subgroup_rules(reader)
    min_available, max_unavailable = _disruption_budget(reader)
    tasks = task_topology(reader)
    spec = GroupSpec(
        ref=reader.ref,
        gang=reader.ref.name,
        created=reader.created,
        min_member=min_member,
        roles=roles,
        min_resources=min_resources,
        min_limits=min_limits,
        queue=queue,
        priority_class=priority_class,
        extras=reader.extras,
        run_time=reader.run_time,
        admission=True,
        **_admission(reader.status),
        owned=reader.owned,
        preemptable=reader.preemptable,
        owner=reader.owner,
        owner_kind=reader.owner_kind,
        pays_ahead=reader.pays_ahead,
        revocable=revocable_of(reader.labels, reader.annotations) or False,
        min_available=min_available,
        max_unavailable=max_unavailable,
        tasks=tasks,
        topology=topology,
        subgroups=subgroups,
        problem=reader.problem,
        warnings=tuple(reader.warnings),
    )
    return (spec,)


class _Admission(TypedDict):
    """Properties of a gang that the status of its PodGroup states."""

    admitted: bool
    admitted_at: int
    completed: bool


def _admission(status: Mapping[str, Any]) -> _Admission:
    phase = status.get("phase")
    return {
        "admitted": phase not in (None, "", "Pending"),
        "admitted_at": _admitted_at(status),
        "completed": phase == "Completed",
    }


def _restate(spec: GroupSpec, status: Mapping[str, Any]) -> GroupSpec:
    return msgspec.structs.replace(spec, **_admission(status))


def _admitted_at(status: Mapping[str, Any]) -> int:
    """Return the time of the last recorded admission; 0 if there is none."""
    admission = find_condition(conditions_in(status), ADMITTED)
    if admission is None or admission.get("status") != "True":
        return 0
    when = admission.get("lastTransitionTime")
    return parse_time(when) if isinstance(when, str) else 0


def _roles(reader: GroupReader, min_member: int) -> tuple[tuple[str, int], ...]:
    """Return the minimum number of pods of each role. Those of a Job's own PodGroup are ignored if they sum to more
    than minMember."""
    stated = reader.spec.get("minTaskMember")
    if stated is None:
        return ()
    if not isinstance(stated, Mapping):
        reader.refuse("spec.minTaskMember", stated, "write a map such as {ps: 1, worker: 4}")
        return ()
    roles = {}
    for role, minimum in stated.items():
        if not is_whole(minimum) or not 0 <= minimum <= MAX_MEMBERS:
            reader.refuse(f"spec.minTaskMember.{role}", minimum, "write a whole number of at least 0, such as 2")
            return ()
        if minimum:
            roles[str(role)] = minimum
    total = sum(roles.values())
    if total > min_member and _is_of_a_job(reader):
        # The Job controller writes the replicas of each task, unless the user states a minimum: enforced, they
        # would make every elastic Job rigid.
        return ()
    return tuple(sorted(roles.items()))


def _is_of_a_job(reader: GroupReader) -> bool:
    """Return whether Volcano's controller created the PodGroup for one of its Jobs."""
    owners = reader.metadata.get("ownerReferences")
    return any(
        isinstance(owner, Mapping) and str(owner.get("apiVersion")).startswith(_JOBS)
        for owner in (owners if isinstance(owners, list) else ())
    )


def _disruption_budget(reader: GroupReader) -> tuple[Portion | None, Portion | None]:
    """Return a PodGroup's disruption budget, (min available, max unavailable); the first has precedence, and an
    unreadable one forbids eviction."""
    faults: list[DecodingFault] = []
    min_available = portion_of(reader.annotations, MIN_AVAILABLE, faults)
    max_unavailable = portion_of(reader.annotations, MAX_UNAVAILABLE, faults) if min_available is None else None
    reader.warnings += [
        Problem(
            "InvalidAnnotation", f"{describe(reader.ref)}: {fault}; no member is evicted until this is corrected"
        )
        for fault in faults
    ]
    return min_available, max_unavailable


def status_of(group: GroupStatusInput) -> dict[str, Any] | None:
    """Return the phase, the counts and the conditions Unschedulable and Scheduled for a Volcano PodGroup
    (docs/rules/volcano.md, 1.1)."""
    counts = group.counts
    if group.phase == "Completed" and group.is_empty:
        # The pods of a finished group can be deleted; this does not put the group back into the queue.
        return None
    return {
        "phase": _phase(group),
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "conditions": _with_admission(group, _with_surplus(group, gang_conditions(group, patient=True))),
    }


def _with_admission(group: GroupStatusInput, conditions: Conditions) -> Conditions:
    """Set the conditions of an admission and of its withdrawal.

    The time of an admission is recorded while existing members still wait: they do not show since when they could
    run. It is removed once a member has a node.
    """
    counts = group.counts
    if group.withdrawn:
        if find_condition(conditions, ADMITTED) is not None:
            conditions = set_condition(conditions, group.now, ADMITTED, "False", "NoNodes", "no node came for it")
        return set_condition(conditions, group.now, ADMISSION_WITHDRAWN, "True", "NoNodes", "no node came for it")
    if not group.admitted:
        return conditions
    begins = group.phase in ("", "Pending") and bool(counts.pending or counts.gated)
    if begins or counts.active:
        # The time of a former admission ends with it.
        conditions = [entry for entry in conditions if entry["type"] != ADMITTED]
    if begins and not counts.active:
        conditions = set_condition(conditions, group.now, ADMITTED, "True", "Admitted", "")
    if find_condition(conditions, ADMISSION_WITHDRAWN) is not None:
        return set_condition(conditions, group.now, ADMISSION_WITHDRAWN, "False", "Admitted", "")
    return conditions


def _with_surplus(group: GroupStatusInput, conditions: Conditions) -> Conditions:
    """Add the condition that reports how many members of a PodGroup above its minimum have nodes."""
    counts, minimum = group.counts, group.gang.min_member
    known = find_condition(conditions, ALL_PLACED) is not None
    if not (group.is_ready() and (counts.present > minimum or (known and counts.present))):
        return conditions
    message = f"{counts.active} of {counts.present} members have nodes, {minimum} are the minimum"
    if counts.active < counts.present:
        return set_condition(conditions, group.now, ALL_PLACED, "False", "MembersPending", message)
    return set_condition(conditions, group.now, ALL_PLACED, "True", "Scheduled", message)


def gang_conditions(group: GroupStatusInput, *, patient: bool = False) -> Conditions:
    """Return a PodGroup's conditions as kube-batch's and Volcano's gang plugins write them, and the run-time
    condition. With `patient` lost members count once they are deleted."""
    conditions = _quorum_conditions(group, patient=patient)
    if group.exceeded:
        return set_condition(conditions, group.now, EXCEEDED, "True", EXCEEDED, group.exceeded)
    if find_condition(conditions, EXCEEDED) is not None:
        return set_condition(conditions, group.now, EXCEEDED, "False", "WithinRunTime", "")
    return conditions


def _quorum_conditions(group: GroupStatusInput, *, patient: bool) -> Conditions:
    conditions = current_conditions(group)
    if group.is_ready():
        if not group.is_empty:
            conditions = set_condition(conditions, group.now, "Scheduled", "True", _READY, "")
            if find_condition(conditions, "Unschedulable") is not None:
                conditions = set_condition(conditions, group.now, "Unschedulable", "False", "Scheduled", "")
        return conditions
    problem, exact = group.gang.problem, last_verdict(group)
    if problem is not None:
        reason, message = problem.code, problem.message
    elif group.verdict is not None:
        reason, message = _reason(group), group.verdict.message
    elif group.undecided or (patient and _is_full_with_terminating(group)):
        return conditions
    elif has_lost_members(group) or (group.counts.gated and _reason(group) != _NO_ROOM):
        reason, message = _reason(group), shortfall(group.gang, group.counts, group.roles)
        exact = lost_members(group)
    else:
        return conditions
    conditions = set_condition(conditions, group.now, "Unschedulable", "True", reason, message)
    if find_condition(conditions, "Scheduled") is not None:
        conditions = set_condition(conditions, group.now, "Scheduled", "False", reason, message)
    return set_condition(conditions, group.now, exact[0], *exact[1]) if exact is not None else conditions


def is_stuck(group: GroupStatusInput) -> bool:
    """Return whether some members run while the remaining minimum cannot be placed or no longer exists.

    While this is unknown, the phase that reports it stays.
    """
    if group.undecided:
        return group.phase == "Unknown" and group.counts.running > 0
    is_blocked = group.verdict is not None or group.gang.problem is not None or has_lost_members(group)
    return group.counts.running > 0 and is_blocked and not group.is_ready()


def has_lost_members(group: GroupStatusInput) -> bool:
    """Return whether members run but all existing ones cannot reach the minimum (docs/rules/coscheduling.md, 4).

    A verdict is no precondition: without a pending member there is none.
    """
    return group.counts.running > 0 and not group.is_ready() and _reason(group) != _NO_ROOM


def _is_full_with_terminating(group: GroupStatusInput) -> bool:
    """Return whether members on nodes reach the minimum, and that of each role, as long as some terminate.

    They run until they are deleted, so that Volcano (from 1.16 on) reports no change before.
    """
    counts = group.counts
    if not counts.terminating:
        return False
    scheduled = counts.succeeded + counts.bound + counts.running + counts.terminating
    return scheduled >= group.gang.min_member and not group.short_roles(
        lambda role: role.succeeded + role.bound + role.running + role.terminating
    )


_READY = "tasks in gang are ready to be scheduled"
_NO_ROOM = "NotEnoughResources"


def _phase(group: GroupStatusInput) -> str:
    if is_stuck(group) and not _is_full_with_terminating(group):
        return "Unknown"
    counts = group.counts
    complete = counts.succeeded + counts.failed
    # A terminating member has had its node, so it counts while it exists.
    scheduled = complete + counts.bound + counts.running + counts.terminating
    if scheduled >= group.gang.min_member:
        done = scheduled == complete and complete >= group.gang.stated_member
        return "Completed" if done else "Running"
    # Operators replace lost pods only while their group is past Pending. So the phase returns to it only if an
    # admission is withdrawn: then no pod is to be created.
    waits = (group.withdrawn or group.phase in ("", "Pending")) and not group.admitted
    return "Pending" if waits else "Inqueue"


def _reason(group: GroupStatusInput) -> str:
    if group.counts.present + group.counts.succeeded < group.gang.min_member:
        return "NotEnoughTasks"
    if group.short_roles(lambda counts: counts.present + counts.succeeded):
        return "NotEnoughPodsOfTask"
    return _NO_ROOM


def _enrichers(warnings: ObjectWarnings) -> Iterable[PodEnricher]:
    return (NumaEnricher(), HyperNodes(warnings))


VOLCANO_DIALECT = Dialect(
    "volcano",
    (NAMED, UNNAMED),
    (
        GroupKind(
            WantedKind(VOLCANO, "podgroups", "PodGroup", ("v1beta1",)),
            read_pod_group,
            NAMED,
            status_of,
            queue_counts=True,
            # Tools for Volcano's groups wait for this one reason.
            waiting_reason="Unschedulable",
            hypernode=ALLOCATED_HYPERNODE,
            restate=_restate,
        ),
    ),
    (AccountKind(WantedKind(VOLCANO, "queues", "Queue", ("v1beta1",)), read_queue, volcano_queue_status),),
    _enrichers,
    access=(
        AccessRule(VOLCANO, ("podgroups",), READ),
        # An annotation on the group names its HyperNode.
        AccessRule(VOLCANO, ("podgroups", "podgroups/status"), ("patch",)),
        AccessRule(VOLCANO, ("queues",), READ),
        AccessRule(VOLCANO, ("queues/status",), ("patch",)),
        # Volcano's built-in queues, created where the kind is served and they are missing.
        AccessRule(VOLCANO, ("queues",), ("create",)),
        AccessRule("nodeinfo.volcano.sh", ("numatopologies",), READ),
        AccessRule("topology.volcano.sh", ("hypernodes",), READ),
    ),
    definitions=resources.files("phalanx.dialects").joinpath("crds/volcano"),
)
