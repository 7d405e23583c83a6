"""The door in: objects become facts, once per change."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import NamespaceObject, PriorityClassObject, decode_namespace, decode_node
from phalanx.dialects.core import decode_priority_class as decode_class
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.model.events import (
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import Pod, PodPhase
from tests.dialects.objects import EPOCH, NATIVE, SIGS, VOLCANO, WORKLOAD, X_K8S, container, group, pod

NAME, MIN = "pod-group.scheduling.sigs.k8s.io/name", "pod-group.scheduling.sigs.k8s.io/min-available"
G = GangKey("default", "g")


def intake(**options: Any) -> Intake:
    return Intake(["phalanx"], DialectOptions(**options))


def member(name: str = "p", minimum: str = "3", **details: Any) -> Any:
    return pod(name, labels={NAME: "g", MIN: minimum}, **details)


def the_pod(events: list[ClusterEvent]) -> Pod:
    (found,) = [event.pod for event in events if isinstance(event, PodUpdated)]
    return found


def the_gang(events: list[ClusterEvent]) -> Gang:
    (found,) = [event.gang for event in events if isinstance(event, GangUpdated)]
    return found


def kinds(events: list[ClusterEvent]) -> list[type[ClusterEvent]]:
    return [type(event) for event in events]


# Pods


def test_a_pod_on_its_own_is_one_fact() -> None:
    events = intake().pod(pod())
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).gang == ""


def test_the_first_member_brings_its_gang_and_the_last_one_takes_it_away() -> None:
    door = intake()
    assert kinds(door.pod(member("a"))) == [GangUpdated, PodUpdated]
    assert kinds(door.pod(member("b"))) == [PodUpdated]
    assert door.pod_removed("default", "a", "uid-a") == [PodRemoved("uid-a")]
    assert door.pod_removed("default", "b", "uid-b") == [PodRemoved("uid-b"), GangRemoved(G)]


def test_a_member_that_another_scheduler_places_says_no_queue_for_the_gang() -> None:
    """Admission asks about pods of ours alone, so its word would charge a queue that nobody let its maker use."""
    named = {"annotations": {"scheduling.volcano.sh/queue-name": "rich"}}
    for labels in ({NAME: "g", MIN: "1"}, {"scheduling.x-k8s.io/pod-group": "g"}):
        door = intake()
        door.group(X_K8S, group(minMember=1))
        door.pod(pod("old", labels=labels, created=EPOCH - 9, schedulerName="theirs", **named))
        events = door.pod(pod("ours", labels=labels, schedulerName="phalanx"))
        assert {event.gang.queue for event in events if isinstance(event, GangUpdated)} <= {"default"}
        events = door.pod(pod("named", labels=labels, created=EPOCH - 5, schedulerName="phalanx", **named))
        assert the_gang(events).queue == "rich"


def test_an_object_seen_twice_is_no_news() -> None:
    door = intake()
    door.pod(member())
    door.group(SIGS, group(minMember=2))
    assert door.pod(member()) == []
    assert door.group(SIGS, group(minMember=2)) == []


def test_a_change_in_status_is_news_of_the_pod_alone() -> None:
    door = intake()
    door.pod(member())
    events = door.pod(member(node="n1", phase="Running"))
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).phase is PodPhase.RUNNING


def test_a_pod_that_is_not_known_and_goes_is_no_news() -> None:
    assert intake().pod_removed("default", "p", "u") == []


def test_a_pod_that_goes_is_found_by_its_name_where_the_uid_was_not_told() -> None:
    door = intake()
    door.pod(pod())
    assert door.pod_removed("default", "p", "") == [PodRemoved("uid-p")]


def test_the_same_name_with_a_new_uid_is_another_pod() -> None:
    door = intake()
    door.pod(pod(uid="u1"))
    events = door.pod(pod(uid="u2"))
    assert kinds(events) == [PodRemoved, PodUpdated]
    assert door.pod_removed("default", "p", "u1") == []
    assert door.pod_removed("default", "p", "u2") == [PodRemoved("u2")]


def test_a_pod_can_move_from_gang_to_gang() -> None:
    door = intake()
    door.pod(member())
    events = door.pod(pod(labels={NAME: "other", MIN: "2"}))
    assert kinds(events) == [GangUpdated, PodUpdated, GangRemoved]
    assert the_pod(events).gang == "other"
    assert kinds(door.pod(pod())) == [PodUpdated, GangRemoved]


def test_a_dissenter_that_falls_in_with_the_rest_ends_the_warning() -> None:
    door = intake()
    door.pod(member("old", "3"))
    assert [warning.code for warning in the_gang(door.pod(member("young", "4", created=EPOCH + 1))).warnings] == [
        "MinAvailableMismatch"
    ]
    assert the_gang(door.pod(member("young", "3", created=EPOCH + 1))).warnings == ()


def test_a_finished_member_stays_until_it_is_deleted() -> None:
    door = intake()
    door.pod(member())
    events = door.pod(member(phase="Succeeded", node="n1"))
    assert the_pod(events).finished
    assert door.pod_removed("default", "p", "uid-p") == [PodRemoved("uid-p"), GangRemoved(G)]


def test_foreign_pods_are_told_like_all_others() -> None:
    assert the_pod(intake().pod(pod(schedulerName="default-scheduler", node="n1"))).scheduler == "default-scheduler"


# Pods that cannot be read


def test_a_pod_whose_json_is_broken_takes_a_slot_of_its_node() -> None:
    raw = b'{"metadata":{"name":"p"},"spec":{"nodeName" : "n1","containers":[{"na'
    events = intake().malformed_pod("default", "p", "u", "unexpected end of data", raw)
    found = the_pod(events)
    assert (found.key, found.uid, found.node) == ("default/p", "u", "n1")
    assert dict(found.usage) == {"cpu": 0}
    assert not found.preemptable
    assert found.problem == "the pod cannot be read: unexpected end of data"


def test_a_pod_that_becomes_unreadable_keeps_its_node_and_its_gang() -> None:
    door = intake()
    door.pod(member(node="n1", phase="Running"))
    found = the_pod(door.malformed_pod("default", "p", "uid-p", "broken", b"{"))
    assert (found.node, found.gang, found.phase) == ("n1", "g", PodPhase.RUNNING)


def test_a_pod_that_becomes_readable_again_is_as_before() -> None:
    door = intake()
    before = the_pod(door.pod(member(node="n1")))
    door.malformed_pod("default", "p", "", "broken", b"{")
    assert the_pod(door.pod(member(node="n1"))) == before


def test_a_broken_pod_that_is_finished_says_so() -> None:
    raw = b'{"spec":{"nodeName":"n1"},"status":{"phase":"Failed",'
    assert the_pod(intake().malformed_pod("default", "p", "u", "broken", raw)).finished


def test_one_bad_pod_harms_only_itself() -> None:
    door = intake()
    door.pod(member("good"))
    events = door.pod(member("bad", containers=[container(cpu="much")]))
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).problem
    (notice,) = door.drain_warnings()
    assert (notice.about.name, notice.type, notice.reason) == ("bad", "Warning", "InvalidPod")


# Group objects


def test_an_object_alone_is_a_gang() -> None:
    found = the_gang(intake().group(X_K8S, group(minMember=4)))
    assert (found.key, found.min_member, found.uid) == (G, 4, "uid-g")


def test_an_object_that_appears_takes_over_and_one_that_goes_leaves_the_pods_word() -> None:
    door = intake()
    assert the_gang(door.pod(member())).min_member == 3
    assert the_gang(door.group(SIGS, group(minMember=2))).min_member == 2
    assert the_gang(door.group_removed(SIGS, "default", "g")).min_member == 3


def test_the_rest_is_held_when_the_object_goes_and_freed_when_it_comes_back() -> None:
    door = intake()
    door.group(X_K8S, group(minMember=2))
    door.pod(pod(labels={"scheduling.x-k8s.io/pod-group": "g"}))
    held = the_gang(door.group_removed(X_K8S, "default", "g"))
    assert held.problem is not None
    assert held.problem.code == "PodGroupNotFound"
    freed = the_gang(door.group(X_K8S, group(uid="second", minMember=2)))
    assert (freed.problem, freed.uid) == (None, "second")


def test_a_status_that_changes_is_no_news_except_where_it_admits() -> None:
    door = intake()
    door.group(X_K8S, group(minMember=2))
    assert door.group(X_K8S, group(minMember=2, status={"phase": "Scheduling", "running": 1})) == []
    assert not the_gang(door.group(VOLCANO, group("v", minMember=2))).admitted
    assert the_gang(door.group(VOLCANO, group("v", minMember=2, status={"phase": "Inqueue"}))).admitted


def test_a_kind_that_vanishes_takes_its_objects_with_it() -> None:
    door = intake()
    door.group(X_K8S, group("a", minMember=2))
    door.group(X_K8S, group("b", minMember=2))
    door.group(SIGS, group("b", minMember=3))
    events = door.group_kind_removed(X_K8S)
    assert kinds(events) == [GangRemoved, GangUpdated]
    assert the_gang(events).min_member == 3
    assert door.group_kind_removed(X_K8S) == []


def test_an_object_that_cannot_be_decoded_holds_its_gang_until_it_can() -> None:
    door = intake()
    door.group(X_K8S, group(minMember=2))
    held = the_gang(door.malformed_group(X_K8S, "default", "g", "uid-g", "broken"))
    assert held.problem is not None
    assert held.problem.code == "InvalidPodGroup"
    assert the_gang(door.group(X_K8S, group(minMember=2))).problem is None


def test_a_raised_minimum_of_a_native_group_is_read_again() -> None:
    door = intake()
    door.group(NATIVE, group(schedulingPolicy={"gang": {"minCount": 2}}))
    assert the_gang(door.group(NATIVE, group(schedulingPolicy={"gang": {"minCount": 3}}))).min_member == 3


def test_the_replicas_of_a_workload_follow_its_policy() -> None:
    door = intake()
    ref = {"name": "job", "podGroup": "w"}
    for replica in "12":
        door.pod(pod(f"p{replica}", workloadRef={**ref, "podGroupReplicaKey": replica}))
    events = door.group(WORKLOAD, group("job", podGroups=[{"name": "w", "policy": {"gang": {"minCount": 2}}}]))
    gangs = [event.gang for event in events if isinstance(event, GangUpdated)]
    assert [(found.key.name, found.min_member, found.problem) for found in gangs] == [
        ("job/w", 2, None),
        ("job/w/1", 2, None),
        ("job/w/2", 2, None),
    ]
    assert door.pod_removed("default", "p1", "uid-p1") == [
        PodRemoved("uid-p1"),
        GangRemoved(GangKey("default", "job/w/1")),
    ]


def test_an_object_cannot_keep_the_gang_of_a_replica_that_nobody_is_in_any_more() -> None:
    """A name of three parts is a replica's; nothing declares it but its members (found by tests/fuzz)."""
    door = intake()
    labels = {NAME: "job/w/1", MIN: "1"}
    door.pod(pod("p", labels=labels))
    assert door.group(SIGS, group("job/w/1", minMember=1)) == []
    assert GangRemoved(GangKey("default", "job/w/1")) in door.pod(pod("p"))
    assert door.group_removed(SIGS, "default", "job/w/1") == []


