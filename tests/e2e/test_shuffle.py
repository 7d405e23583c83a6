"""Evictions without a preemptor: loans are reclaimed, or an overloaded node is relieved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_defrag import controller, owned
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

TDM = """
actions: "enqueue, allocate, backfill, shuffle"
tiers:
- plugins: [{{name: gang}}, {{name: conformance}}]
- plugins:
  - {{name: tdm, arguments: {{tdm.revocable-zone.night: "{window}"}}}}
  - {{name: predicates}}
  - {{name: nodeorder}}
"""
RESCHEDULING = """
actions: "enqueue, allocate, backfill, shuffle"
tiers:
- plugins: [{name: gang}, {name: conformance}]
- plugins:
  - name: rescheduling
    arguments:
      interval: 1s
      strategies:
      - {name: lowNodeUtilization, params: {thresholds: {cpu: 30}, targetThresholds: {cpu: 60}}}
  - {name: predicates}
  - {name: nodeorder}
"""
WILLING = {"volcano.sh/preemptable": "true"}


def window(first: int, last: int) -> str:
    """Return the window between two offsets in hours from now, in UTC."""
    hour = time.gmtime().tm_hour
    return f"{(hour + first) % 24:02}:00-{(hour + last) % 24:02}:00"


async def lend(world: World) -> str:
    name: str = (await world.node("lent"))["metadata"]["name"]
    await world.patch_node("lent", {"metadata": {"labels": {"volcano.sh/revocable-zone": "night"}}})
    return name


async def test_a_lent_node_is_used_while_its_window_is_open(world: World, tmp_path: Path) -> None:
    (tmp_path / "policy").write_text(TDM.format(window=window(-2, 2)), encoding="utf-8")
    await lend(world)
    await world.node("own")
    await world.scheduler(config=str(tmp_path / "policy"))
    await world.pod("willing", annotations=WILLING)
    await world.pod("plain")
    assert await world.until_bound("willing", "plain") == {"willing": "lent", "plain": "own"}


async def test_its_pods_leave_when_the_window_has_closed(world: World, tmp_path: Path) -> None:
    (tmp_path / "policy").write_text(TDM.format(window=window(3, 5)), encoding="utf-8")
    node = await lend(world)
    await world.pod("willing", annotations=WILLING, nodeName=node)
    await world.pod("plain", nodeName=node)
    await world.phase("Running", "willing", "plain")
    await world.scheduler(config=str(tmp_path / "policy"))

    async def left() -> bool:
        return list(await world.placement()) == ["plain"]

    await world.until(left, "the pod that agreed to leave has left, and no other")
    event = await world.until_event("Revoked", "willing", "was lent until")
    assert event["type"] in ("Normal", "Warning")


async def test_an_overfull_node_gives_pods_to_one_with_room(world: World, tmp_path: Path) -> None:
    (tmp_path / "policy").write_text(RESCHEDULING, encoding="utf-8")
    full = (await world.node("full", cpu="4"))["metadata"]["name"]
    await world.node("empty", cpu="4")
    for number in range(4):
        await world.make(owned(f"web-{number}", "web", nodeName=full))
        await world.phase("Running", f"web-{number}")
    await world.scheduler(config=str(tmp_path / "policy"))

    async def even() -> dict[str, Any]:
        placement = await world.placement()
        nodes = list(placement.values())
        return placement if sorted(map(nodes.count, ("full", "empty"))) == [2, 2] else {}

    async with controller(world, "web", 4):
        await world.until(even, "two pods have moved")
    await world.until_event("Rescheduled", words="request")
    assert len(await world.list(PODS)) == 4
