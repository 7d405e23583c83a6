"""Volumes from claim to binding: bound ones, matched ones, and ones provisioned for a gang."""

from __future__ import annotations

import asyncio

import pytest

from tests.e2e.storage import CLAIMS, Storage, uses
from tests.e2e.test_gangs import labelled
from tests.e2e.world import PODS, Object, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_pod_is_bound_to_the_node_of_its_volume(world: World) -> None:
    async with Storage(world) as storage:
        for name in ("n1", "n2", "n3"):
            await world.node(name)
        await storage.storage_class("disk")
        await storage.claim("data", "disk")
        volume = await storage.volume("v", "disk", nodes=["n2"])
        await storage.join("data", volume["metadata"]["name"])
        await world.scheduler()
        await world.pod("reader", volumes=uses("data"))
        assert await world.until_bound("reader") == {"reader": "n2"}


async def test_a_missing_claim_is_named_and_its_arrival_wakes_the_pod(world: World) -> None:
    async with Storage(world) as storage:
        await world.node("n1")
        await storage.storage_class("disk")
        await world.scheduler()
        await world.pod("early", volumes=uses("late"))
        await world.until_held("early", words='persistentvolumeclaim "late" not found')
        await storage.claim("late", "disk")
        await world.until_bound("early")


async def test_volumes_of_a_gang_are_there_before_any_of_its_pods_is_bound(world: World) -> None:
    async with Storage(world) as storage:
        storage.provides = False
        await world.node("n1", cpu="2")
        await world.node("n2", cpu="2")
        await storage.storage_class("disk")
        await world.scheduler()
        names = [f"w-{at}" for at in range(4)]
        for name in names:
            await storage.claim(f"data-{name}", "disk")
            await world.pod(name, labels=labelled(4), volumes=uses(f"data-{name}"))

        async def all_selected() -> bool:
            return all((await storage.selected()).values())

        await world.until(all_selected, "every claim has a node")
        assert not any((await world.placement()).values())
        selected = await storage.selected()
        storage.provides = True
        placement = await world.until_bound(*names)
        assert placement == {name: selected[f"data-{name}"] for name in names}
        assert sorted(placement.values()) == ["n1", "n1", "n2", "n2"]


async def test_free_volumes_are_shared_out_among_a_gang(world: World) -> None:
    async with Storage(world) as storage:
        await storage.storage_class("local", provisioner="kubernetes.io/no-provisioner")
        for name in ("n1", "n2", "n3", "n4"):
            await world.node(name)
        for name in ("n2", "n3", "n4"):
            await storage.volume(f"on-{name}", "local", nodes=[name])
        await storage.volume("small", "local", nodes=["n1"], size="1Mi")
        await world.scheduler()
        for at in range(4):
            await storage.claim(f"data-{at}", "local")
            await world.pod(f"w-{at}", labels=labelled(4), volumes=uses(f"data-{at}"))
        words = "3 of the 4 required pods.*didn't find available persistent volumes to bind"
        await world.until_held("w-0", "w-1", "w-2", "w-3", words=words)
        assert not any(item["spec"].get("volumeName") for item in (await storage.claims()).values())
        await storage.volume("big", "local", nodes=["n1"], size="2Gi")
        placement = await world.until_bound("w-0", "w-1", "w-2", "w-3")
        assert sorted(placement.values()) == ["n1", "n2", "n3", "n4"]
        for at in range(4):
            claim = (await storage.claims())[f"data-{at}"]
            wanted = "big" if placement[f"w-{at}"] == "n1" else f"on-{placement[f'w-{at}']}"
            assert claim["spec"]["volumeName"] == storage.name(wanted)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(
    ("method", "path", "nth", "after"),
    [
        ("PATCH", "/persistentvolumeclaims/", 1, False),
        ("PATCH", "/persistentvolumeclaims/", 2, True),
        ("PATCH", "/persistentvolumeclaims/", 4, True),
        ("POST", "/binding$", 1, False),
        ("POST", "/binding$", 2, True),
    ],
)
async def test_a_gang_and_its_volumes_survive_the_scheduler(
    world: World, method: str, path: str, nth: int, after: bool
) -> None:
    async with Storage(world) as storage:
        for name in ("n1", "n2"):
            await world.node(name, cpu="2")
        await storage.storage_class("disk")
        first = await world.scheduler()
        first.wire.die(method, path, nth=nth, after=after)
        names = [f"w-{at}" for at in range(4)]
        for name in names:
            await storage.claim(f"data-{name}", "disk")
            await world.pod(name, labels=labelled(4), volumes=uses(f"data-{name}"))
        async with asyncio.timeout(60):
            await first.wire.dead.wait()
        await first.kill()
        before = {claim: node for claim, node in (await storage.selected()).items() if node}
        await world.scheduler()
        placement = await world.until_bound(*names)
        assert sorted(placement.values()) == ["n1", "n1", "n2", "n2"]
        assert {claim: placement[claim.removeprefix("data-")] for claim in before} == before
        assert sorted(storage.provisioned) == sorted(f"data-{name}" for name in names)