# Surroundings


def priority_class(name: str, value: int) -> PriorityClassObject:
    return decode_class(msgspec.json.encode({"metadata": {"name": name}, "value": value}))


def namespace(queue: str) -> NamespaceObject:
    annotations = {"scheduling.volcano.sh/queue-name": queue}
    return decode_namespace(msgspec.json.encode({"metadata": {"name": "default", "annotations": annotations}}))


def test_a_priority_class_reaches_the_gangs_that_name_it() -> None:
    door = intake()
    door.group(VOLCANO, group("a", priorityClassName="high"))
    door.group(VOLCANO, group("b", priorityClassName="low"))
    found = the_gang(door.priority_class(priority_class("high", 7)))
    assert (found.key.name, found.priority) == ("a", 7)
    assert door.priority_class(priority_class("high", 7)) == []
    assert the_gang(door.priority_class_removed("high")).priority is None
    assert door.priority_class_removed("high") == []


def test_the_queue_of_a_namespace_reaches_its_gangs() -> None:
    door = intake()
    door.group(VOLCANO, group())
    door.group(VOLCANO, group("elsewhere", namespace="other"))
    assert the_gang(door.namespace(namespace("research"))).queue == "research"
    assert door.namespace(namespace("research")) == []
    assert the_gang(door.namespace_removed("default")).queue == "default"


