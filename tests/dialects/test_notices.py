"""Notices to users: correct at the time of publication."""

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


def test_object_read_after_its_pods_was_never_missing() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    door.pod(pod("v-0", **VOLCANO_GROUP))
    door.group(X_K8S, group(minMember=1))
    door.group(VOLCANO, group("v", minMember=1))
    assert told(door) == []


def test_missing_object_is_reported_once() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    assert told(door) == [("m-0", "PodGroupNotFound")]
    assert told(door) == []


def test_object_that_exists_only_between_two_reports_is_reported_as_missing_once() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    door.group(X_K8S, group(minMember=1))
    door.group_removed(X_K8S, "default", "g")
    assert told(door) == [("m-0", "PodGroupNotFound")]


def test_deleted_gang_is_not_reported() -> None:
    door = Intake(["phalanx"])
    door.pod(pod("m-0", **GROUP))
    door.pod_removed("default", "m-0", "uid-m-0")
    assert told(door) == []


def test_corrected_or_deleted_pod_is_not_reported() -> None:
    door = Intake(["phalanx"])
    for name in ("corrected", "deleted", "bad"):
        door.pod(pod(name, containers=[container(cpu="much")]))
    door.pod(pod("corrected"))
    door.pod_removed("default", "deleted", "")
    assert told(door) == [("bad", "InvalidPod")]


def test_corrected_node_is_not_reported() -> None:
    def node(name: str, cpu: Any) -> Any:
        document = {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu}}}
        return decode_node(msgspec.json.encode(document))

    door = Intake(["phalanx"])
    door.node(node("a", "much"))
    door.node(node("b", "much"))
    door.node(node("a", "4"))
    assert told(door) == [("b", "InvalidNode")]
