"""A restart writes nothing that the API has already: statuses of groups that wait, topology, warnings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.paths import Resource
from phalanx.status.verdict_publisher import PublishingPace
from tests.e2e.conftest import install
from tests.e2e.test_native_releases import COMPOSITES, composite, replica, serving
from tests.e2e.test_topology import hypernode, racks
from tests.e2e.world import PODS, Object, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

NATIVE = Resource("scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup")
VOLCANO = Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup")
# The pace of a scheduler: the fault needs statuses that are derived before verdicts are published.
PACE = PublishingPace()
NOISE = ("/leases/", "/configmaps")


def made(resource: Resource, name: str, **spec: Any) -> Object:
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


async def writes_of_a_restart(world: World) -> list[str]:
    """Restart the only scheduler, and return what its successor writes until it rests."""
    (first,) = world.schedulers
    await world.settled(first, quiet=2.5)
    await first.kill()
    second = await world.scheduler(pace=PACE)
    await world.settled(second, quiet=2.5)
    return [write for write in second.wire.writes if not any(word in write for word in NOISE)]


async def test_native_group_that_a_quota_blocks_is_not_written_by_a_restart(world: World) -> None:
    await world.node("n1", cpu="8")
    quota = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
    await world.make(made(quota, "quota", min={"cpu": "1"}, max={"cpu": "1"}))
    await world.scheduler(pace=PACE)
    await world.make(made(NATIVE, "g", schedulingPolicy={"gang": {"minCount": 2}}))
    await world.pods("a", "b", schedulingGroup={"podGroupName": "g"})

    async def blocked() -> Object:
        found = condition(await world.get(NATIVE, "g"), "phalanx.dev/Admitted")
        return found if found.get("status") == "False" else {}

    before = await world.until(blocked, "the group is blocked by the quota")
    assert await writes_of_a_restart(world) == []
    assert await blocked() == before


async def test_composite_group_that_a_quota_blocks_is_not_written_by_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path, "v1alpha3") as world:
        await install(world.cluster.kubeconfig)
        await world.node("n1", cpu="8")
        quota = Resource("scheduling.x-k8s.io", "v1alpha1", "elasticquotas", "ElasticQuota")
        await world.make(made(quota, "quota", min={"cpu": "1"}, max={"cpu": "1"}))
        await world.scheduler(pace=PACE)
        await composite(world)
        await replica(world, 1)
        await replica(world, 2)

        async def blocked() -> list[Object]:
            found = [
                condition(await world.get(COMPOSITES, name), "phalanx.dev/Admitted")
                for name in ("service", "r1", "r2")
            ]
            return found if all(each.get("status") == "False" for each in found) else []

        await world.until(blocked, "the composites are blocked by the quota")
        await world.settled(*world.schedulers, quiet=2.5)
        before = await blocked()
        assert await writes_of_a_restart(world) == []
        assert await blocked() == before


async def test_volcano_group_with_a_gated_member_is_not_written_by_a_restart(world: World) -> None:
    await world.node("n1", cpu="8")
    await world.scheduler(pace=PACE)
    await world.make(made(VOLCANO, "g", minMember=3))
    member = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    await world.pods("a", "b", **member)
    await world.pod("c", schedulingGates=[{"name": "example.com/wait"}], **member)

    async def waits() -> Object:
        found = condition(await world.get(VOLCANO, "g"), "Unschedulable")
        return found if found.get("status") == "True" else {}

    await world.until(waits, "the group waits for its gated member")
    await world.settled(*world.schedulers, quiet=2.5)
    before = await waits()
    assert await writes_of_a_restart(world) == []
    assert await waits() == before


async def test_group_that_lost_a_member_keeps_its_phase_in_a_restart(world: World) -> None:
    await world.node("n1", cpu="2")
    await world.scheduler(pace=PACE)
    await world.make(made(VOLCANO, "g", minMember=2))
    member = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
    await world.pods("a", "b", **member)
    await world.until_bound("a", "b")
    await world.phase("Running", "a", "b")
    await world.delete(PODS, "b")
    await world.pod("c", cpu="2", **member)
    await world.until_status(VOLCANO, "g", phase="Unknown")
    assert await writes_of_a_restart(world) == []


async def test_placed_topology_group_is_not_written_by_a_restart(world: World) -> None:
    await racks(world, "r1", "r2")
    for rack in ("r1", "r2"):
        await hypernode(world, rack, 1, "Node", f"{rack}a", f"{rack}b")
    await world.scheduler(pace=PACE)
    await world.make(made(VOLCANO, "g", minMember=2, networkTopology={"mode": "hard", "highestTierAllowed": 1}))
    await world.pods("a", "b", annotations={"scheduling.k8s.io/group-name": "g"})
    await world.until_bound("a", "b")

    async def told() -> str:
        group = await world.get(VOLCANO, "g")
        return str((group["metadata"].get("annotations") or {}).get("volcano.sh/job-allocated-hypernode", ""))

    await world.until(told, "the group names its HyperNode")
    assert await writes_of_a_restart(world) == []


async def test_warnings_are_not_posted_again_by_a_restart(world: World) -> None:
    await world.node("n1", cpu="8")
    queue = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)
    await world.scheduler(pace=PACE)
    await world.make(made(queue, f"{world.name}-bad", parent=f"{world.name}-absent"))
    sigs = "pod-group.scheduling.sigs.k8s.io"
    await world.pod("invalid", labels={f"{sigs}/name": "bad", f"{sigs}/min-available": "two"})
    await world.pod("lost", labels={sigs: "nowhere"})
    await world.until_event("InvalidPodGroup", "invalid")
    await world.until_event("PodGroupNotFound", "lost")
    world.namespace = "default"  # events of cluster-wide objects
    await world.until_event("ParentNotFound", f"{world.name}-bad")
    world.namespace = world.name
    assert await writes_of_a_restart(world) == []
