"""Nodes chosen by their properties over the API: node groups, NUMA nodes, tasks with affinity to each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.client import PatchType
from phalanx.kube.errors import ApiError
from phalanx.kube.paths import Resource
from tests.e2e.world import DEFINITIONS, PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

QUEUE = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
GROUP = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
NUMA = Resource("nodeinfo.volcano.sh", "v1alpha1", "numatopologies", "Numatopology", namespaced=False)
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}, %s]}]
"""


def policy(tmp_path: Path, plugin: str) -> str:
    path = tmp_path / "policy"
    path.write_text(POLICY % plugin, encoding="utf-8")
    return str(path)


async def queue(world: World, name: str, **spec: Any) -> str:
    full = f"{world.name}-{name}"
    metadata = {"name": full}
    await world.make({"apiVersion": QUEUE.api_version, "kind": "Queue", "metadata": metadata, "spec": spec})
    return full


async def test_a_queue_keeps_to_its_groups_of_nodes(world: World, tmp_path: Path) -> None:
    for name, group in (("n1", "slow"), ("n2", "fast"), ("n3", "")):
        await world.node(name)
        if group:
            await world.patch_node(name, {"metadata": {"labels": {"volcano.sh/nodegroup-name": group}}})
    fast = await queue(world, "fast", affinity={"nodeGroupAffinity": {REQUIRED: ["fast"]}})
    lost = await queue(world, "lost", affinity={"nodeGroupAffinity": {REQUIRED: ["nowhere"]}})
    await world.scheduler(config=policy(tmp_path, "{name: nodegroup, arguments: {strict: false}}"))
    key = "scheduling.volcano.sh/queue-name"
    await world.pod("a", annotations={key: fast})
    await world.pod("b", annotations={key: lost})
    await world.pod("c")
    placement = await world.until_bound("a", "c")
    assert (placement["a"], placement["c"]) == ("n2", "n3")
    await world.until_event(
        "FailedScheduling", "b", "2 node\\(s\\) were in a node group that the queue does not allow"
    )
    # The queue's affinity changes, and its pod is retried without help.
    change = {"spec": {"affinity": {"nodeGroupAffinity": {REQUIRED: ["slow"]}}}}
    await world.client.patch(QUEUE.path(None, lost), change, PatchType.MERGE)
    assert (await world.until_bound("b"))["b"] == "n1"


async def test_workers_are_bound_to_the_node_of_their_server(world: World, tmp_path: Path) -> None:
    for number in range(1, 5):
        await world.node(f"n{number}", cpu="4")
    annotations = {
        "volcano.sh/task-topology-affinity": "ps,worker",
        "volcano.sh/task-topology-anti-affinity": "ps",
    }
    metadata = {"name": "g", "annotations": annotations}
    spec = {"minMember": 6}
    await world.make({"apiVersion": GROUP.api_version, "kind": "PodGroup", "metadata": metadata, "spec": spec})
    await world.scheduler(config=policy(tmp_path, "{name: task-topology, arguments: {task-topology.weight: 10}}"))
    names = {f"{task}-{number}": task for task, count in (("ps", 2), ("worker", 4)) for number in range(count)}
    for name, task in names.items():
        await world.pod(name, annotations={"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": task})
    placement = await world.until_bound(*names)
    homes = {placement["ps-0"], placement["ps-1"]}
    assert len(homes) == 2
    assert sorted([*placement.values()].count(home) for home in homes) == [3, 3]


async def test_whole_cpus_come_from_one_numa_node(world: World, tmp_path: Path) -> None:
    await world.make(NUMA_DEFINITION)

    async def served() -> bool:
        try:
            await world.client.list_all(NUMA.path(None))
        except ApiError:
            return False
        return True

    await world.until(served, "Numatopology objects are served")
    for name, free in (("n1", "0-1,4-5"), ("n2", "0-3")):
        await world.node(name)
        await topology(world, name, free)
    await world.scheduler(config=policy(tmp_path, "{name: numa-aware}"))
    guaranteed = {"cpu": "4", "memory": "1Gi"}
    container = {
        "name": "main",
        "image": "example/main",
        "resources": {"requests": guaranteed, "limits": guaranteed},
    }
    single = {"volcano.sh/numa-topology-policy": "single-numa-node"}
    await world.pod("a", annotations=single, containers=[container])
    assert (await world.until_bound("a"))["a"] == "n2"
    (found,) = await world.list(PODS)
    assert found["metadata"]["annotations"]["volcano.sh/topology-decision"] == '{"numa":{"0":{"cpu":"4"}}}'
    await world.pod("b", containers=[container])
    await world.until_held("b", words="no NUMA nodes with enough free CPUs for a container")


async def topology(world: World, node: str, free: str) -> None:
    """Create a topology as the resource exporter writes it: two NUMA nodes of four CPUs."""
    places = {str(cpu): {"numa": cpu // 4, "socket": cpu // 4, "core": cpu % 4} for cpu in range(8)}
    spec = {
        "policies": {"CPUManagerPolicy": "static", "TopologyManagerPolicy": "single-numa-node"},
        "numares": {"cpu": {"allocatable": free, "capacity": 8}},
        "cpuDetail": places,
    }
    metadata = {"name": f"{world.name}-{node}"}
    await world.make({"apiVersion": NUMA.api_version, "kind": "Numatopology", "metadata": metadata, "spec": spec})


_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NUMA_DEFINITION = {
    "apiVersion": DEFINITIONS.api_version,
    "kind": "CustomResourceDefinition",
    "metadata": {"name": f"{NUMA.plural}.{NUMA.group}"},
    "spec": {
        "group": NUMA.group,
        "scope": "Cluster",
        "names": {
            "plural": NUMA.plural,
            "singular": "numatopology",
            "kind": NUMA.kind,
            "listKind": "NumatopologyList",
        },
        "versions": [
            {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}
        ],
    },
}
