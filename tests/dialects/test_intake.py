"""Intake: objects are converted to events, one per change."""

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


def test_single_pod_is_one_event() -> None:
    events = intake().pod(pod())
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).gang == ""


def test_first_member_adds_its_gang_and_the_last_one_removes_it() -> None:
    door = intake()
    assert kinds(door.pod(member("a"))) == [GangUpdated, PodUpdated]
    assert kinds(door.pod(member("b"))) == [PodUpdated]
    assert door.pod_removed("default", "a", "uid-a") == [PodRemoved("uid-a")]
    assert door.pod_removed("default", "b", "uid-b") == [PodRemoved("uid-b"), GangRemoved(G)]


def test_member_of_another_scheduler_sets_no_queue_of_the_gang() -> None:
    """Admission checks only our pods, so such a member would charge a queue that its creator is not allowed to
    use.
    """
    named = {"annotations": {"scheduling.volcano.sh/queue-name": "rich"}}
    for labels in ({NAME: "g", MIN: "1"}, {"scheduling.x-k8s.io/pod-group": "g"}):
        door = intake()
        door.group(X_K8S, group(minMember=1))
        door.pod(pod("old", labels=labels, created=EPOCH - 9, schedulerName="theirs", **named))
        events = door.pod(pod("ours", labels=labels, schedulerName="phalanx"))
        assert {event.gang.queue for event in events if isinstance(event, GangUpdated)} <= {"default"}
        events = door.pod(pod("named", labels=labels, created=EPOCH - 5, schedulerName="phalanx", **named))
        assert the_gang(events).queue == "rich"


def test_unchanged_object_is_no_event() -> None:
    door = intake()
    door.pod(member())
    door.group(SIGS, group(minMember=2))
    assert door.pod(member()) == []
    assert door.group(SIGS, group(minMember=2)) == []


def test_status_change_is_an_event_of_the_pod_only() -> None:
    door = intake()
    door.pod(member())
    events = door.pod(member(node="n1", phase="Running"))
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).phase is PodPhase.RUNNING


def test_deletion_of_an_unknown_pod_is_no_event() -> None:
    assert intake().pod_removed("default", "p", "u") == []


def test_deleted_pod_without_a_uid_is_found_by_its_name() -> None:
    door = intake()
    door.pod(pod())
    assert door.pod_removed("default", "p", "") == [PodRemoved("uid-p")]


def test_same_name_with_a_new_uid_is_another_pod() -> None:
    door = intake()
    door.pod(pod(uid="u1"))
    events = door.pod(pod(uid="u2"))
    assert kinds(events) == [PodRemoved, PodUpdated]
    assert door.pod_removed("default", "p", "u1") == []
    assert door.pod_removed("default", "p", "u2") == [PodRemoved("u2")]


def test_pod_can_move_from_gang_to_gang() -> None:
    door = intake()
    door.pod(member())
    events = door.pod(pod(labels={NAME: "other", MIN: "2"}))
    assert kinds(events) == [GangUpdated, PodUpdated, GangRemoved]
    assert the_pod(events).gang == "other"
    assert kinds(door.pod(pod())) == [PodUpdated, GangRemoved]


def test_corrected_dissenting_member_ends_the_warning() -> None:
    door = intake()
    door.pod(member("old", "3"))
    assert [warning.code for warning in the_gang(door.pod(member("young", "4", created=EPOCH + 1))).warnings] == [
        "MinAvailableMismatch"
    ]
    assert the_gang(door.pod(member("young", "3", created=EPOCH + 1))).warnings == ()


def test_finished_member_stays_until_it_is_deleted() -> None:
    door = intake()
    door.pod(member())
    events = door.pod(member(phase="Succeeded", node="n1"))
    assert the_pod(events).finished
    assert door.pod_removed("default", "p", "uid-p") == [PodRemoved("uid-p"), GangRemoved(G)]


def test_pods_of_other_schedulers_are_events_like_ours() -> None:
    assert the_pod(intake().pod(pod(schedulerName="default-scheduler", node="n1"))).scheduler == "default-scheduler"


# Pods that cannot be read


def test_pod_with_invalid_json_uses_a_slot_of_its_node() -> None:
    raw = b'{"metadata":{"name":"p"},"spec":{"nodeName" : "n1","containers":[{"na'
    events = intake().malformed_pod("default", "p", "u", "unexpected end of data", raw)
    found = the_pod(events)
    assert (found.key, found.uid, found.node) == ("default/p", "u", "n1")
    assert dict(found.usage) == {"cpu": 0}
    assert not found.preemptable
    assert found.problem == "the pod cannot be read: unexpected end of data"


