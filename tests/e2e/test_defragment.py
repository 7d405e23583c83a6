"""The action `defragment` on an API server: evictions are recorded, executed and published; a restart preserves
the budget.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.core_resources import CONFIG_MAPS
from tests.e2e.test_defrag import ask, controller, owned
from tests.e2e.world import World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POLICY = """
actions: "enqueue, allocate, backfill, defragment"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}, {name: predicates}, {name: binpack}]}]
configurations:
- name: defragment
  arguments: {schedule: FREQ=HOURLY, duration: 2h, interval: 1m, minRunSeconds: 0, maxEvictionsPerHour: 2}
"""


async def start(world: World, tmp_path: Path) -> Any:
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    return await world.scheduler(config=str(path), lease_namespace=world.namespace)


async def fragmented(world: World, prefix: str) -> None:
    """Two nodes of four CPUs, each half used; a pod requests a whole node."""
    for number in (1, 2):
        node = (await world.node(f"{prefix}{number}", cpu="4"))["metadata"]["name"]
        for place in range(2):
            await world.make(owned(f"web-{prefix}{number}-{place}", f"web-{prefix}", nodeName=node))
            await world.phase("Running", f"web-{prefix}{number}-{place}")
    await world.pod(f"whole-{prefix}", cpu="4")


async def booked(world: World) -> list[int]:
    found = [
        each for each in await world.list(CONFIG_MAPS) if each["metadata"]["name"] == "phalanx-defragmentation"
    ]
    entries = json.loads(found[0]["data"]["evictions.json"])["evictions"] if found else []
    return [entry["pods"] for entry in entries]


@pytest.mark.feature("defragmentation")
async def test_defragment_moves_pods_for_a_waiting_pod_until_the_budget_is_spent(
    world: World, tmp_path: Path
) -> None:
    await fragmented(world, "a")
    first = await start(world, tmp_path)
    async with controller(world, "web-a", 4):
        await world.until_bound("whole-a")
        await world.until_event("Rescheduled", words="there is room for it on")
    assert await booked(world) == [2]
    # Another process knows only of the recorded evictions.
    await first.kill()
    await fragmented(world, "b")
    await start(world, tmp_path)
    await world.until_held("whole-b", words="defragmentation can move 0 more this hour")
    assert await booked(world) == [2]


async def test_defragment_schedule_decides_the_time_and_the_pods_to_move(world: World, tmp_path: Path) -> None:
    await fragmented(world, "c")
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY)
    words = ("--schedule", "--config", str(path), "--lease-namespace", world.namespace)
    code, output = await ask(world, *words)
    assert code == 0
    assert "Window:          open now, until" in output
    assert "Evictions left:  2 of 2 per hour" in output
    assert f"2 pods, to start pod {world.namespace}/whole-c" in output
    assert len(re.findall(rf"{world.namespace}/web-c\d-\d +{world.name}-c\d +{world.name}-c\d", output)) == 2
    code, output = await ask(world, "--schedule")
    assert code == 1
    assert "the policy has no action defragment" in output
