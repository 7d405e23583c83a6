"""Pods with required anti-affinity keep their domain to themselves (InterPodAffinity, the symmetric half)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_namespace, decode_node
from phalanx.dialects.intake import Intake
from phalanx.model.decisions import Plan
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.scheduling.policy import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.dialects.objects import pod

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
APP = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": HOST}


def keeps_away(*terms: Mapping[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def selecting(*expressions: tuple[str, str, list[str]], **term: Any) -> dict[str, Any]:
    found = [{"key": key, "operator": operator, "values": values} for key, operator, values in expressions]
    return {"labelSelector": {"matchExpressions": found}, "topologyKey": HOST, **term}


class Door:
    """An intake and, for each pod, the domains that were told last."""

    def __init__(self) -> None:
        self.intake = Intake(["phalanx"])
        self.state = ClusterState()
        self._told: dict[str, tuple[tuple[str, str], ...]] = {}

    def closed_to(self, name: str) -> list[tuple[str, str]]:
        return list(self._told[name])

    def take(self, events: list[ClusterEvent]) -> list[str]:
        """The pods that were told anew."""
        for event in events:
            self.state.apply(event)
        updated = [event.pod for event in events if isinstance(event, PodUpdated)]
        self._told.update((noun.name, noun.pod_class.repelled) for noun in updated)
        return [noun.name for noun in updated]

    def pod(self, name: str = "p", **details: Any) -> list[str]:
        return self.take(self.intake.pod(pod(name, **details)))

    def existing(self, name: str = "old", *terms: Mapping[str, Any], node: str = "a", **details: Any) -> list[str]:
        details = {"schedulerName": "default-scheduler", "phase": "Running", **details}
        return self.pod(name, node=node, affinity=keeps_away(*(terms or (APP,))), **details)

    def gone(self, name: str, namespace: str = "default") -> list[str]:
        return self.take(self.intake.pod_removed(namespace, name, f"uid-{name}"))

    def node(self, name: str, **labels: str) -> list[str]:
        keys = {"zone": ZONE, "host": HOST}
        metadata = {"name": name, "labels": {HOST: name} | {keys[key]: value for key, value in labels.items()}}
        document = {"metadata": metadata, "status": {"allocatable": {"cpu": "8", "pods": "10"}}}
        return self.take(self.intake.node(decode_node(msgspec.json.encode(document))))

    def namespace(self, name: str, **labels: str) -> list[str]:
        document = {"metadata": {"name": name, "labels": labels}}
        return self.take(self.intake.namespace(decode_namespace(msgspec.json.encode(document))))


@pytest.fixture
def door() -> Door:
    door = Door()
    door.node("a", zone="z1")
    door.node("b", zone="z1")
    return door


def test_a_pod_that_is_there_closes_its_domain_to_those_that_its_term_selects(door: Door) -> None:
    door.existing()
    door.pod("meant", labels={"app": "x"})
    door.pod("other", labels={"app": "y"})
    assert door.closed_to("meant") == [(HOST, "a")]
    assert door.closed_to("other") == []


def test_pods_that_wait_already_are_told_when_it_comes_moves_and_goes(door: Door) -> None:
    door.pod("meant", labels={"app": "x"})
    door.pod("other", labels={"app": "y"})
    assert door.existing() == ["old", "meant"]
    assert door.closed_to("meant") == [(HOST, "a")]
    assert door.existing(node="b") == ["old", "meant"]
    assert door.closed_to("meant") == [(HOST, "b")]
    assert door.gone("old") == ["meant"]
    assert door.closed_to("meant") == []


def test_it_counts_from_its_binding_until_it_has_finished_also_while_it_terminates(door: Door) -> None:
    door.pod("meant", labels={"app": "x"})
    door.existing(node="", phase="Pending")
    assert door.closed_to("meant") == []
    door.existing(phase="Pending")
    assert door.closed_to("meant") == [(HOST, "a")]
    door.existing(terminating=True)
    assert door.closed_to("meant") == [(HOST, "a")]
    door.existing(phase="Succeeded")
    assert door.closed_to("meant") == []


def test_a_pod_of_ours_that_is_bound_counts_like_any_other(door: Door) -> None:
    door.pod("meant", labels={"app": "x"})
    door.existing(schedulerName="phalanx")
    assert door.closed_to("meant") == [(HOST, "a")]


def test_pods_of_other_schedulers_are_told_nothing(door: Door) -> None:
    door.existing()
    door.pod("theirs", labels={"app": "x"}, schedulerName="default-scheduler")
    assert door.closed_to("theirs") == []


def test_a_waiting_pod_is_told_anew_when_its_labels_change(door: Door) -> None:
    door.existing()
    door.pod("p", labels={"app": "y"})
    assert door.pod("p", labels={"app": "x"}) == ["p"]
    assert door.closed_to("p") == [(HOST, "a")]
    assert door.pod("p", labels={"app": "x"}) == []
    assert door.pod("p", labels={"app": "z"}) == ["p"]
    assert door.closed_to("p") == []


def test_a_domain_is_what_the_node_is_labelled(door: Door) -> None:
    door.pod("meant", labels={"app": "x"})
    door.existing("old", {**APP, "topologyKey": ZONE})
    assert door.closed_to("meant") == [(ZONE, "z1")]
    assert door.node("a", zone="z2") == ["meant"]
    assert door.closed_to("meant") == [(ZONE, "z2")]
    assert door.node("a") == ["meant"]
    assert door.closed_to("meant") == []


def test_a_node_may_come_after_its_pods_and_go_before_them(door: Door) -> None:
    door.pod("meant", labels={"app": "x"})
    door.existing(node="late")
    assert door.closed_to("meant") == []
    assert door.node("late") == ["meant"]
    assert door.closed_to("meant") == [(HOST, "late")]
    assert door.take(door.intake.node_removed("late")) == ["meant"]
    assert door.closed_to("meant") == []


def test_a_domain_stays_closed_until_the_last_pod_has_left_it(door: Door) -> None:
    zone = {**APP, "topologyKey": ZONE}
    door.pod("meant", labels={"app": "x"})
    door.existing("one", zone, node="a")
    assert door.existing("two", zone, node="b") == ["two"]
    assert door.gone("one") == []
    assert door.gone("two") == ["meant"]


@pytest.mark.parametrize(
    ("expression", "labels", "meant"),
    [
        (("app", "In", ["x", "y"]), {"app": "y"}, True),
        (("app", "In", ["x"]), {}, False),
        (("app", "NotIn", ["x"]), {"app": "x"}, False),
        (("app", "NotIn", ["x"]), {}, True),
        (("app", "Exists", []), {"app": ""}, True),
        (("app", "Exists", []), {}, False),
        (("app", "DoesNotExist", []), {}, True),
        (("app", "DoesNotExist", []), {"app": "x"}, False),
    ],
)
def test_expressions_mean_what_label_selectors_mean(
    door: Door, expression: tuple[str, str, list[str]], labels: dict[str, str], meant: bool
) -> None:
    door.existing("old", selecting(expression))
    door.pod(labels=labels)
    assert bool(door.closed_to("p")) is meant


def test_an_empty_selector_means_every_pod_and_an_absent_one_none(door: Door) -> None:
    door.existing("old", selecting(), {"topologyKey": ZONE})
    door.pod()
    assert door.closed_to("p") == [(HOST, "a")]


@pytest.mark.parametrize(
    ("term", "reached"),
    [
        ({}, ["default"]),
        ({"namespaces": ["red"]}, ["red"]),
        ({"namespaceSelector": {}}, ["default", "red", "blue"]),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, ["blue"]),
        ({"namespaces": ["red"], "namespaceSelector": {"matchLabels": {"team": "b"}}}, ["red", "blue"]),
    ],
)
@pytest.mark.parametrize("first", ["old", "waiting"])
def test_the_namespaces_that_a_term_reaches(
    door: Door, term: dict[str, Any], reached: list[str], first: str
) -> None:
    door.namespace("blue", team="b")
    if first == "old":
        door.existing("old", APP | term)
    for namespace in ("default", "red", "blue"):
        door.pod(namespace, namespace=namespace, labels={"app": "x"})
    if first == "waiting":
        door.existing("old", APP | term)
    assert [name for name in ("default", "red", "blue") if door.closed_to(name)] == reached


def test_the_labels_of_a_namespace_may_change(door: Door) -> None:
    door.existing("old", APP | {"namespaceSelector": {"matchLabels": {"team": "b"}}})
    door.pod(labels={"app": "x"})
    assert door.namespace("default", team="b") == ["p"]
    assert door.closed_to("p") == [(HOST, "a")]
    assert door.take(door.intake.namespace_removed("default")) == ["p"]
    assert door.closed_to("p") == []


@pytest.mark.parametrize(
    "term",
    [
        {"labelSelector": {"matchExpressions": "all"}, "topologyKey": HOST},
        {"labelSelector": 7, "topologyKey": HOST},
        selecting(("app", "Like", ["x"])),
        selecting(("app", "In", [])),
        selecting(("app", "Exists", ["x"])),
    ],
)
def test_a_term_that_cannot_be_read_keeps_nobody_away(door: Door, term: dict[str, Any]) -> None:
    door.existing("old", APP, term)
    door.pod(labels={"app": "x"})
    assert door.closed_to("p") == []


def test_a_pod_that_becomes_unreadable_keeps_its_domain(door: Door) -> None:
    door.existing()
    door.pod(labels={"app": "x"})
    door.take(door.intake.malformed_pod("default", "old", "uid-old", "broken", b"{"))
    assert door.closed_to("p") == [(HOST, "a")]


def test_what_is_told_does_not_depend_on_the_order_of_things() -> None:
    """Every history that ends in the same objects tells the same; counted out against the plain rule."""
    for seed in range(150):
        dice = random.Random(seed)
        door, zones, olds, waiting = Door(), {}, {}, {}
        for _ in range(60):
            match dice.randrange(5):
                case 0:
                    name, zone = dice.choice("abc"), dice.choice(["", "z1", "z2"])
                    zones[name] = zone
                    door.node(name, **({"zone": zone} if zone else {}))
                case 1:
                    name, node, app, key = (dice.choice(part) for part in ("mno", "abc", "xy", [HOST, ZONE]))
                    olds[name] = node, app, key
                    door.existing(name, {**selecting(("app", "In", [app])), "topologyKey": key}, node=node)
                case 2:
                    name = dice.choice("mno")
                    olds.pop(name, None)
                    door.gone(name)
                case 3:
                    name, app = dice.choice("pqr"), dice.choice("xyz")
                    waiting[name] = app
                    door.pod(name, labels={"app": app})
                case _:
                    name = dice.choice("pqr")
                    waiting.pop(name, None)
                    door.gone(name)
        for name, app in waiting.items():
            closed = {
                (key, node if key == HOST else zones[node])
                for node, selected, key in olds.values()
                if selected == app and node in zones and (key == HOST or zones[node])
            }
            assert door.closed_to(name) == sorted(closed), (seed, name)


def plan(door: Door) -> Plan:
    return Scheduler(door.state, load_policy()).cycle(0.0)


def test_the_scheduler_keeps_out_of_closed_domains_and_says_so(door: Door) -> None:
    door.existing(node="a")
    door.pod(labels={"app": "x"})
    assert [bind.node for bind in plan(door).binds] == ["b"]


def test_the_verdict_uses_kube_schedulers_words(door: Door) -> None:
    door.existing("old", {**APP, "topologyKey": ZONE})
    door.pod(labels={"app": "x"})
    found = plan(door)
    assert found.binds == []
    (judged,) = found.pods
    assert judged.verdict is not None
    assert (
        "0/2 nodes are available: 2 node(s) didn't satisfy existing pods anti-affinity rules"
        in judged.verdict.message
    )
    door.gone("old")
    assert [bind.uid for bind in plan(door).binds] == ["uid-p"]


def test_who_runs_is_asked_where_it_could_not_go_if_it_waited(door: Door) -> None:
    door.existing("guard", node="a")
    door.pod("guest", labels={"app": "x"}, node="b", phase="Running")
    door.pod("stranger", labels={"app": "y"}, node="b", phase="Running")
    guest, stranger = (door.state.pods[f"uid-{name}"].pod for name in ("guest", "stranger"))
    assert guest.pod_class.repelled == ()
    assert door.intake.waiting_class(guest).repelled == ((HOST, "a"),)
    assert door.intake.waiting_class(stranger) is stranger.pod_class