def test_pod_that_becomes_unreadable_keeps_its_node_and_its_gang() -> None:
    door = intake()
    door.pod(member(node="n1", phase="Running"))
    found = the_pod(door.malformed_pod("default", "p", "uid-p", "broken", b"{"))
    assert (found.node, found.gang, found.phase) == ("n1", "g", PodPhase.RUNNING)


def test_pod_that_becomes_readable_again_is_as_before() -> None:
    door = intake()
    before = the_pod(door.pod(member(node="n1")))
    door.malformed_pod("default", "p", "", "broken", b"{")
    assert the_pod(door.pod(member(node="n1"))) == before


def test_finished_unreadable_pod_is_finished() -> None:
    raw = b'{"spec":{"nodeName":"n1"},"status":{"phase":"Failed",'
    assert the_pod(intake().malformed_pod("default", "p", "u", "broken", raw)).finished


def test_unreadable_pod_affects_no_other_pod() -> None:
    door = intake()
    door.pod(member("good"))
    events = door.pod(member("bad", containers=[container(cpu="much")]))
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).problem
    (notice,) = door.drain_warnings()
    assert (notice.about.name, notice.type, notice.reason) == ("bad", "Warning", "InvalidPod")


# Group objects


def test_object_without_pods_is_a_gang() -> None:
    found = the_gang(intake().group(X_K8S, group(minMember=4)))
    assert (found.key, found.min_member, found.uid) == (G, 4, "uid-g")


def test_added_object_overrides_the_pods_and_a_deleted_one_restores_their_declaration() -> None:
    door = intake()
    assert the_gang(door.pod(member())).min_member == 3
    assert the_gang(door.group(SIGS, group(minMember=2))).min_member == 2
    assert the_gang(door.group_removed(SIGS, "default", "g")).min_member == 3


def test_waiting_members_are_held_when_the_object_is_deleted_and_released_when_it_returns() -> None:
    door = intake()
    door.group(X_K8S, group(minMember=2))
    door.pod(pod(labels={"scheduling.x-k8s.io/pod-group": "g"}))
    held = the_gang(door.group_removed(X_K8S, "default", "g"))
    assert held.problem is not None
    assert held.problem.code == "PodGroupNotFound"
    freed = the_gang(door.group(X_K8S, group(uid="second", minMember=2)))
    assert (freed.problem, freed.uid) == (None, "second")


def test_status_change_of_a_group_is_no_event_except_for_an_admission() -> None:
    door = intake()
    door.group(X_K8S, group(minMember=2))
    assert door.group(X_K8S, group(minMember=2, status={"phase": "Scheduling", "running": 1})) == []
    assert not the_gang(door.group(VOLCANO, group("v", minMember=2))).admitted
    assert the_gang(door.group(VOLCANO, group("v", minMember=2, status={"phase": "Inqueue"}))).admitted


def test_removed_kind_removes_its_objects() -> None:
    door = intake()
    door.group(X_K8S, group("a", minMember=2))
    door.group(X_K8S, group("b", minMember=2))
    door.group(SIGS, group("b", minMember=3))
    events = door.group_kind_removed(X_K8S)
    assert kinds(events) == [GangRemoved, GangUpdated]
    assert the_gang(events).min_member == 3
    assert door.group_kind_removed(X_K8S) == []


def test_undecodable_object_holds_its_gang_until_it_is_corrected() -> None:
    door = intake()
    door.group(X_K8S, group(minMember=2))
    held = the_gang(door.malformed_group(X_K8S, "default", "g", "uid-g", "broken"))
    assert held.problem is not None
    assert held.problem.code == "InvalidPodGroup"
    assert the_gang(door.group(X_K8S, group(minMember=2))).problem is None


def test_raised_minimum_of_a_native_group_is_read_again() -> None:
    door = intake()
    door.group(NATIVE, group(schedulingPolicy={"gang": {"minCount": 2}}))
    assert the_gang(door.group(NATIVE, group(schedulingPolicy={"gang": {"minCount": 3}}))).min_member == 3


def test_replicas_of_a_workload_follow_its_policy() -> None:
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