# Nodes


def test_nodes_are_told_once_per_change() -> None:
    door = intake()
    raw = msgspec.json.encode({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "pods": "x"}}})
    assert kinds(door.node(decode_node(raw))) == [NodeUpdated]
    assert door.node(decode_node(raw)) == []
    (notice,) = door.drain_warnings()
    assert (notice.about.kind, notice.reason) == ("Node", "InvalidNode")
    assert door.node_removed("n1") == [NodeRemoved("n1")]
    assert door.node_removed("n1") == []


# Notices


def test_each_thing_is_said_once_per_change() -> None:
    door = intake()
    door.pod(member(minimum="xxx"))
    assert [notice.reason for notice in door.drain_warnings()] == ["InvalidPodGroup"]
    door.pod(member(minimum="xxx", node="n1"))
    assert door.drain_warnings() == []
    door.pod(member(minimum="yyy", node="n1"))
    assert [notice.reason for notice in door.drain_warnings()] == ["InvalidPodGroup"]


def test_a_notice_is_about_the_object_that_the_user_made() -> None:
    door = intake()
    door.pod(pod(labels={"scheduling.x-k8s.io/pod-group": "g"}))
    (missing,) = door.drain_warnings()
    assert (missing.about.kind, missing.about.name, missing.reason) == ("Pod", "p", "PodGroupNotFound")
    door.group(X_K8S, group(minMember=-1))
    (bad,) = door.drain_warnings()
    assert (bad.about.api_version, bad.about.kind, bad.about.name) == (
        "scheduling.x-k8s.io/v1alpha1",
        "PodGroup",
        "g",
    )


