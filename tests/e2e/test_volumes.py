"""Volumes from claim to binding: those that are there, those that are matched, those that are made for a gang."""

from __future__ import annotations

import pytest

from tests.e2e.storage import Storage, uses
from tests.e2e.test_gangs import labelled
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


async def test_a_pod_goes_where_its_volume_is(world: World) -> None:
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
