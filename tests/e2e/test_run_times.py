"""Pods that exceed their run time on a real API: reported or ended, as the current policy says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from phalanx.dialects.times import format_time
from tests.e2e.world import PODS, World

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{{plugins: [{{name: gang}}, {{name: predicates}}]}}]
phalanx: {{exceededRunTimes: {exceeded}}}
"""


async def overdue(world: World, tmp_path: Path, exceeded: str) -> Path:
    """A pod that has run for an hour and may run for ten minutes."""
    path = tmp_path / "policy"
    path.write_text(POLICY.format(exceeded=exceeded), encoding="utf-8")
    await world.node("n1")
    await world.scheduler(config=str(path))
    await world.pod("p", annotations={"phalanx.dev/max-run-time": "10m"})
    await world.until_bound("p")
    status = {"phase": "Running", "startTime": format_time(int(time.time()) - 3600)}
    await world.patch(PODS, "p", {"status": status}, status=True)
    await world.until_event("RunTimeExceeded", "p", "longer than the 10m of annotation phalanx.dev/max-run-time")
    return path


async def leaving(world: World) -> bool:
    found = [each for each in await world.list(PODS) if each["metadata"]["name"] == "p"]
    return not found or "deletionTimestamp" in found[0]["metadata"]


@pytest.mark.feature("run-times")
async def test_pod_that_exceeds_its_run_time_is_reported_and_runs_until_the_policy_ends_it(
    world: World, tmp_path: Path
) -> None:
    path = await overdue(world, tmp_path, "report")
    assert not await leaving(world)
    path.write_text(POLICY.format(exceeded="kill"), encoding="utf-8")
    await world.until_event("Revoked", "p")
    await world.until(lambda: leaving(world), "the pod is told to leave")
