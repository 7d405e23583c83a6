"""Kueue's plain pod groups, distinct from Kueue's own objects and from native groups."""

from __future__ import annotations

from typing import Any

from phalanx.daemon.served import has_native_groups, served_groups
from phalanx.dialects.core import PodObject
from phalanx.dialects.families.kueue import FAST_ADMISSION, GROUP_NAME, TOTAL_COUNT
from phalanx.dialects.intake import Intake
from phalanx.kube.discovery import Discovery, ServedResource
from phalanx.kube.paths import Resource
from phalanx.model.events import PodUpdated
from phalanx.model.gang import Gang, GangKey, MatchPolicy
from tests.dialects.objects import X_K8S, declare, decode, group, pod, pod_document

KEY = GangKey("default", "g")


def member(name: str = "m", total: str = "3", **details: Any) -> PodObject:
    annotations = {TOTAL_COUNT: total} if total else {}
    return pod(name, labels={GROUP_NAME: "g"}, annotations=annotations | details.pop("annotations", {}), **details)


def gang_of(door: Intake) -> Gang:
    found = door._gangs.gang(KEY)
    assert found is not None
    return found


def test_all_pods_of_a_kueue_group_start_together_and_replacements_at_once() -> None:
    door = Intake(["phalanx"])
    door.pod(member())
    found = gang_of(door)
    assert (found.min_member, found.problem, found.source) == (3, None, None)
    assert found.match_policy is MatchPolicy.UNTIL_SCHEDULED
    assert (found.rules.name, found.rules.native, found.rules.alone) == ("kueue.x-k8s.io", False, False)


def test_kueue_group_without_a_size_is_held_with_a_fix() -> None:
    door = Intake(["phalanx"])
    door.pod(member(total=""))
    problem = gang_of(door).problem
    assert problem is not None
    assert problem.message == (
        "the pods of group default/g do not say how many they are; write the annotation "
        'kueue.x-k8s.io/pod-group-total-count, such as "3"'
    )


def test_invalid_size_holds_the_kueue_group() -> None:
    door = Intake(["phalanx"])
    door.pod(member(total="many"))
    problem = gang_of(door).problem
    assert problem is not None
    assert problem.message.startswith(f"pod default/m: annotation {TOTAL_COUNT} is 'many'")


def test_pods_of_a_kueue_group_admitted_with_its_first_member_are_single() -> None:
    assert declare(member(annotations={FAST_ADMISSION: "true"})) is None
    assert declare(member(annotations={FAST_ADMISSION: "false"})) is not None


def test_kueue_size_is_no_minimum_of_a_gang_named_by_another_key() -> None:
    labels = {GROUP_NAME: "g", "scheduling.x-k8s.io/pod-group": "other"}
    found = declare(pod(labels=labels, annotations={TOTAL_COUNT: "3"}))
    assert found is not None
    assert (found.name, found.minimum) == ("other", None)
    assert [stated.value for stated in found.conflicts] == ["g"]


def test_pods_that_kueue_has_not_admitted_are_gated_members() -> None:
    door = Intake(["phalanx"])
    events = door.pod(member(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]))
    (told,) = [event.pod for event in events if isinstance(event, PodUpdated)]
    assert (told.gang, told.gated) == ("g", True)


def test_object_with_the_name_of_a_kueue_group_applies_as_for_every_gang() -> None:
    door = Intake(["phalanx"])
    door.pod(member())
    door.group(X_K8S, group("g", minMember=2))
    assert gang_of(door).min_member == 2


# Kueue's Workload is another kind than that of Kubernetes


def test_workload_of_kueue_is_no_workload_of_kubernetes() -> None:
    door = Intake(["phalanx"])
    kueues = [
        ServedResource(Resource("kueue.x-k8s.io", version, "workloads", "Workload"))
        for version in ("v1beta1", "v1alpha1")
    ]
    served = Discovery(tuple(kueues))
    assert served_groups(served, door) == []
    assert not has_native_groups(served, door)


def test_pod_owned_by_a_workload_of_kueue_has_lost_no_group() -> None:
    door = Intake(["phalanx"])
    document = pod_document()
    document["metadata"]["ownerReferences"] = [
        {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Workload", "name": "g", "uid": "uid-w"}
    ]
    door.serves_native(False)
    door.pod(decode(document))
    assert door.drain_warnings() == []