@pytest.mark.slow_but_first
@pytest.mark.parametrize(("nth", "after"), [(1, False), (2, True)])
async def test_reserved_volumes_are_found_again(world: World, nth: int, after: bool) -> None:
    async with Storage(world) as storage:
        await storage.storage_class("local", provisioner="kubernetes.io/no-provisioner")
        names = ("n1", "n2", "n3")
        for name in names:
            await world.node(name)
            await storage.volume(f"on-{name}", "local", nodes=[name])
        first = await world.scheduler()
        first.wire.die("PATCH", "/persistentvolumes/", nth=nth, after=after)
        for at in range(3):
            await storage.claim(f"data-{at}", "local")
            await world.pod(f"w-{at}", labels=labelled(3), volumes=uses(f"data-{at}"))
        async with asyncio.timeout(60):
            await first.wire.dead.wait()
        await first.kill()
        await world.scheduler()
        placement = await world.until_bound("w-0", "w-1", "w-2")
        claims = await storage.claims()
        assert sorted(placement.values()) == list(names)
        for at in range(3):
            assert claims[f"data-{at}"]["spec"]["volumeName"] == storage.name(f"on-{placement[f'w-{at}']}")


async def test_gang_whose_volume_cannot_be_provisioned_is_placed_elsewhere_as_a_whole(world: World) -> None:
    async with Storage(world) as storage:
        storage.rejects = {"n1", "n2"}
        for name in ("n1", "n2", "n3", "n4"):
            await world.node(name, cpu="1")
        await storage.storage_class("disk")
        await world.scheduler()
        for name in ("a", "b"):
            await storage.claim(f"data-{name}", "disk")
            await world.pod(name, labels=labelled(2), volumes=uses(f"data-{name}"))
        placement = await world.until_bound("a", "b")
        assert sorted(placement.values()) == ["n3", "n4"]


async def test_a_driver_attaches_so_many_volumes_and_no_more(world: World) -> None:
    async with Storage(world) as storage:
        await storage.storage_class("disk")
        for name in ("n1", "n2"):
            made = await world.node(name)
            driver: Object = {
                "name": "csi.example.com",
                "nodeID": name,
                "topologyKeys": [],
                "allocatable": {"count": 1},
            }
            await world.make(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSINode",
                    "metadata": {"name": made["metadata"]["name"]},
                    "spec": {"drivers": [driver]},
                }
            )
        await world.scheduler()
        for name in ("a", "b"):
            await storage.claim(name, "disk")
            await world.pod(name, volumes=uses(name))
        placement = await world.until_bound("a", "b")
        assert sorted(placement.values()) == ["n1", "n2"]
        await storage.claim("c", "disk")
        await world.pod("c", volumes=uses("c"))
        await world.pod("a-again", volumes=uses("a"))
        found = await world.until_bound("a-again")
        assert found["a-again"] == placement["a"]
        await world.until_event("FailedScheduling", "c", "node\\(s\\) exceed max volume count")
        await world.delete(PODS, "b")
        assert (await world.until_bound("c"))["c"] == placement["b"]


