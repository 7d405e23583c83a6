"""Numatopology objects, and pods with exclusive CPUs."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from phalanx.dialects.core import decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.nodes.numa import read_topology
from phalanx.model.devices.numa import AS_THE_NODE, NumaPolicy, NumaTopology, NumaTopologyGone
from phalanx.model.events import AllocatorFact, ClusterEvent, PodUpdated

KIND = ServedKind("nodeinfo.volcano.sh", "v1alpha1", "numatopologies", "Numatopology")


def spec(**changes: Any) -> dict[str, Any]:
    """Two sockets, a NUMA node each, of two cores with two threads: CPUs 0-3 and 4-7."""
    places = {str(cpu): {"numa": cpu // 4, "socket": cpu // 4, "core": cpu // 2 % 2} for cpu in range(8)}
    return {
        "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
        "numares": {"cpu": {"allocatable": "0-3,5", "capacity": 8}},
        "cpuDetail": places,
    } | changes


def test_cpus_are_counted_by_numa_node() -> None:
    assert read_topology("n", spec()) == NumaTopology("n", NumaPolicy.SINGLE, True, (4, 4), (4, 1))


def test_cpus_reserved_by_the_kubelet_are_not_free() -> None:
    found = read_topology("n", spec(resReserved={"cpu": "1500m"}))
    assert found is not None
    assert found.free == (2, 1)


def test_pods_with_allocated_cpus_are_known() -> None:
    found = read_topology("n", spec(podAllocations=[{"uid": "u1", "name": "p", "namespace": "ns"}, {"uid": "u2"}]))
    assert found is not None
    assert found.assigned == {"u1", "u2", "ns/p"}


@pytest.mark.parametrize(
    ("policies", "policy", "pinned"),
    [
        ({"CPUManagerPolicy": "none", "TopologyManagerPolicy": "restricted"}, NumaPolicy.RESTRICTED, False),
        ({"CPUManagerPolicy": "static"}, NumaPolicy.NONE, True),
        ({"CPUManagerPolicy": "static", "TopologyManagerPolicy": "odd"}, NumaPolicy.NONE, True),
        ("static", NumaPolicy.NONE, False),
    ],
)
def test_topology_policies_are_read_from_the_kubelet(policies: Any, policy: NumaPolicy, pinned: bool) -> None:
    found = read_topology("n", spec(policies=policies))
    assert found is not None
    assert (found.policy, found.pinned) == (policy, pinned)


@pytest.mark.parametrize("wrong", [None, 3, {}, {"cpuDetail": {}}, {"cpuDetail": {"x": {}, "1": {"numa": -1}}}])
def test_unreadable_topology_is_none(wrong: Any) -> None:
    assert read_topology("n", wrong) is None


class Door:
    def __init__(self) -> None:
        self.intake = Intake({"volcano"})
        self.shown: dict[str, tuple[str, tuple[int, ...]]] = {}
        self.facts: list[object] = []

    def pod(
        self, name: str, *containers: dict[str, Any], policy: str = "", **more: Any
    ) -> tuple[str, tuple[int, ...]]:
        annotations = {"volcano.sh/numa-topology-policy": policy} if policy else {}
        metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": annotations}
        document = {"metadata": metadata, "spec": {"containers": list(containers), **more}}
        self._see(self.intake.pod(decode_pod(msgspec.json.encode(document))))
        return self.shown[name]

    def topology(self, node: str, document: dict[str, Any]) -> None:
        enrichers = self.intake.enrichers
        self._see(self.intake.apply(enrichers.updated(KIND, {"metadata": {"name": node}, "spec": document})))

    def gone(self, node: str) -> None:
        self._see(self.intake.apply(self.intake.enrichers.removed(KIND, "", node)))

    def _see(self, events: list[ClusterEvent]) -> None:
        for event in events:
            match event:
                case PodUpdated(pod):
                    self.shown[pod.name] = pod.pod_class.numa, pod.pod_class.cpus
                case AllocatorFact(_, fact):
                    self.facts.append(fact)


def container(limit: str = "2", **requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"limits": {"cpu": limit, "memory": "1Gi"}, "requests": requests}}


def test_guaranteed_pods_get_exclusive_cpus() -> None:
    door = Door()
    assert door.pod("a", container("2"), container("500m"), container("3000m")) == ("", (2, 3))
    assert door.pod("b", container("2", cpu="2", memory="1024Mi")) == ("", (2,))
    assert door.pod("c", container("2", cpu="1")) == ("", ())
    assert door.pod("d", container("2"), {"name": "free"}) == ("", ())
    assert door.pod("e", {"name": "c", "resources": {"limits": {"cpu": "2"}}}) == ("", ())
    assert door.pod("f", container("2"), initContainers=[{"name": "first"}]) == ("", ())


def test_known_topology_policy_of_a_pod_is_read() -> None:
    door = Door()
    assert door.pod("a", container(), policy="restricted") == ("restricted", (2,))
    assert door.pod("b", container(), policy="none") == ("", (2,))
    assert door.pod("c", container(), policy="tight") == ("", (2,))


def test_pods_have_numa_requests_only_while_some_kubelet_enforces_a_policy() -> None:
    door = Door()
    door.pod("a", container())
    door.topology("loose", spec(policies={"CPUManagerPolicy": "static"}))
    assert door.shown["a"] == ("", (2,))
    door.topology("strict", spec())
    assert door.shown["a"] == (AS_THE_NODE, (2,))
    assert door.pod("b", container()) == (AS_THE_NODE, (2,))
    assert door.pod("c", container(), policy="best-effort") == ("best-effort", (2,))
    assert door.pod("d", {"name": "free"}) == ("", ())
    door.gone("strict")
    assert door.shown["a"] == door.shown["b"] == ("", (2,))
    assert door.facts[-1] == NumaTopologyGone("strict")


def test_unchanged_topology_is_no_event() -> None:
    door = Door()
    door.topology("n", spec())
    door.topology("n", spec())
    assert len(door.facts) == 1
    door.topology("n", {})
    assert door.facts[-1] == NumaTopologyGone("n")
