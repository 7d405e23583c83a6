"""Charge path of a pod: its queue, its quota, its user; and waiting times of groups."""

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


def test_single_pod_names_its_queue_by_annotation_or_label() -> None:
    assert the_pod().queue == "default"
    assert the_pod(annotations={QUEUE: "a"}).queue == "a"
    assert the_pod(labels={QUEUE: "b"}).queue == "b"
    assert the_pod(annotations={QUEUE: "a"}, labels={QUEUE: "b"}).queue == "a"


def test_single_pod_without_a_queue_uses_the_queue_of_its_namespace() -> None:
    door = intake()
    door.namespace(namespace("research"))
    assert pods(door.pod(pod("silent")))[0].queue == "research"
    assert pods(door.pod(pod("outspoken", annotations={QUEUE: "own"})))[0].queue == "own"
    assert pods(door.pod(pod("elsewhere", namespace="other")))[0].queue == "default"


def test_changed_queue_of_a_namespace_reaches_the_pods_that_use_it() -> None:
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


def test_pod_that_names_a_queue_no_longer_follows_its_namespace() -> None:
    door = intake()
    door.pod(pod())
    door.pod(pod(annotations={QUEUE: "own"}))
    assert door.namespace(namespace("research")) == []


def test_member_is_in_the_queue_of_its_gang() -> None:
    door = intake()
    member = pod(annotations={"scheduling.k8s.io/group-name": "g"}, labels={QUEUE: "b"})
    events = door.pod(member)
    assert (the_gang(events).queue, pods(events)[0].queue) == ("b", "default")
    assert pods(door.namespace(namespace("research"))) == []


def test_koordinators_labels_name_the_quota_and_whether_pods_are_preemptible() -> None:
    prefix = "quota.scheduling.koordinator.sh"
    found = the_pod(labels={f"{prefix}/name": "team-a", f"{prefix}/preemptible": "false"})
    assert (found.quota, found.firm) == ("team-a", True)
    assert (the_pod().quota, the_pod().firm) == ("", False)
    assert not the_pod(labels={f"{prefix}/preemptible": "true"}).firm


def test_user_is_read_from_the_configured_key() -> None:
    alice = pod(labels={"user": "alice"}, annotations={"owner": "bob"})
    assert pods(intake().pod(alice))[0].user == ""
    assert pods(intake(user_label="user").pod(alice))[0].user == "alice"
    assert pods(intake(user_annotation="owner").pod(alice))[0].user == "bob"
    assert pods(intake(user_label="user", user_annotation="owner").pod(alice))[0].user == "alice"
    assert pods(intake(user_label="nobody", user_annotation="owner").pod(alice))[0].user == "bob"


def test_pod_that_becomes_unreadable_keeps_its_charge_path() -> None:
    door = intake(user_label="user")
    door.pod(pod(labels={"user": "alice", "quota.scheduling.koordinator.sh/name": "q", QUEUE: "b"}))
    (found,) = pods(door.malformed_pod("default", "p", "uid-p", "odd", b""))
    assert (found.user, found.quota, found.queue) == ("alice", "q", "b")


@pytest.mark.parametrize("key", ["volcano.sh/sla-waiting-time", "sla-waiting-time"])
def test_waiting_time_of_a_group_is_read_from_its_object_or_its_pods(key: str) -> None:
    assert the_gang(intake().group(VOLCANO, group(annotations={key: "1h30m"}))).sla_waiting_time == 5400
    door = intake()
    door.group(VOLCANO, group())
    member = pod(annotations={"scheduling.k8s.io/group-name": "g", key: "90s"})
    assert the_gang(door.pod(member)).sla_waiting_time == 90
    assert the_gang(door.group(VOLCANO, group(annotations={key: "10s"}))).sla_waiting_time == 10


@pytest.mark.parametrize("text", ["soon", "-1m", "0", "10"])
def test_invalid_waiting_time_is_reported_and_ignored(text: str) -> None:
    gang = the_gang(intake().group(VOLCANO, group(annotations={"sla-waiting-time": text})))
    assert gang.sla_waiting_time is None
    assert gang.problem is None
    assert [warning.code for warning in gang.warnings] == ["InvalidSlaWaitingTime"]
    assert repr(text) in gang.warnings[0].message
