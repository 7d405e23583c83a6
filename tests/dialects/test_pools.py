"""Queues that keep to groups of nodes: what Volcano's objects say, and what reaches each pod."""

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
    """An intake that remembers how each pod was shown last."""

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


def test_all_four_lists_are_read() -> None:
    door = Door()
    towards, away = {REQUIRED: ["a"], PREFERRED: ["c", "b"]}, {REQUIRED: ["d"], PREFERRED: ["e"]}
    door.queue("q", {"nodeGroupAffinity": towards, "nodeGroupAntiAffinity": away})
    door.pod("p", "q")
    rule = PoolRule(required=("a",), preferred=("c", "b"), forbidden=("d",), avoided=("e",), queue="q")
    assert door.pools == {"p": rule}


def test_a_queue_that_says_nothing_has_no_rule() -> None:
    door = Door()
    door.queue("q", to("a"))
    door.queue("other")
    door.pod("p", "other")
    assert door.pools == {"p": None}


def test_a_queue_follows_the_nearest_one_above_that_has_a_rule() -> None:
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


def test_below_the_root_its_rule_counts() -> None:
    door = Door()
    door.queue("root", to("r"))
    door.queue("q")
    door.pod("p", "q")
    assert door.pools["p"] == PoolRule(required=("r",), inherited=True, queue="q")


def test_queues_that_are_each_others_parents_have_no_rule() -> None:
    door = Door()
    door.queue("far", to("f"))
    door.queue("a", parent="b")
    door.queue("b", parent="a")
    door.pod("p", "a")
    assert door.pools["p"] is None


def test_members_follow_their_groups_queue() -> None:
    door = Door()
    door.queue("fast", to("a"))
    door.queue("slow", to("b"))
    door.group("g", "fast")
    for name in ("p1", "p2"):
        door.pod(name, gang="g")
    assert [rule.required for rule in door.pools.values() if rule] == [("a",), ("a",)]
    door.group("g", "slow")
    assert [rule.required for rule in door.pools.values() if rule] == [("b",), ("b",)]


def test_a_queue_may_change_its_mind_after_its_pods_came() -> None:
    door = Door()
    door.pod("p", "q")
    door.queue("q", to("a"))
    assert door.pools["p"] == PoolRule(required=("a",), queue="q")
    door.queue("q", to("b"))
    assert door.pools["p"] == PoolRule(required=("b",), queue="q")
    door.no_queue("q")
    assert door.pools["p"] is None


def test_a_namespace_may_change_the_queue_of_its_pods_and_groups() -> None:
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
def test_a_rule_that_cannot_be_read_makes_its_queue_unusable(affinity: Any, field: str) -> None:
    door = Door()
    door.queue("q", affinity)
    assert f"{field} is" in door.problems["q"]


@pytest.mark.parametrize("limits", ["cpu=1", '{"a": {"cpu": "much"}}', '{"a": {"cpu": "-1"}}'])
def test_limits_that_cannot_be_read_make_their_queue_unusable(limits: str) -> None:
    door = Door()
    door.queue("q", limits=limits)
    assert "volcano.sh/nodegroup-resource-limits" in door.problems["q"]
