"""Default spread of pods of Services and workloads without a constraint of their own."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.model.events import ClusterEvent, PodUpdated
from phalanx.model.peers import NO_PEERS, PodSelection, Spread
from phalanx.model.selectors import Requirement
from tests.dialects.objects import decode, pod, pod_document

SERVICE = ServedKind("", "v1", "services", "Service")
REPLICAS = ServedKind("apps", "v1", "replicasets", "ReplicaSet")
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
IS_WEB = Requirement("app", "In", ("web",))


class Door:
    def __init__(self, spread: bool = True) -> None:
        self.intake = Intake(["phalanx"], DialectOptions(default_spread=spread))
        self.told: dict[str, tuple[Spread, ...]] = {}

    def take(self, events: list[ClusterEvent]) -> list[str]:
        """Return the updated pods."""
        shown = [event.pod for event in events if isinstance(event, PodUpdated)]
        self.told.update((spec.name, spec.pod_class.peers.spread) for spec in shown)
        return [spec.name for spec in shown]

    def pod(self, name: str, owner: str = "", **details: Any) -> list[str]:
        document = pod_document(name, **details)
        if owner:
            reference = {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner,
                "uid": "u",
                "controller": True,
            }
            document["metadata"]["ownerReferences"] = [reference]
        return self.take(self.intake.pod(decode(document)))

    def object(self, kind: ServedKind, name: str, selector: object, namespace: str = "default") -> list[str]:
        document = {"metadata": {"name": name, "namespace": namespace}, "spec": {"selector": selector}}
        return self.take(self.intake.apply(self.intake.enrichers.updated(kind, document)))

    def removed(self, kind: ServedKind, name: str) -> list[str]:
        return self.take(self.intake.apply(self.intake.enrichers.removed(kind, "default", name)))


def usual(*requirements: Requirement) -> tuple[Spread, ...]:
    whom = PodSelection(requirements, ("default",))
    return (
        Spread(whom, HOST, 3, required=False, lenient=True),
        Spread(whom, ZONE, 5, required=False, lenient=True),
    )


def test_pods_of_a_service_are_spread_over_hosts_and_zones() -> None:
    door = Door()
    door.pod("a", labels={"app": "web"})
    door.pod("b", labels={"app": "db"})
    assert door.told["a"] == ()
    assert door.object(SERVICE, "web", {"app": "web"}) == ["a"]
    assert door.told["a"] == usual(IS_WEB)
    door.pod("c", labels={"app": "web"})
    assert door.told["c"] == usual(IS_WEB)
    assert sorted(door.object(SERVICE, "web", {"app": "db"})) == ["a", "b", "c"]
    assert door.told["a"] == ()
    assert door.removed(SERVICE, "web") == ["b"]


def test_selector_of_the_controller_is_added() -> None:
    door = Door()
    door.object(SERVICE, "web", {"app": "web"})
    door.pod("a", "web-1", labels={"app": "web", "hash": "1"})
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "hash", "operator": "In", "values": ["1"]}],
    }
    assert door.object(REPLICAS, "web-1", selector) == ["a"]
    assert door.told["a"] == usual(IS_WEB, Requirement("hash", "In", ("1",)))
    assert door.object(REPLICAS, "web-1", selector) == []
    assert door.object(REPLICAS, "web-1", {"matchExpressions": [{"key": "hash", "operator": "Odd"}]}) == ["a"]
    assert door.told["a"] == usual(IS_WEB)


def test_constraint_of_the_pod_itself_overrides_the_default() -> None:
    door = Door()
    door.object(SERVICE, "web", {"app": "web"})
    own = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
    door.pod("a", labels={"app": "web"}, topologySpreadConstraints=[own])
    assert len(door.told["a"]) == 1
    assert not door.told["a"][0].lenient


def test_services_of_other_namespaces_and_without_selectors_select_no_pod() -> None:
    door = Door()
    door.object(SERVICE, "web", {"app": "web"}, namespace="other")
    door.object(SERVICE, "headless", None)
    door.pod("a", labels={"app": "web"})
    assert door.told["a"] == ()


def test_no_kind_is_watched_where_default_spread_is_off() -> None:
    assert "services" not in {kind.plural for kind in Door(spread=False).intake.enrichers.kinds}
    assert {"services", "statefulsets"} <= {kind.plural for kind in Door().intake.enrichers.kinds}


def test_default_spread_is_a_setting_of_the_policy_file() -> None:
    assert not msgspec.json.decode(b'{"defaultSpread": false}', type=DialectOptions).default_spread
    assert DialectOptions().default_spread
    assert Intake(["phalanx"]).pod(pod("p"))[0] == Door().intake.pod(pod("p"))[0]
    assert NO_PEERS.spread == ()