def test_object_cannot_keep_the_gang_of_a_replica_without_members() -> None:
    """A name of three parts is a replica's; only its members declare it (found by tests/fuzz)."""
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


def test_priority_class_is_applied_to_the_gangs_that_name_it() -> None:
    door = intake()
    door.group(VOLCANO, group("a", priorityClassName="high"))
    door.group(VOLCANO, group("b", priorityClassName="low"))
    found = the_gang(door.priority_class(priority_class("high", 7)))
    assert (found.key.name, found.priority) == ("a", 7)
    assert door.priority_class(priority_class("high", 7)) == []
    assert the_gang(door.priority_class_removed("high")).priority is None
    assert door.priority_class_removed("high") == []


def test_queue_of_a_namespace_is_applied_to_its_gangs() -> None:
    door = intake()
    door.group(VOLCANO, group())
    door.group(VOLCANO, group("elsewhere", namespace="other"))
    assert the_gang(door.namespace(namespace("research"))).queue == "research"
    assert door.namespace(namespace("research")) == []
    assert the_gang(door.namespace_removed("default")).queue == "default"


# Nodes


def test_node_is_one_event_per_change() -> None:
    door = intake()
    raw = msgspec.json.encode({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "pods": "x"}}})
    assert kinds(door.node(decode_node(raw))) == [NodeUpdated]
    assert door.node(decode_node(raw)) == []
    (notice,) = door.drain_warnings()
    assert (notice.about.kind, notice.reason) == ("Node", "InvalidNode")
    assert door.node_removed("n1") == [NodeRemoved("n1")]
    assert door.node_removed("n1") == []


# Notices


def test_each_notice_is_published_once_per_change() -> None:
    door = intake()
    door.pod(member(minimum="xxx"))
    assert [notice.reason for notice in door.drain_warnings()] == ["InvalidPodGroup"]
    door.pod(member(minimum="xxx", node="n1"))
    assert door.drain_warnings() == []
    door.pod(member(minimum="yyy", node="n1"))
    assert [notice.reason for notice in door.drain_warnings()] == ["InvalidPodGroup"]


def test_notice_is_about_the_object_that_the_user_created() -> None:
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


def test_notice_about_a_dissenting_member_is_on_that_pod() -> None:
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
def test_empty_name_of_a_group_is_one_warning_and_the_pod_is_single(said: dict[str, Any]) -> None:
    door = intake()
    found = the_pod(door.pod(pod(**said)))
    assert found.gang == ""
    (notice,) = door.drain_warnings()
    assert (notice.type, notice.reason, notice.about.name) == ("Warning", "InvalidPodGroup", "p")
    assert "is empty, so the pod belongs to no group and is scheduled on its own" in notice.message
    door.pod(pod(**said))
    door.pod(pod(**said, node="n1"))
    assert door.drain_warnings() == []


def test_empty_name_beside_another_one_is_no_fault() -> None:
    door = intake()
    door.group(X_K8S, group("a", minMember=1))
    door.pod(pod(labels={"scheduling.x-k8s.io/pod-group": "a", NAME: ""}))
    assert door.drain_warnings() == []


def test_malformed_scoring_override_is_one_warning() -> None:
    door = intake()
    annotations = {"volcano.sh/resource-strategy-scoring-type": "Random"}
    found = the_pod(door.pod(pod(annotations=annotations)))
    assert found.problem == ""
    door.pod(pod(annotations=annotations, node="n1"))
    assert [notice.reason for notice in door.drain_warnings()] == ["InvalidAnnotation"]


# Options


def test_invalid_minimum_can_mean_a_single_pod_as_in_0_18_9() -> None:
    events = intake(legacy_invalid_min="regular").pod(member(minimum="xxx"))
    assert kinds(events) == [PodUpdated]
    assert the_pod(events).gang == ""
    assert the_gang(intake(legacy_invalid_min="regular").pod(member(minimum="3"))).min_member == 3


# Source of the status of an object


def test_record_of_a_gangs_own_object_has_its_status() -> None:
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
def test_status_of_a_group_with_foreign_members_only_is_not_written(schedulers: list[str], ours: bool) -> None:
    door = intake()
    door.group(SIGS, group(minMember=2))
    for scheduler in schedulers:
        door.pod(member(f"p-{scheduler}", schedulerName=scheduler))
    record = door.group_record(G)
    assert record is not None
    assert record.ours is ours


def test_units_in_a_namespace_under_deletion_do_not_wait() -> None:
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
