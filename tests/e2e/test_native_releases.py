"""Kubernetes' own groups as other releases serve them, or not at all: each test has a server of its own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.auth.config import load_config
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource
from phalanx_local.options import ServerOptions
from phalanx_local.server import ApiServer
from tests.e2e.clock import passing
from tests.e2e.world import Cluster, Object, World, condition

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

API = "scheduling.k8s.io"
BETA = Resource(API, "v1beta1", "podgroups", "PodGroup")
COMPOSITES = Resource(API, "v1alpha3", "compositepodgroups", "CompositePodGroup")
SCHEDULED = "CompositePodGroupInitiallyScheduled"


@contextlib.asynccontextmanager
async def serving(directory: Path, version: str) -> AsyncIterator[World]:
    with passing():
        async with _serving(directory, version) as world:
            yield world


@contextlib.asynccontextmanager
async def _serving(directory: Path, version: str) -> AsyncIterator[World]:
    controllers = frozenset({"definitions", "garbage", "podgroups"})
    server = ApiServer(ServerOptions(controllers=controllers, native_groups=version))  # type: ignore[arg-type]
    await server.start()
    kubeconfig = directory / "kubeconfig"
    server.write_kubeconfig(kubeconfig)
    async with KubeClient(load_config(str(kubeconfig))) as client:
        world = World(Cluster(kubeconfig, client, server))
        await world.open()
        try:
            yield world
        finally:
            await world.close()
            await server.stop()


def native(kind: str, name: str, version: str = "v1beta1", **spec: Any) -> Object:
    return {"apiVersion": f"{API}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}


def gang(least: int) -> Object:
    return {"gang": {"minCount": least}}


async def until_told(world: World, resource: Resource, name: str, kind: str, status: str, reason: str) -> Object:
    async def told() -> Object:
        found = condition(await world.get(resource, name), kind)
        return found if (found.get("status"), found.get("reason")) == (status, reason) else {}

    said: Object = await world.until(told, f"{name} says {kind} {status} {reason}")
    return said


async def test_1_35_replicas_of_a_workload_start_each_for_itself(tmp_path: Path) -> None:
    async with serving(tmp_path, "v1alpha1") as world:
        await world.node("n1", cpu="5")
        await world.scheduler()
        groups = [{"name": "g", "policy": gang(3)}]
        await world.make(native("Workload", "w", "v1alpha1", podGroups=groups))
        for replica, members in (("0", 3), ("1", 3), ("2", 2)):
            reference = {"name": "w", "podGroup": "g", "podGroupReplicaKey": replica}
            await world.pods(*(f"p{replica}{number}" for number in range(members)), workloadRef=reference)
        await world.until_bound("p00", "p01", "p02")
        await world.until_held("p10", "p11", "p12", words="only 2 of the 3 required pods of gang .*/w/g/1 fit")
        await world.until_held("p20", "p21", words="have 2 of 3 pods")


async def test_1_37_the_minimum_may_change(tmp_path: Path) -> None:
    async with serving(tmp_path, "v1beta1") as world:
        await world.node("n1")
        await world.scheduler()
        await world.make(native("PodGroup", "g", schedulingPolicy=gang(3)))
        await world.pods("a", "b", schedulingGroup={"podGroupName": "g"})
        await world.until_held("a", "b", words="have 2 of 3 pods")
        told = await until_told(world, BETA, "g", "PodGroupInitiallyScheduled", "False", "Unschedulable")
        assert told["observedGeneration"] == 1
        await world.patch(BETA, "g", {"spec": {"schedulingPolicy": gang(2)}})
        await world.until_bound("a", "b")
        told = await until_told(world, BETA, "g", "PodGroupInitiallyScheduled", "True", "Scheduled")
        assert told["observedGeneration"] == 2
        await world.patch(BETA, "g", {"spec": {"schedulingPolicy": gang(9)}})
        await world.settled(*world.schedulers)
        assert all((await world.placement()).values()), "a raised minimum evicts nobody"
        told = condition(await world.get(BETA, "g"), "PodGroupInitiallyScheduled")
        assert told["status"] == "True"


async def test_1_38_group_of_v1_starts_as_a_whole(tmp_path: Path) -> None:
    stable = Resource(API, "v1", "podgroups", "PodGroup")
    async with serving(tmp_path, "v1") as world:
        await world.node("n1")
        await world.scheduler()
        await world.make(native("PodGroup", "g", "v1", schedulingPolicy=gang(2)))
        await world.pod("a", schedulingGroup={"podGroupName": "g"})
        await world.until_held("a", words="have 1 of 2 pods")
        await world.pod("b", schedulingGroup={"podGroupName": "g"})
        await world.until_bound("a", "b")
        await until_told(world, stable, "g", "PodGroupInitiallyScheduled", "True", "Scheduled")


async def test_1_37_members_have_the_priority_of_their_group(tmp_path: Path) -> None:
    async with serving(tmp_path, "v1beta1") as world:
        await world.node("n1")
        high = {"apiVersion": f"{API}/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 10}
        await world.make(high)
        await world.scheduler()
        await world.make(native("PodGroup", "g", schedulingPolicy=gang(1), priorityClassName="high"))
        await world.pod("a", schedulingGroup={"podGroupName": "g"})
        said = await world.until_held("a", reason="SchedulerError")
        assert "has priority 0, but its PodGroup has 10" in said["message"]
        await until_told(world, BETA, "g", "PodGroupInitiallyScheduled", "False", "SchedulerError")
        await world.make(native("PodGroup", "h", schedulingPolicy=gang(1), priorityClassName="high"))
        await world.pod("b", priorityClassName="high", schedulingGroup={"podGroupName": "h"})
        await world.until_bound("b")


async def composite(world: World) -> None:
    """A service of which two of three replicas must start, each a leader with two workers."""
    leaf = [
        {"name": "leader", "schedulingPolicy": gang(1)},
        {"name": "workers", "schedulingPolicy": gang(2)},
    ]
    replica = {"name": "replica", "schedulingPolicy": {"gang": {"minGroupCount": 2}}, "podGroupTemplates": leaf}
    top = {
        "name": "service",
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        "compositePodGroupTemplates": [replica],
    }
    await world.make(native("Workload", "w", compositePodGroupTemplates=[top]))
    await make_composite(world, "service", "service")


async def make_composite(world: World, name: str, template: str, parent: str = "") -> None:
    spec: Object = {
        "workloadRef": {"workloadName": "w", "templateName": template},
        "schedulingPolicy": {"gang": {"minGroupCount": 2}},
        **({"parentCompositePodGroupName": parent} if parent else {}),
    }
    await world.make(native("CompositePodGroup", name, "v1alpha3", **spec))


async def replica(world: World, number: int) -> list[str]:
    """One replica with its pods; their names."""
    name = f"r{number}"
    await make_composite(world, name, "replica", parent="service")
    names = []
    for role, members in (("leader", 1), ("workers", 2)):
        spec: Object = {
            "workloadRef": {"workloadName": "w", "templateName": role},
            "parentCompositePodGroupName": name,
            "schedulingPolicy": gang(members),
        }
        await world.make(native("PodGroup", f"{name}-{role}", **spec))
        made = [f"{name}-{role}-{index}" for index in range(members)]
        await world.pods(*made, schedulingGroup={"podGroupName": f"{name}-{role}"})
        names += made
    return names


async def test_groups_of_groups_start_as_many_as_they_need_together(tmp_path: Path) -> None:
    async with serving(tmp_path, "v1alpha3") as world:
        await world.node("n1", cpu="5")
        await world.scheduler()
        await composite(world)
        first = await replica(world, 1)
        await world.until_held(*first, words="service: only 1 of the 2 required groups can start")
        second = await replica(world, 2)
        said = await world.until_held(
            *first, words="only 1 of the 2 required groups can start; gang .*r2-workers: "
        )
        assert "1 of the 2 required pods" in said["message"]
        told = await until_told(world, COMPOSITES, "service", SCHEDULED, "False", "Unschedulable")
        assert told["message"].startswith("0 of the 2 required groups placed; gang ")
        await world.node("n2", cpu="2")
        await world.until_bound(*first, *second)
        for name in ("service", "r1", "r2"):
            await until_told(world, COMPOSITES, name, SCHEDULED, "True", "Scheduled")
        third = await replica(world, 3)
        await world.until_held("r3-leader-0", words="CompositePodGroup .*r3: only 1 of the 2 required groups")
        await world.until_held("r3-workers-0", "r3-workers-1", words="of the 2 required pods")
        await world.node("n3")
        await world.until_bound(*third)
        await world.settled(*world.schedulers)


async def test_invalid_composite_gets_a_reason_in_its_status(tmp_path: Path) -> None:
    async with serving(tmp_path, "v1alpha3") as world:
        await world.node("n1")
        await world.scheduler()
        await composite(world)
        await make_composite(world, "x", "replica", parent="y")
        await make_composite(world, "y", "replica", parent="x")
        spec: Object = {
            "workloadRef": {"workloadName": "w", "templateName": "leader"},
            "parentCompositePodGroupName": "x",
            "schedulingPolicy": gang(1),
        }
        await world.make(native("PodGroup", "g", **spec))
        await world.pod("a", schedulingGroup={"podGroupName": "g"})
        await world.until_held("a", words="is its own ancestor", reason="SchedulerError")
        for name in ("x", "y"):
            told = await until_told(world, COMPOSITES, name, SCHEDULED, "False", "Invalid")
            assert "is its own ancestor" in told["message"]


async def test_annotations_replace_a_missing_workload_api_and_pods_get_the_reason(tmp_path: Path) -> None:
    async with serving(tmp_path, "none") as world:
        await world.node("n1")
        await world.scheduler()
        template = {"scheduling.k8s.io/group-template-name": "workers"}
        await world.pod("lost", annotations=template, schedulingGroup={"podGroupName": "g"})
        event = await world.until_event("NativeGroupsNotServed", "lost", words="phalanx.dev/pod-group")
        assert event["type"] == "Warning"
        await world.until_bound("lost")
        own = {"phalanx.dev/pod-group": "g", "phalanx.dev/min-count": "2"}
        await world.pod("a", annotations=own)
        await world.until_held("a", words="1 of the 2 required pods")
        await world.pod("b", annotations=own)
        await world.until_bound("a", "b")


async def test_api_that_disappears_and_returns_disturbs_no_other_gang(tmp_path: Path) -> None:
    """A server that is restarted by another release, with the same objects."""
    with passing():
        await come_and_go(tmp_path)


async def come_and_go(tmp_path: Path) -> None:
    options: dict[str, Any] = {"token": "t", "data": tmp_path / "data", "insecure": True}
    first = ApiServer(ServerOptions(native_groups="none", **options))
    await first.start()
    port = int(first.url.rpartition(":")[2])
    kubeconfig = tmp_path / "kubeconfig"
    first.write_kubeconfig(kubeconfig)
    async with KubeClient(load_config(str(kubeconfig))) as client:
        world = World(Cluster(kubeconfig, client, first))
        await world.open()
        await world.node("n1")
        await world.scheduler()
        own = {"phalanx.dev/pod-group": "mine", "phalanx.dev/min-count": "2"}
        await world.pods("a", annotations=own)
        await world.until_held("a", words="1 of the 2 required pods")
        await first.stop()
        second = ApiServer(ServerOptions(native_groups="v1beta1", port=port, **options))
        await second.start()
        world.cluster.server = second
        try:
            await world.make(native("PodGroup", "g", schedulingPolicy=gang(2)))
            await world.pods("x", "y", schedulingGroup={"podGroupName": "g"})
            await world.until_bound("x", "y")
            await world.pod("b", annotations=own)
            await world.until_bound("a", "b")
        finally:
            await world.close()
            await second.stop()


async def test_a_group_of_groups_that_is_preempted_as_a_whole_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path, "v1alpha3") as world:
        await world.node("n1", cpu="2")
        document = {"apiVersion": f"{API}/v1", "kind": "PriorityClass", "value": 1000}
        await world.make({**document, "metadata": {"name": "high"}})
        await world.scheduler()
        leaf = {"name": "leaf", "schedulingPolicy": gang(1)}
        top = {"name": "top", "schedulingPolicy": {"basic": {}}, "podGroupTemplates": [leaf]}
        await world.make(native("Workload", "w", compositePodGroupTemplates=[top]))
        spec: Object = {
            "workloadRef": {"workloadName": "w", "templateName": "top"},
            "schedulingPolicy": {"gang": {"minGroupCount": 2}},
            "disruptionMode": {"all": {}},
        }
        await world.make(native("CompositePodGroup", "c", "v1alpha3", **spec))
        for name in ("a", "b"):
            child: Object = {
                "workloadRef": {"workloadName": "w", "templateName": "leaf"},
                "parentCompositePodGroupName": "c",
                "schedulingPolicy": gang(1),
            }
            await world.make(native("PodGroup", name, **child))
            grace = {"terminationGracePeriodSeconds": 30}
            await world.pod(name, schedulingGroup={"podGroupName": name}, **grace)
        await world.until_bound("a", "b")
        await world.phase("Running", "a", "b")
        await world.pod("vip", priorityClassName="high")
        told = await until_told(world, COMPOSITES, "c", "DisruptionTarget", "True", "PreemptionByScheduler")
        assert "vip" in told["message"]
        assert condition(await world.get(COMPOSITES, "c"), SCHEDULED)["status"] == "True"
