"""Two schedulers in one cluster, each with its own pool of nodes and its own queue (docs/scale.md)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.processes import Process, command
from tests.e2e.test_accounts import QUEUE, QUEUE_NAME, made
from tests.e2e.world import World

POOLS = ("a", "b")
LABELS = "pod-group.scheduling.sigs.k8s.io"

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]


def scheduler_of(pool: str) -> str:
    return f"phalanx-{pool}"


async def open_pools(world: World) -> None:
    """Create two tainted pools with a node of 4 CPU each, and a queue for each."""
    for pool in POOLS:
        await world.node(f"node-{pool}", cpu="4")
        taint = {"key": "pool", "value": pool, "effect": "NoSchedule"}
        await world.patch_node(
            f"node-{pool}", {"metadata": {"labels": {"pool": pool}}, "spec": {"taints": [taint]}}
        )
        await world.make(made(QUEUE, f"{world.name}-{pool}", weight=1))


async def gang(world: World, name: str, pool: str) -> tuple[str, str]:
    """Create a gang of two pods with 2 CPU each for a pool; return the names of its pods."""
    members = (f"{name}-0", f"{name}-1")
    await world.pods(
        *members,
        cpu="2",
        scheduler=scheduler_of(pool),
        labels={f"{LABELS}/name": name, f"{LABELS}/min-available": "2"},
        annotations={QUEUE_NAME: f"{world.name}-{pool}"},
        nodeSelector={"pool": pool},
        tolerations=[{"key": "pool", "value": pool, "effect": "NoSchedule"}],
    )
    return members


def both() -> list[str]:
    return [word for pool in POOLS for word in ("--scheduler-name", scheduler_of(pool))]


async def filled(world: World) -> None:
    """Run a gang in each pool, and let a second one wait there."""
    await open_pools(world)
    for pool in POOLS:
        await world.scheduler(scheduler_names=(scheduler_of(pool),))
    running = {pool: await gang(world, f"first-{pool}", pool) for pool in POOLS}
    placement = await world.until_bound(*running["a"], *running["b"])
    assert {pod: placement[pod] for pool in POOLS for pod in running[pool]} == {
        pod: f"node-{pool}" for pool in POOLS for pod in running[pool]
    }
    waiting = [pod for pool in POOLS for pod in await gang(world, f"second-{pool}", pool)]
    await world.until_held(*waiting)


async def test_queue_list_shows_the_queues_of_two_schedulers_on_two_pools(world: World) -> None:
    await filled(world)
    code, output = await command("queue", "list", "-o", "json", *both(), "--kubeconfig", world.cluster.kubeconfig)
    assert code == 0, output
    queues: dict[str, Any] = {entry["name"]: entry for entry in json.loads(output)["queues"]}
    for pool in POOLS:
        queue = queues[f"{world.name}-{pool}"]
        assert (queue["used"]["cpu"], queue["pending"]["cpu"]) == ("4", "4")
        assert queue["first"]["name"] == f"gang {world.namespace}/second-{pool}"


async def test_scheduler_of_one_pool_binds_while_the_other_one_is_away(world: World) -> None:
    await open_pools(world)
    first = await world.scheduler(scheduler_names=(scheduler_of("a"),))
    second = await world.scheduler(scheduler_names=(scheduler_of("b"),))
    await first.kill()
    late = await gang(world, "late", "a")
    await world.until_bound(*await gang(world, "running", "b"))
    assert not any([(await world.placement())[pod] for pod in late])
    await world.scheduler(scheduler_names=(scheduler_of("a"),))
    placement = await world.until_bound(*late)
    assert {placement[pod] for pod in late} == {"node-a"}
    await second.stop()


@pytest.mark.slow
async def test_one_page_shows_the_gangs_of_two_schedulers_on_two_pools(world: World, tmp_path: Path) -> None:
    await filled(world)
    address = tmp_path / "address"
    page = await Process.start(
        "dashboard", *both(), "--kubeconfig", world.cluster.kubeconfig, "--address-file", address
    )
    try:
        await page.says("phalanx dashboard: ")
        expected = {f"{turn}-{pool}" for turn in ("first", "second") for pool in POOLS}
        assert expected <= await gangs_of(address.read_text().strip(), len(expected))
    finally:
        await page.end()


async def gangs_of(address: str, count: int) -> set[str]:
    """Return the names of the gangs that the page shows to its user, once there are `count`."""
    url, _, ticket = address.partition("/#login=")
    names: set[str] = set()
    async with asyncio.timeout(60), aiohttp.ClientSession() as session:
        async with session.post(f"{url}/api/v1/login", data=ticket) as answer:
            assert answer.status == 200
            headers = {"Authorization": f"Bearer {(await answer.json())['token']}"}
        while len(names) < count:
            async with session.get(f"{url}/api/v1/tables/gangs", headers=headers) as answer:
                names = {row["name"] for row in (await answer.json())["rows"]} if answer.status == 200 else set()
            await asyncio.sleep(0.2)
    return names
