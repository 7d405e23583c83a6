"""Gang declarations of single pods (docs/rules/coscheduling.md, 1.1)."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.dialects.gangs.declaration import Declaration, role_of
from phalanx.dialects.gangs.extras import Stated
from phalanx.dialects.pods.ranks import index_of
from tests.dialects.objects import declare, pod


def declaration(**details: Any) -> Declaration:
    found = declare(pod(**details))
    assert found is not None
    return found


D3_NAME, D3_MIN = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
ALIAS_NAME, ALIAS_MIN = "pod-group.scheduling.x-k8s.io/name", "pod-group.scheduling.x-k8s.io/min-available"
D6_NAME, D6_MIN = "gang.scheduling.koordinator.sh/name", "gang.scheduling.koordinator.sh/min-available"

# Each way, weakest first; the last column is the place of the declaration on the pod.
WAYS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "D1": ("kube-batch", "", {"annotations": {"scheduling.k8s.io/group-name": "d1"}}),
    "D6": ("gang.scheduling.koordinator.sh", "4", {"annotations": {D6_NAME: "d6", D6_MIN: "4"}}),
    "D2": ("pod-group", "3", {"labels": {"pod-group/name": "d2", "pod-group/min-available": "3"}}),
    "D3'": ("pod-group.scheduling.sigs.k8s.io", "5", {"labels": {ALIAS_NAME: "d3'", ALIAS_MIN: "5"}}),
    "D3": ("pod-group.scheduling.sigs.k8s.io", "2", {"labels": {D3_NAME: "d3", D3_MIN: "2"}}),
    "D4": ("scheduling.sigs.k8s.io", "", {"labels": {"pod-group.scheduling.sigs.k8s.io": "d4"}}),
    "D5": ("scheduling.x-k8s.io", "", {"labels": {"scheduling.x-k8s.io/pod-group": "d5"}}),
    "D7": ("native", "", {"schedulingGroup": {"podGroupName": "d7"}}),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_name_a_gang_is_read(way: str) -> None:
    dialect, minimum, details = WAYS[way]
    found = declaration(**details)
    assert (found.naming.rules.name, found.name) == (dialect, way.lower())
    assert (found.minimum.value if found.minimum else "") == minimum
    assert found.conflicts == ()


@pytest.mark.parametrize(("weaker", "stronger"), list(zip(list(WAYS)[:-1], list(WAYS)[1:], strict=True)))
def test_rule_1_stronger_name_applies_and_the_weaker_is_a_conflict(weaker: str, stronger: str) -> None:
    details: dict[str, Any] = {"labels": {}, "annotations": {}}
    for way in (weaker, stronger):
        for field, values in WAYS[way][2].items():
            details[field] = {**details.get(field, {}), **values}
    found = declaration(**details)
    assert found.name == stronger.lower()
    assert [stated.value for stated in found.conflicts] == [weaker.lower()]


def test_rule_1_equal_names_are_no_conflict() -> None:
    found = declaration(labels={"scheduling.x-k8s.io/pod-group": "g"}, annotations={D6_NAME: "g", D6_MIN: "3"})
    assert found.conflicts == ()
    assert found.minimum == Stated(f"annotation {D6_MIN}", "3")


def test_rule_1_empty_name_is_no_name() -> None:
    assert declare(pod(labels={"scheduling.x-k8s.io/pod-group": "", D3_NAME: ""})) is None
    assert (
        declaration(labels={"scheduling.x-k8s.io/pod-group": "", D3_NAME: "g"}).naming.rules.name
        == "pod-group.scheduling.sigs.k8s.io"
    )


def test_rule_3_label_takes_precedence_over_the_annotation() -> None:
    found = declaration(labels={D3_NAME: "g", D3_MIN: "2"}, annotations={D6_MIN: "5"})
    assert found.minimum == Stated(f"label {D3_MIN}", "2")


def test_rule_3_minimum_beside_another_name_belongs_to_that_gang() -> None:
    found = declaration(labels={"scheduling.x-k8s.io/pod-group": "a"}, annotations={D6_NAME: "b", D6_MIN: "5"})
    assert (found.name, found.minimum) == ("a", None)


def test_pod_without_a_declaration_is_single() -> None:
    assert declare(pod(labels={"app": "web"}, annotations={"note": "x"})) is None


def test_workload_of_1_35_names_a_gang_per_replica() -> None:
    whole = {"name": "job", "podGroup": "workers", "podGroupReplicaKey": "7"}
    assert declaration(workloadRef=whole).name == "job/workers/7"
    assert declaration(workloadRef={"name": "job", "podGroup": "workers"}).name == "job/workers"


@pytest.mark.parametrize("key", ["scheduling.k8s.io/group-min-member", "scheduling.volcano.sh/group-min-member"])
def test_d9_pods_without_a_name_are_grouped_by_their_controller(key: str) -> None:
    found = declaration(owner="job", annotations={key: "3"})
    assert (found.naming.rules.name, found.name) == ("shadow", "uid-job")
    assert found.minimum == Stated(f"annotation {key}", "3")


def test_d9_pod_without_a_controller_is_a_group_of_its_own() -> None:
    assert declaration(uid="u1", annotations={"scheduling.k8s.io/group-min-member": "3"}).name == "u1"


def test_d9_applies_only_without_a_group_name() -> None:
    annotations = {"scheduling.k8s.io/group-min-member": "3", "scheduling.k8s.io/group-name": "g"}
    found = declaration(annotations=annotations)
    assert (found.naming.rules.name, found.name, found.minimum) == ("kube-batch", "g", None)


ACK_GROUPS, KO_GROUPS = "pod-group.scheduling.sigs.k8s.io/groups", "gang.scheduling.koordinator.sh/groups"


@pytest.mark.parametrize("place", ["labels", "annotations"])
@pytest.mark.parametrize("key", [ACK_GROUPS, KO_GROUPS])
def test_extras_are_read_from_labels_and_annotations_alike(place: str, key: str) -> None:
    details: dict[str, Any] = {"labels": {D3_NAME: "g"}, "annotations": {}}
    details[place][key] = '["a/b"]'
    assert declaration(**details).extras.groups == Stated(f"{place[:-1]} {key}", '["a/b"]')


def test_extras_annotation_precedes_the_label_and_koordinators_key_precedes_acks() -> None:
    found = declaration(labels={D3_NAME: "g", KO_GROUPS: "1", ACK_GROUPS: "2"}, annotations={ACK_GROUPS: "3"})
    assert found.extras.groups == Stated(f"label {KO_GROUPS}", "1")


def test_role_queue_and_index_are_read() -> None:
    read = pod(
        labels={"volcano.sh/task-spec": "label-role", "volcano.sh/task-index": "4"},
        annotations={
            "volcano.sh/task-spec": "worker",
            "scheduling.k8s.io/group-name": "g",
            "scheduling.volcano.sh/queue-name": "research",
        },
    )
    assert role_of(read.metadata) == "worker"
    assert index_of(read.metadata) == 4
    found = declare(read)
    assert found is not None
    assert found.queue == Stated("annotation scheduling.volcano.sh/queue-name", "research")


@pytest.mark.parametrize("text", ["", "first", "-1", "1.5", "9" * 40, "٣"])
def test_pod_without_a_readable_index_is_last(text: str) -> None:
    annotations = {"gang.scheduling.koordinator.sh/network-topology-index": text}
    assert index_of(pod(annotations=annotations).metadata) == 2**31


def test_rank_in_the_topology_precedes_the_task_index() -> None:
    annotations = {"gang.scheduling.koordinator.sh/network-topology-index": "2", "volcano.sh/task-index": "9"}
    assert index_of(pod(annotations=annotations).metadata) == 2
