"""Queues restricted to groups of nodes: decoding of Volcano's objects, and the rule of each pod."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import decode_namespace, decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.model.events import AccountUpdated, ClusterEvent, PodUpdated
from phalanx.model.pools import PoolRule

QUEUE = ServedKind("scheduling.volcano.sh", "v1beta1", "queues", "Queue")
GROUP = ServedKind("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Door:
    """An intake that records the last state of each pod."""

    def __init__(self) -> None:
        self.intake = Intake({"volcano"})
        self.pools: dict[str, PoolRule | None] = {}
        self.problems: dict[str, str] = {}

    def queue(self, name: str, affinity: Any = None, parent: str = "", limits: str = "") -> None:
        annotations = {"volcano.sh/nodegroup-resource-limits": limits} if limits else {}
        spec = {"parent": parent, "affinity": affinity} if affinity is not None else {"parent": parent}
        self._see(
            self.intake.account(QUEUE, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})
        )

    def no_queue(self, name: str) -> None:
        self._see(self.intake.account_removed(QUEUE, "", name))

    def pod(self, name: str, queue: str = "", gang: str = "") -> None:
        annotations = {"scheduling.volcano.sh/queue-name": queue} if queue else {}
        if gang:
            annotations["scheduling.k8s.io/group-name"] = gang
        metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": annotations}
        self._see(self.intake.pod(decode_pod(msgspec.json.encode({"metadata": metadata, "spec": SPEC}))))

    def group(self, name: str, queue: str) -> None:
        document = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"minMember": 1, "queue": queue}}
        self._see(self.intake.group(GROUP, document))

    def namespace(self, queue: str) -> None:
        metadata = {"name": "ns", "annotations": {"scheduling.volcano.sh/queue-name": queue}}
        self._see(self.intake.namespace(decode_namespace(msgspec.json.encode({"metadata": metadata}))))

    def _see(self, events: list[ClusterEvent]) -> None:
        for event in events:
            match event:
                case PodUpdated(pod):
                    self.pools[pod.name] = pod.pod_class.pool
                case AccountUpdated(account):
                    self.problems[account.key.name] = account.problem.message if account.problem else ""


SPEC = {"schedulerName": "volcano", "containers": [{"name": "main", "image": "busybox"}]}


def to(*groups: str) -> dict[str, Any]:
    return {"nodeGroupAffinity": {REQUIRED: list(groups)}}


def test_all_four_lists_of_node_groups_are_read() -> None:
    door = Door()
    towards, away = {REQUIRED: ["a"], PREFERRED: ["c", "b"]}, {REQUIRED: ["d"], PREFERRED: ["e"]}
    door.queue("q", {"nodeGroupAffinity": towards, "nodeGroupAntiAffinity": away})
    door.pod("p", "q")
    rule = PoolRule(required=("a",), preferred=("c", "b"), forbidden=("d",), avoided=("e",), queue="q")
    assert door.pools == {"p": rule}


def test_queue_without_lists_has_no_rule() -> None:
    door = Door()
    door.queue("q", to("a"))
    door.queue("other")
    door.pod("p", "other")
    assert door.pools == {"p": None}


def test_queue_inherits_the_rule_of_the_nearest_parent() -> None:
    door = Door()
    door.queue("root", to("r"))
    door.queue("top", to("t"))
    door.queue("middle", {}, parent="top")
    door.queue("low", parent="middle", limits='{"t": {"cpu": "2"}}')
    door.pod("p", "low")
    limits = (("t", (("cpu", 2000),)),)
    assert door.pools["p"] == PoolRule(required=("t",), inherited=True, queue="low", limits=limits)
    door.no_queue("top")
    assert door.pools["p"] == PoolRule(queue="low", limits=limits)


def test_rule_of_the_root_applies_below_it() -> None:
    door = Door()
    door.queue("root", to("r"))
    door.queue("q")
    door.pod("p", "q")
    assert door.pools["p"] == PoolRule(required=("r",), inherited=True, queue="q")


def test_queues_in_a_cycle_have_no_rule() -> None:
    door = Door()
    door.queue("far", to("f"))
    door.queue("a", parent="b")
    door.queue("b", parent="a")
    door.pod("p", "a")
    assert door.pools["p"] is None


def test_members_follow_the_queue_of_their_group() -> None:
    door = Door()
    door.queue("fast", to("a"))
    door.queue("slow", to("b"))
    door.group("g", "fast")
    for name in ("p1", "p2"):
        door.pod(name, gang="g")
    assert [rule.required for rule in door.pools.values() if rule] == [("a",), ("a",)]
    door.group("g", "slow")
    assert [rule.required for rule in door.pools.values() if rule] == [("b",), ("b",)]


def test_changed_rule_of_a_queue_reaches_earlier_pods() -> None:
    door = Door()
    door.pod("p", "q")
    door.queue("q", to("a"))
    assert door.pools["p"] == PoolRule(required=("a",), queue="q")
    door.queue("q", to("b"))
    assert door.pools["p"] == PoolRule(required=("b",), queue="q")
    door.no_queue("q")
    assert door.pools["p"] is None


def test_changed_queue_of_a_namespace_reaches_its_pods_and_groups() -> None:
    door = Door()
    door.queue("fast", to("a"))
    door.pod("alone")
    door.group("g", "")
    door.pod("member", gang="g")
    door.namespace("fast")
    assert {name: rule.required for name, rule in door.pools.items() if rule} == {"alone": ("a",), "member": ("a",)}


@pytest.mark.parametrize(
    ("affinity", "field"),
    [
        ("a", "spec.affinity"),
        ({"nodeGroupAffinity": ["a"]}, "spec.affinity.nodeGroupAffinity"),
        ({"nodeGroupAntiAffinity": {REQUIRED: "a"}}, f"spec.affinity.nodeGroupAntiAffinity.{REQUIRED}"),
        ({"nodeGroupAffinity": {PREFERRED: [1]}}, f"spec.affinity.nodeGroupAffinity.{PREFERRED}"),
    ],
)
def test_unreadable_rule_makes_its_queue_unusable(affinity: Any, field: str) -> None:
    door = Door()
    door.queue("q", affinity)
    assert f"{field} is" in door.problems["q"]


@pytest.mark.parametrize("limits", ["cpu=1", '{"a": {"cpu": "much"}}', '{"a": {"cpu": "-1"}}'])
def test_unreadable_limits_make_their_queue_unusable(limits: str) -> None:
    door = Door()
    door.queue("q", limits=limits)
    assert "volcano.sh/nodegroup-resource-limits" in door.problems["q"]
