"""Promised starts on an API server: published on pods, enforced by time limits, preserved over a restart."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.core_resources import CONFIG_MAPS
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.feature("start-reservations"), pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POLICY = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
"""
START = re.compile(r"It starts no later than (\S+),")


@pytest.fixture
def policy(tmp_path: Path) -> str:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return str(path)


async def promised(world: World) -> str:
    """Return the promises recorded in this world's namespace."""
    found = [each for each in await world.list(CONFIG_MAPS) if each["metadata"]["name"] == "phalanx-reservations"]
    return str(found[0]["data"]["reservations.json"]) if found else ""


async def told(world: World, name: str) -> str:
    condition = await world.until_held(name, words="It starts no later than")
    found = START.search(condition["message"])
    assert found is not None
    return found[1]


async def scheduler(world: World, policy: str) -> Any:
    return await world.scheduler(config=policy, lease_namespace=world.namespace)


async def full(world: World) -> None:
    """A node of which half comes free when a pod is killed for its deadline."""
    await world.node("n1", cpu="4")
    await world.pod("runs", cpu="2", activeDeadlineSeconds=600)
    await world.until_bound("runs")
    started = (await world.get(PODS, "runs"))["metadata"]["creationTimestamp"]
    await world.patch(PODS, "runs", {"status": {"phase": "Running", "startTime": started}}, status=True)


async def test_only_a_job_that_ends_in_time_is_backfilled_before_a_promised_start(
    world: World, policy: str
) -> None:
    await scheduler(world, policy)
    await full(world)
    await world.pod("head", cpu="4", activeDeadlineSeconds=60)
    await told(world, "head")
    await world.pod("slow", cpu="2", activeDeadlineSeconds=6000)
    await world.pod("endless", cpu="2")
    await world.until_held("slow", "endless", words="reserved for units that start before the pod would end")
    await world.pod("quick", cpu="2", activeDeadlineSeconds=300)
    await world.until_bound("quick")


@pytest.mark.parametrize("kind", ["killed", "stopped"])
async def test_a_promise_outlives_the_process(world: World, policy: str, kind: str) -> None:
    first = await scheduler(world, policy)
    await full(world)
    await world.pod("head", cpu="4", activeDeadlineSeconds=60)
    start = await told(world, "head")
    written = await world.until(lambda: promised(world), "the promise is written down")
    await (first.kill() if kind == "killed" else first.stop())
    # A job arrives that another plan would have placed before it.
    await world.pod("endless", cpu="2")
    second = await scheduler(world, policy)
    await world.until_held("endless", words="reserved for units that start before")
    assert await told(world, "head") == start
    assert await promised(world) == written
    assert not [write for write in second.wire.writes if "configmaps" in write]


async def test_foreign_edit_of_the_promise_record_affects_only_promises(world: World, policy: str) -> None:
    first = await scheduler(world, policy)
    await full(world)
    await world.pod("head", cpu="4", activeDeadlineSeconds=60)
    await world.until(lambda: promised(world), "the promise is written down")
    await first.kill()
    await world.patch(CONFIG_MAPS, "phalanx-reservations", {"data": {"reservations.json": '{"version": 7}'}})
    await scheduler(world, policy)
    await world.until_held("head", words="It starts no later than")
    await world.pod("endless", cpu="2")
    await world.until_held("endless", words="reserved for units that start before")
