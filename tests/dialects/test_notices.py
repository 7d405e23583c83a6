"""What users are told is true when they are told."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.dialects.core import decode_node
from phalanx.dialects.intake import Intake
from tests.dialects.objects import VOLCANO, X_K8S, container, group, pod

GROUP = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
VOLCANO_GROUP = {"annotations": {"scheduling.k8s.io/group-name": "v"}}


def told(door: Intake) -> list[tuple[str, str]]:
    return [(notice.about.name, notice.reason) for notice in door.drain_warnings()]


def test_an_object_that_is_read_after_its_pods_was_never_missing() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    door.pod(pod("v-0", **VOLCANO_GROUP))
    door.group(X_K8S, group(minMember=1))
    door.group(VOLCANO, group("v", minMember=1))
    assert told(door) == []


def test_an_object_that_is_missing_is_told_once() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    assert told(door) == [("m-0", "PodGroupNotFound")]
    assert told(door) == []


def test_an_object_that_comes_and_goes_between_two_tellings_is_told_as_missing_once() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    door.group(X_K8S, group(minMember=1))
    door.group_removed(X_K8S, "default", "g")
    assert told(door) == [("m-0", "PodGroupNotFound")]


def test_a_gang_that_has_gone_is_not_spoken_of() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    door.pod_removed("default", "m-0", "uid-m-0")
    assert told(door) == []


def test_a_pod_that_has_been_corrected_or_deleted_is_not_spoken_of() -> None:
    door = Intake(["phalanx"])
    for name in ("corrected", "deleted", "bad"):
        door.pod(pod(name, containers=[container(cpu="much")]))
    door.pod(pod("corrected"))
    door.pod_removed("default", "deleted", "")
    assert told(door) == [("bad", "InvalidPod")]


def test_a_node_that_has_been_corrected_is_not_spoken_of() -> None:
    def node(name: str, cpu: Any) -> Any:
        document = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}
        return decode_node(msgspec.json.encode(document))

    door = Intake(["phalanx"])
    door.node(node("a", "much"))
    door.node(node("b", "much"))
    door.node(node("a", "4"))
    assert told(door) == [("b", "InvalidNode")]