def test_a_notice_about_a_dissenter_goes_to_that_pod() -> None:
    door = intake()
    door.group(SIGS, group(minMember=3))
    door.pod(member("good"))
    door.pod(member("odd", "4"))
    (notice,) = door.drain_warnings()
    assert (notice.about.kind, notice.about.name, notice.reason) == ("Pod", "odd", "MinAvailableMismatch")


def test_two_names_on_one_pod_are_one_warning() -> None:
    door = intake()
    labels = {"scheduling.x-k8s.io/pod-group": "a", NAME: "b", MIN: "2"}
    door.group(X_K8S, group("a", minMember=1))
    found = the_pod(door.pod(pod(labels=labels)))
    assert found.gang == "a"
    (notice,) = door.drain_warnings()
    assert (notice.reason, notice.about.name) == ("ConflictingGangDeclaration", "p")
    assert f"label {NAME} 'b'" in notice.message
    door.pod(pod(labels=labels, node="n1"))
    assert door.drain_warnings() == []


@pytest.mark.parametrize(
    "said",
    [{"annotations": {"scheduling.k8s.io/group-name": ""}}, {"labels": {NAME: "", MIN: "3"}}],
    ids=["annotation", "label"],
)
def test_an_empty_name_of_a_group_is_one_warning_and_the_pod_is_on_its_own(said: dict[str, Any]) -> None:
    door = intake()
    found = the_pod(door.pod(pod(**said)))
    assert found.gang == ""
    (notice,) = door.drain_warnings()
    assert (notice.type, notice.reason, notice.about.name) == ("Warning", "InvalidPodGroup", "p")
    assert "is empty, so the pod belongs to no group and is scheduled on its own" in notice.message
    door.pod(pod(**said))
    door.pod(pod(**said, node="n1"))
    assert door.drain_warnings() == []


