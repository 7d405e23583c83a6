"""Whom a pod is charged to: its queue, its quota, its user; and how long a group may wait."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import NamespaceObject, decode_namespace
from phalanx.dialects.intake import Intake
from phalanx.dialects.options import DialectOptions
from phalanx.model.events import ClusterEvent, GangUpdated, PodUpdated
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod
from tests.dialects.objects import VOLCANO, group, pod

QUEUE = "scheduling.volcano.sh/queue-name"


def intake(**options: Any) -> Intake:
    return Intake(["phalanx"], DialectOptions(**options))


def namespace(queue: str, name: str = "default") -> NamespaceObject:
    return decode_namespace(msgspec.json.encode({"metadata": {"name": name, "annotations": {QUEUE: queue}}}))


def pods(events: list[ClusterEvent]) -> list[Pod]:
    return [event.pod for event in events if isinstance(event, PodUpdated)]


def the_pod(**details: Any) -> Pod:
    (found,) = pods(intake().pod(pod(**details)))
    return found


def the_gang(events: list[ClusterEvent]) -> Gang:
    (found,) = [event.gang for event in events if isinstance(event, GangUpdated)]
    return found


def test_a_lone_pod_names_its_queue_by_annotation_or_label() -> None:
    assert the_pod().queue == "default"
    assert the_pod(annotations={QUEUE: "a"}).queue == "a"
    assert the_pod(labels={QUEUE: "b"}).queue == "b"
    assert the_pod(annotations={QUEUE: "a"}, labels={QUEUE: "b"}).queue == "a"


def test_a_lone_pod_without_a_word_goes_where_its_namespace_says() -> None:
    door = intake()
    door.namespace(namespace("research"))
    assert pods(door.pod(pod("silent")))[0].queue == "research"
    assert pods(door.pod(pod("outspoken", annotations={QUEUE: "own"})))[0].queue == "own"
    assert pods(door.pod(pod("elsewhere", namespace="other")))[0].queue == "default"


def test_a_change_of_the_namespace_reaches_the_pods_that_follow_it() -> None:
    door = intake()
    for name in ("b", "a"):
        door.pod(pod(name))
    door.pod(pod("outspoken", annotations={QUEUE: "own"}))
    door.pod(pod("elsewhere", namespace="other"))
    told = pods(door.namespace(namespace("research")))
    assert [(found.name, found.queue) for found in told] == [("a", "research"), ("b", "research")]
    assert door.namespace(namespace("research")) == []
    door.pod_removed("default", "a", "uid-a")
    assert [found.key for found in pods(door.namespace_removed("default"))] == ["default/b"]


def test_a_pod_that_starts_to_name_a_queue_follows_no_longer() -> None:
    door = intake()
    door.pod(pod())
    door.pod(pod(annotations={QUEUE: "own"}))
    assert door.namespace(namespace("research")) == []


def test_a_member_is_in_its_gangs_queue() -> None:
    door = intake()
    member = pod(annotations={"scheduling.k8s.io/group-name": "g"}, labels={QUEUE: "b"})
    events = door.pod(member)
    assert (the_gang(events).queue, pods(events)[0].queue) == ("b", "default")
    assert pods(door.namespace(namespace("research"))) == []


def test_koordinators_labels_name_the_quota_and_the_firmness() -> None:
    prefix = "quota.scheduling.koordinator.sh"
    found = the_pod(labels={f"{prefix}/name": "team-a", f"{prefix}/preemptible": "false"})
    assert (found.quota, found.firm) == ("team-a", True)
    assert (the_pod().quota, the_pod().firm) == ("", False)
    assert not the_pod(labels={f"{prefix}/preemptible": "true"}).firm


def test_the_user_stands_where_the_operator_says() -> None:
    alice = pod(labels={"user": "alice"}, annotations={"owner": "bob"})
    assert pods(intake().pod(alice))[0].user == ""
    assert pods(intake(user_label="user").pod(alice))[0].user == "alice"
    assert pods(intake(user_annotation="owner").pod(alice))[0].user == "bob"
    assert pods(intake(user_label="user", user_annotation="owner").pod(alice))[0].user == "alice"
    assert pods(intake(user_label="nobody", user_annotation="owner").pod(alice))[0].user == "bob"


def test_a_pod_that_becomes_unreadable_stays_whose_it_was() -> None:
    door = intake(user_label="user")
    door.pod(pod(labels={"user": "alice", "quota.scheduling.koordinator.sh/name": "q", QUEUE: "b"}))
    (found,) = pods(door.malformed_pod("default", "p", "uid-p", "odd", b""))
    assert (found.user, found.quota, found.queue) == ("alice", "q", "b")


@pytest.mark.parametrize("key", ["volcano.sh/sla-waiting-time", "sla-waiting-time"])
def test_how_long_a_group_may_wait_is_said_by_its_object_or_its_pods(key: str) -> None:
    assert the_gang(intake().group(VOLCANO, group(annotations={key: "1h30m"}))).sla_waiting_time == 5400
    door = intake()
    door.group(VOLCANO, group())
    member = pod(annotations={"scheduling.k8s.io/group-name": "g", key: "90s"})
    assert the_gang(door.pod(member)).sla_waiting_time == 90
    assert the_gang(door.group(VOLCANO, group(annotations={key: "10s"}))).sla_waiting_time == 10


@pytest.mark.parametrize("text", ["soon", "-1m", "0", "10"])
def test_a_waiting_time_that_is_none_is_told_and_passed_over(text: str) -> None:
    gang = the_gang(intake().group(VOLCANO, group(annotations={"sla-waiting-time": text})))
    assert gang.sla_waiting_time is None
    assert gang.problem is None
    assert [warning.code for warning in gang.warnings] == ["InvalidSlaWaitingTime"]
    assert repr(text) in gang.warnings[0].message
