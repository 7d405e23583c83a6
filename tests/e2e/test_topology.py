"""Gangs close to each other, over HTTP: HyperNodes, node labels, subgroups, and messages to their owners."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

VOLCANO = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
HYPER_NODES = Resource("topology.volcano.sh", "v1alpha1", "hypernodes", "HyperNode", namespaced=False)
LEVEL = "topology.kubernetes.io/rack"


async def racks(world: World, *names: str) -> None:
    """Two nodes of 4 CPUs each, labelled with the rack."""
    for rack in names:
        for place in "ab":
            await world.node(f"{rack}{place}", cpu="4")
            await world.patch_node(f"{rack}{place}", {"metadata": {"labels": {LEVEL: rack}}})


async def hypernode(world: World, name: str, tier: int, kind: str, *members: str) -> None:
    """Names are this test's own."""
    entries = [{"type": kind, "selector": {"exactMatch": {"name": f"{world.name}-{member}"}}} for member in members]
    await world.make(
        {
            "apiVersion": HYPER_NODES.api_version,
            "kind": "HyperNode",
            "metadata": {"name": f"{world.name}-{name}"},
            "spec": {"tier": tier, "members": entries},
        }
    )


def group(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": VOLCANO.api_version, "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


async def where(world: World, *names: str) -> set[str]:
    """The racks of bound pods."""
    placed = await world.until_bound(*names)
    return {placed[name][:2] for name in names}


async def test_a_gang_stays_under_the_highest_tier_that_it_allows(world: World) -> None:
    await racks(world, "r1", "r2", "r3")
    for rack in ("r1", "r2", "r3"):
        await hypernode(world, rack, 1, "Node", f"{rack}a", f"{rack}b")
    await hypernode(world, "s1", 2, "HyperNode", "r1", "r2")
    await world.scheduler()
    await world.make(group("g", minMember=3, networkTopology={"mode": "hard", "highestTierAllowed": 1}))
    names = [f"p-{number}" for number in range(3)]
    await world.pods(*names, cpu="3", annotations={"scheduling.k8s.io/group-name": "g"})
    said = await world.until_held(*names, words="2 of the 3 required pods")
    assert "(best of 3 domains of tier 1)" in said["message"]
    await world.patch(VOLCANO, "g", {"spec": {"networkTopology": {"highestTierAllowed": 2}}})
    assert await where(world, *names) == {"r1", "r2"}

    async def told() -> bool:
        shown = await world.get(VOLCANO, "g")
        annotations = shown["metadata"].get("annotations") or {}
        return bool(annotations.get("volcano.sh/job-allocated-hypernode") == f"{world.name}-s1")

    await world.until(told, "the group learns in which HyperNode it is")


async def test_a_hypernode_that_comes_late_lets_the_gang_start(world: World) -> None:
    await racks(world, "r1")
    await world.scheduler()
    await world.make(group("g", minMember=2, networkTopology={"highestTierAllowed": 1}))
    await world.pods("a", "b", cpu="3", annotations={"scheduling.k8s.io/group-name": "g"})
    await world.until_held("a", "b", words="in no permitted HyperNode")
    await hypernode(world, "r1", 1, "Node", "r1a", "r1b")
    assert await where(world, "a", "b") == {"r1"}


async def test_levels_of_kueue_on_the_pods_of_any_gang(world: World) -> None:
    await racks(world, "r1", "r2")
    await world.scheduler()
    annotations = {"kueue.x-k8s.io/podset-required-topology": LEVEL}
    labels = {"pod-group/name": "g", "pod-group/min-available": "3"}
    await world.pods("a", "b", "c", cpu="3", labels=labels, annotations=annotations)
    said = await world.until_held("a", "b", "c", words="2 of the 3 required pods")
    assert f"(best of 2 domains of {LEVEL})" in said["message"]
    await world.patch_node("r2a", {"metadata": {"labels": {LEVEL: "r1"}}})
    await world.until_bound("a", "b", "c")


async def test_each_subgroup_has_a_rack_of_its_own(world: World) -> None:
    await racks(world, "r1", "r2")
    await world.scheduler()
    policy = {
        "name": "workers",
        "matchLabelKeys": ["volcano.sh/partition-id"],
        "subGroupSize": 2,
        "minSubGroups": 2,
    }
    for rack in ("r1", "r2"):
        await hypernode(world, rack, 1, "Node", f"{rack}a", f"{rack}b")
    await world.make(
        group("g", minMember=4, subGroupPolicy=[{**policy, "networkTopology": {"highestTierAllowed": 1}}])
    )
    for part in "01":
        await world.pods(
            f"p{part}-0",
            f"p{part}-1",
            cpu="3",
            labels={"volcano.sh/partition-id": part},
            annotations={"scheduling.k8s.io/group-name": "g"},
        )
    first, second = await where(world, "p0-0", "p0-1"), await where(world, "p1-0", "p1-1")
    assert (len(first), len(second), len(first | second)) == (1, 1, 2)


async def test_a_hypernode_with_a_mistake_harms_only_itself(world: World) -> None:
    await racks(world, "r1")
    broken = {"type": "Node", "selector": {"regexMatch": {"pattern": "r1("}}}
    good = {"type": "Node", "selector": {"regexMatch": {"pattern": f"^{world.name}-r1"}}}
    await world.make(
        {
            "apiVersion": HYPER_NODES.api_version,
            "kind": "HyperNode",
            "metadata": {"name": f"{world.name}-odd"},
            "spec": {"tier": 1, "members": [broken, good]},
        }
    )
    await world.scheduler()
    await world.make(group("g", minMember=2, networkTopology={"highestTierAllowed": 1}))
    await world.pods("a", "b", cpu="3", annotations={"scheduling.k8s.io/group-name": "g"})
    placed = await world.until_bound("a", "b")
    assert set(placed.values()) == {"r1a", "r1b"}
    world.namespace = "default"  # where events about cluster-wide objects are
    await world.until_event("InvalidHyperNode", f"{world.name}-odd", "this is not a regular expression")


async def test_racks_that_claim_one_node_get_a_warning_and_the_first_has_the_node(world: World) -> None:
    await racks(world, "r1")
    await hypernode(world, "x1", 1, "Node", "r1a", "r1b")
    await hypernode(world, "x2", 1, "Node", "r1b")
    await world.scheduler()
    await world.make(group("g", minMember=2, networkTopology={"highestTierAllowed": 1}))
    await world.pods("a", "b", cpu="3", annotations={"scheduling.k8s.io/group-name": "g"})
    assert await where(world, "a", "b") == {"r1"}
    world.namespace = "default"
    await world.until_event(
        "HyperNodeConflict", f"{world.name}-x2", f"is a member of HyperNode {world.name}-x1 as well"
    )