async def test_a_claim_for_one_pod_only_is_handed_on_when_that_has_left(world: World) -> None:
    async with Storage(world) as storage:
        await world.node("n1")
        await storage.storage_class("disk")
        await storage.claim("data", "disk", accessModes=["ReadWriteOncePod"])
        await world.scheduler()
        await world.pod("first", volumes=uses("data"))
        await world.until_bound("first")
        await world.pod("second", volumes=uses("data"))
        await world.until_event("FailedScheduling", "second", "ReadWriteOncePod access mode already in-use")
        await world.delete(PODS, "first")
        await world.until_bound("second")


async def test_an_unbound_immediate_claim_is_waited_for(world: World) -> None:
    async with Storage(world) as storage:
        await world.node("n1")
        await world.node("n2")
        await storage.storage_class("now", volumeBindingMode="Immediate")
        await storage.claim("data", "now")
        await world.scheduler()
        await world.pod("p", volumes=uses("data"))
        await world.until_held("p", words="pod has unbound immediate PersistentVolumeClaims")
        volume = await storage.volume("v", "now", nodes=["n2"])
        await storage.join("data", volume["metadata"]["name"])
        assert await world.until_bound("p") == {"p": "n2"}


async def test_an_ephemeral_volume_must_be_the_pods_own(world: World) -> None:
    async with Storage(world) as storage:
        await world.node("n1")
        await storage.storage_class("disk")
        await world.scheduler()
        template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
        template["spec"]["storageClassName"] = storage.name("disk")
        volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
        made = await world.pod("p", volumes=volumes)
        await world.until_held("p", words="waiting for ephemeral volume controller to create")
        await storage.claim("p-scratch", "disk")
        await world.until_held("p", words=r"was not created for pod .*/p \(pod is not owner\)")
        owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": made["metadata"]["uid"], "controller": True}
        await world.patch(CLAIMS, "p-scratch", {"metadata": {"ownerReferences": [owner]}})
        await world.until_bound("p")


async def test_a_driver_that_publishes_its_capacity_is_believed(world: World) -> None:
    async with Storage(world) as storage:
        driver = storage.name("csi")
        await world.make(
            {
                "apiVersion": "storage.k8s.io/v1",
                "kind": "CSIDriver",
                "metadata": {"name": driver},
                "spec": {"storageCapacity": True},
            }
        )
        await storage.storage_class("disk", provisioner=driver)
        for name, size in (("n1", "1Gi"), ("n2", "10Gi")):
            await world.node(name)
            await world.make(
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSIStorageCapacity",
                    "metadata": {"name": f"on-{name}"},
                    "storageClassName": storage.name("disk"),
                    "capacity": size,
                    "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": name}},
                }
            )
        await world.scheduler()
        await storage.claim("data", "disk", "5Gi")
        await storage.claim("more", "disk", "50Gi")
        await world.pod("p", volumes=uses("data"))
        await world.pod("q", volumes=uses("more"))
        assert (await world.until_bound("p"))["p"] == "n2"
        await world.until_event("FailedScheduling", "q", "2 node\\(s\\) did not have enough free storage")


async def test_one_writes_a_disk_or_many_read_it(world: World) -> None:
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "shared"}}
    reading = {"name": "d", "gcePersistentDisk": {"pdName": "shared", "readOnly": True}}
    await world.node("n1")
    await world.scheduler()
    await world.pods("r1", "r2", volumes=[reading])
    await world.until_bound("r1", "r2")
    await world.pod("writer", volumes=[disk])
    await world.until_event("FailedScheduling", "writer", "node\\(s\\) had no available disk")
    await world.delete(PODS, "r1", "r2")
    await world.until_bound("writer")