def test_an_empty_name_beside_another_one_is_nobodys_mistake() -> None:
    door = intake()
    door.group(X_K8S, group("a", minMember=1))
    door.pod(pod(labels={"scheduling.x-k8s.io/pod-group": "a", NAME: ""}))
    assert door.drain_warnings() == []


def test_a_malformed_scoring_wish_is_one_warning() -> None:
    door = intake()
    annotations = {"volcano.sh/resource-strategy-scoring-type": "Random"}
    found = the_pod(door.pod(pod(annotations=annotations)))
    assert found.problem == ""
    door.pod(pod(annotations=annotations, node="n1"))
    assert [notice.reason for notice in door.drain_warnings()] == ["InvalidAnnotation"]


# Options


def test_an_invalid_minimum_can_mean_a_regular_pod_as_it_did_in_0_18_9() -> None:
    events = intake(legacy_invalid_min="regular").pod(member(minimum="xxx"))
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).gang == ""
    assert the_gang(intake(legacy_invalid_min="regular").pod(member(minimum="3"))).min_member == 3


# What the status of an object is made from


def test_the_record_of_a_gangs_own_object() -> None:
    door = intake()
    assert door.group_record(G) is None
    door.pod(member("young", owner="late", created=EPOCH + 5))
    assert door.group_record(G) is None
    door.pod(member("old", owner="job"))
    document = group(minMember=2, status={"phase": "Scheduling"})
    document["metadata"]["generation"] = 4
    door.group(SIGS, document)
    record = door.group_record(G)
    assert record is not None
    assert (record.ref.group, record.status, record.occupied_by, record.ours) == (
        "scheduling.sigs.k8s.io",
        {"phase": "Scheduling"},
        "default/job",
        True,
    )
    assert record.generation == 4


@pytest.mark.parametrize(
    ("schedulers", "ours"),
    [([], True), (["phalanx"], True), (["phalanx", "other"], True), (["other"], False)],
)
def test_a_group_whose_members_are_all_foreign_is_not_ours_to_write(schedulers: list[str], ours: bool) -> None:
    door = intake()
    door.group(SIGS, group(minMember=2))
    for scheduler in schedulers:
        door.pod(member(f"p-{scheduler}", schedulerName=scheduler))
    record = door.group_record(G)
    assert record is not None
    assert record.ours is ours


def test_what_waits_in_a_namespace_that_is_being_deleted_waits_for_nothing() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("waits"))
    door.pod(pod("runs", node="n1"))
    ending = decode_namespace(
        b'{"metadata":{"name":"default","deletionTimestamp":"2026-01-01T00:00:00Z"},"status":{"phase":"Terminating"}}'
    )
    assert [(event.pod.name, event.pod.gated) for event in pods_of(door.namespace(ending))] == [("waits", True)]
    assert door.namespace(ending) == []
    (late,) = pods_of(door.pod(pod("late")))
    assert late.pod.gated
    door.namespace_removed("default")
    (next_life,) = pods_of(door.pod(pod("another")))
    assert not next_life.pod.gated


def pods_of(events: list[ClusterEvent]) -> list[PodUpdated]:
    return [event for event in events if isinstance(event, PodUpdated)]
