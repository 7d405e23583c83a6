"""Spread, affinity and anti-affinity over HTTP: effect of other pods, nodes and namespaces on waiting pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.paths import Resource
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SIGS = "pod-group.scheduling.sigs.k8s.io"
PACKED_BUT_SPREAD = """
actions: allocate
tiers: [{plugins: [{name: predicates}, {name: binpack},
  {name: nodeorder, arguments: {leastrequested.weight: 0, podtopologyspread.weight: 20}}]}]
"""


async def zones(world: World, *names: str) -> None:
    """A node of 4 CPUs in each zone, named as it, with labels of its own."""
    for zone in names:
        await world.node(zone, cpu="4")
        await world.patch_node(zone, {"metadata": {"labels": {ZONE: zone, HOST: zone}}})


def app(name: str, **more: str) -> dict[str, Any]:
    return {"labels": {"app": name, **more}}


def even(name: str) -> dict[str, Any]:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {"topologySpreadConstraints": [constraint | {"labelSelector": {"matchLabels": {"app": name}}}]}


def affinity(kind: str, name: str, key: str = ZONE, **more: Any) -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": name}}, **more}
    return {"affinity": {kind: {REQUIRED: [term]}}}


async def test_a_gang_spreads_over_zones_as_a_whole_or_not_at_all(world: World) -> None:
    await zones(world, "z1", "z2")
    await world.scheduler()
    names = [f"g-{number}" for number in range(3)]
    gang = app("g", **{f"{SIGS}/name": "g", f"{SIGS}/min-available": "3"})
    apart = affinity("podAntiAffinity", "g", HOST)
    await world.pods(*names, cpu="1", **gang, **even("g"), **apart)
    said = await world.until_held(*names, words="2 of the 3 required pods")
    assert "2 node(s) didn't match pod anti-affinity rules" in said["message"]
    await zones(world, "z3")
    placed = await world.until_bound(*names)
    assert sorted(placed.values()) == ["z1", "z2", "z3"]


async def test_pods_bound_before_a_restart_count_for_spread_and_affinity(world: World) -> None:
    await zones(world, "z1", "z2")
    first = await world.scheduler()
    await world.pods("a", "b", cpu="1", **app("web"), **even("web"))
    await world.until_bound("a", "b")
    await first.stop()
    await world.patch_node("z1", {"spec": {"unschedulable": True}})
    await world.scheduler()
    await world.pods("c", cpu="1", **app("web"), **even("web"))
    await world.until_bound("c")
    await world.pods("d", cpu="1", **app("web"), **even("web"))
    said = await world.until_held("d", words="didn't match pod topology spread constraints")
    assert "1 node(s) were unschedulable" in said["message"]
    await world.patch_node("z1", {"spec": {"unschedulable": False}})
    assert (await world.until_bound("d"))["d"] == "z1"


async def test_pods_of_other_schedulers_keep_ours_out_as_long_as_they_are_there(world: World) -> None:
    await zones(world, "z1", "z2")
    guard = affinity("podAntiAffinity", "web", namespaceSelector={"matchLabels": {"team": "red"}})
    await world.pod(
        "guard-1", nodeName=f"{world.name}-z1", schedulerName="default-scheduler", **app("guard"), **guard
    )
    await world.pod(
        "guard-2", nodeName=f"{world.name}-z2", schedulerName="default-scheduler", **app("guard"), **guard
    )
    await world.patch(NAMESPACES, world.namespace, {"metadata": {"labels": {"team": "red"}}})
    await world.scheduler()
    await world.pods("kept-out", cpu="4", **app("web"))
    await world.until_held("kept-out", words="didn't satisfy existing pods anti-affinity rules")
    await world.delete(PODS, "guard-2")
    assert (await world.until_bound("kept-out"))["kept-out"] == "z2"
    await world.pods("too", cpu="1", **app("web"))
    await world.until_held("too", words="didn't satisfy existing pods anti-affinity rules")
    await world.patch(NAMESPACES, world.namespace, {"metadata": {"labels": {"team": "blue"}}})
    assert (await world.until_bound("too"))["too"] == "z1"


async def test_pod_with_affinity_is_bound_near_its_peers(world: World) -> None:
    await zones(world, "z1", "z2")
    await world.scheduler()
    await world.pods("web", cpu="1", **app("web"), **affinity("podAffinity", "db"))
    await world.until_held("web", words="didn't match pod affinity rules")
    await world.pods("db", cpu="1", **app("db"))
    placed = await world.until_bound("db", "web")
    assert placed["db"] == placed["web"]


async def test_pods_of_a_service_are_spread_though_they_do_not_say_so(world: World, tmp_path: Path) -> None:
    await zones(world, "z1", "z2", "z3")
    service = {"selector": {"app": "web"}, "ports": [{"port": 80}]}
    await world.make({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": service})
    policy = tmp_path / "policy.yaml"
    policy.write_text(PACKED_BUT_SPREAD, encoding="utf-8")
    await world.scheduler(config=str(policy))
    await world.pods("a", "b", "c", cpu="1", **app("web"))
    placed = await world.until_bound("a", "b", "c")
    assert sorted(placed.values()) == ["z1", "z2", "z3"]
    await world.pods("d", "e", "f", cpu="1", **app("batch"))
    placed = await world.until_bound("d", "e", "f")
    assert len({placed[name] for name in "def"}) == 1
