"""Members of native groups, and the replacement by annotations where a cluster does not serve them."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.core import PodObject
from phalanx.dialects.intake import Intake
from phalanx.model.gang import Gang, GangKey, GroupClaim, MatchPolicy
from phalanx.model.topology import TopologyRule

from .objects import NATIVE, NATIVE_1_36, WORKLOAD, decode, group, pod, pod_document
from .test_groups import read

KEY = GangKey("default", "g")


def member(name: str = "m", **details: Any) -> PodObject:
    return pod(name, schedulingGroup={"podGroupName": "g"}, **details)


def own(name: str = "m", **annotations: str) -> PodObject:
    return pod(
        name, annotations={f"phalanx.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    )


def gang_group(least: int = 2, **details: Any) -> dict[str, Any]:
    return group("g", schedulingPolicy={"gang": {"minCount": least}}, **details)


def gang_of(door: Intake) -> Gang:
    found = door._gangs.gang(KEY)
    assert found is not None
    return found


# Missing objects


def test_member_waits_for_its_group_whatever_the_policy() -> None:
    door = Intake(["phalanx"])
    door.pod(member())
    problem = gang_of(door).problem
    assert problem is not None
    assert (problem.code, problem.message) == ("PodGroupNotFound", "waiting for PodGroup default/g; create it")
    door.group(NATIVE, group("g", schedulingPolicy={"basic": {}}))
    assert (gang_of(door).problem, gang_of(door).min_member) == (None, 1)


def test_members_get_the_alternative_where_the_api_is_not_served() -> None:
    door = Intake(["phalanx"])
    door.pod(member())
    events = door.serves_native(False)
    assert [event.gang.key for event in events] == [KEY]  # type: ignore[union-attr]
    problem = gang_of(door).problem
    assert problem is not None
    assert "serves no PodGroup of scheduling.k8s.io" in problem.message
    assert "phalanx.dev/pod-group and phalanx.dev/min-count" in problem.message
    assert len(door.serves_native(True)) == 1
    assert gang_of(door).problem != problem


# Without the API: the same by annotations


def test_our_annotations_form_a_group_with_the_same_rules() -> None:
    door = Intake(["phalanx"])
    door.pod(own(pod_group="g", min_count="3", disruption_mode="all"))
    found = gang_of(door)
    assert (found.rules.name, found.min_member, found.unit, found.problem) == ("phalanx.dev", 3, True, None)
    assert found.match_policy is MatchPolicy.UNTIL_SCHEDULED


def test_annotation_alone_waits_for_an_object_of_any_kind() -> None:
    door = Intake(["phalanx"])
    door.pod(own(pod_group="g"))
    problem = gang_of(door).problem
    assert problem is not None
    assert problem.message == (
        "waiting for PodGroup default/g; create it, or state its size in the annotation phalanx.dev/min-count"
    )
    door.group(NATIVE, gang_group(4))
    assert (gang_of(door).min_member, gang_of(door).problem) == (4, None)


def test_disagreeing_members_by_annotation_are_refused_as_native_ones() -> None:
    door = Intake(["phalanx"])
    door.pod(own("a", pod_group="g", min_count="2"))
    other = pod(
        "b",
        annotations={"phalanx.dev/pod-group": "g", "phalanx.dev/min-count": "2"},
        schedulerName="default-scheduler",
    )
    door.pod(other)
    problem = gang_of(door).problem
    assert problem is not None
    assert problem.code == "SchedulerNameMismatch"


def test_unknown_disruption_mode_is_the_strictest() -> None:
    door = Intake(["phalanx"])
    door.pod(own(pod_group="g", min_count="1", disruption_mode="some"))
    assert gang_of(door).unit
    assert [warning.code for warning in gang_of(door).warnings] == ["InvalidDisruptionMode"]


# Priorities and preemption policies


def test_preemption_policy_of_the_group_applies_to_its_members() -> None:
    for policy, refused in (("Never", False), ("PreemptLowerPriority", True)):
        door = Intake(["phalanx"])
        door.group(NATIVE, gang_group(preemptionPolicy=policy))
        door.pod(member(preemptionPolicy="Never"))
        problem = gang_of(door).problem
        assert (problem is not None and problem.code == "PreemptionPolicyMismatch") is refused


# A group that is created again


def test_namesake_of_a_group_inherits_nothing() -> None:
    door = Intake(["phalanx"])
    door.pod(member())
    scheduled = {"conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}]}
    door.group(NATIVE, gang_group(uid="one", status=scheduled))
    assert (gang_of(door).uid, gang_of(door).once_satisfied) == ("one", True)
    door.group(NATIVE, gang_group(uid="two"))
    assert (gang_of(door).uid, gang_of(door).once_satisfied) == ("two", False)


# Ownership of the status


@pytest.mark.parametrize(
    ("members", "ours"),
    [
        ([], False),
        ([member(schedulerName="default-scheduler")], False),
        ([member()], True),
        ([member(phase="Succeeded", node="n")], True),
        ([member("a", phase="Succeeded", node="n"), member("b", schedulerName="default-scheduler")], False),
    ],
)
def test_status_of_a_group_is_written_only_while_its_members_are_ours(members: list[PodObject], ours: bool) -> None:
    door = Intake(["phalanx"])
    door.group(NATIVE, group("g", schedulingPolicy={"elastic": {}}))
    for each in members:
        door.pod(each)
    record = door.group_record(KEY)
    assert record is not None
    assert record.ours is ours


# Further fields


@pytest.mark.parametrize("resource", [NATIVE, NATIVE_1_36])
def test_topology_key_requires_one_domain_of_that_label(resource: Any) -> None:
    constraints = {"topology": [{"key": "rack"}]}
    assert read(resource, **_with(schedulingConstraints=constraints)).topology == TopologyRule(required=("rack",))


@pytest.mark.parametrize(
    "constraints",
    [
        {"topology": [{"key": "rack"}, {"key": "zone"}]},
        {"topology": [{"key": ""}]},
        {"spread": []},
        "rack",
        {"topology": 7},
    ],
)
def test_unreadable_constraints_hold_the_group(constraints: object) -> None:
    assert read(NATIVE, **_with(schedulingConstraints=constraints)).problem is not None


def test_claims_have_the_names_that_were_generated_for_them() -> None:
    claims = [
        {"name": "gpu", "resourceClaimTemplateName": "t"},
        {"name": "nic", "resourceClaimName": "shared"},
        {"name": "ib", "resourceClaimTemplateName": "u"},
    ]
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "g-gpu-x"}]}
    found = read(NATIVE, status=status, **_with(resourceClaims=claims))
    assert found.claims == (
        GroupClaim("gpu", "g-gpu-x", "t"),
        GroupClaim("nic", "shared"),
        GroupClaim("ib", "", "u"),
    )


def test_workload_behind_a_group_is_read_in_both_spellings() -> None:
    old = {"podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}}
    assert read(NATIVE_1_36, **_with(**old)).workload == "w"
    assert read(NATIVE, **_with(workloadRef={"workloadName": "w", "templateName": "t"})).workload == "w"


# Replicas of 1.35


def test_replicas_of_a_workload_are_separate_gangs() -> None:
    door = Intake(["phalanx"])
    door.group(WORKLOAD, group("job", podGroups=[{"name": "w", "policy": {"gang": {"minCount": 2}}}]))
    for replica in ("0", "1"):
        reference = {"name": "job", "podGroup": "w", "podGroupReplicaKey": replica}
        door.pod(pod(f"p{replica}", workloadRef=reference))
    gangs = [door._gangs.gang(GangKey("default", f"job/w/{replica}")) for replica in ("0", "1")]
    assert [found.min_member for found in gangs if found is not None] == [2, 2]
    assert all(found is not None and found.gang_group == () for found in gangs)


def _with(**spec: Any) -> dict[str, Any]:
    return {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec}


# Pods whose group field the API server has dropped


def test_pod_that_lost_its_group_gets_one_event_with_the_reason() -> None:
    door = Intake(["phalanx"])
    lost = pod("lost", annotations={"scheduling.k8s.io/group-template-name": "workers"})
    door.pod(lost)
    assert door.drain_warnings() == []
    door.serves_native(False)
    (notice,) = door.drain_warnings()
    assert (notice.about.name, notice.type, notice.reason) == ("lost", "Warning", "NativeGroupsNotServed")
    assert notice.message.startswith("its annotation scheduling.k8s.io/group-template-name is 'workers', but")
    assert "phalanx.dev/pod-group and phalanx.dev/min-count" in notice.message
    door.pod(lost)
    door.serves_native(False)
    assert door.drain_warnings() == []


@pytest.mark.parametrize(
    ("details", "told"),
    [
        ({"annotations": {"scheduling.k8s.io/group-template-name": "w"}}, True),
        ({"annotations": {"scheduling.k8s.io/group-template-name": "w"}, "schedulerName": "other"}, False),
        ({"annotations": {"scheduling.k8s.io/group-template-name": "w"}, "phase": "Succeeded", "node": "n"}, False),
        ({"owner": "job"}, False),
        ({}, False),
    ],
)
def test_only_our_pods_of_a_native_group_get_the_event(details: dict[str, Any], told: bool) -> None:
    door = Intake(["phalanx"])
    door.serves_native(False)
    door.pod(pod(**details))
    assert bool(door.drain_warnings()) is told


def test_pod_owned_by_a_native_group_gets_the_event_too() -> None:
    document = pod_document("lost")
    document["metadata"]["ownerReferences"] = [
        {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "u"}
    ]
    door = Intake(["phalanx"])
    door.serves_native(False)
    door.pod(decode(document))
    (notice,) = door.drain_warnings()
    assert notice.message.startswith("its owner is the PodGroup g of scheduling.k8s.io")
