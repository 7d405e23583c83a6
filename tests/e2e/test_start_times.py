"""`phalanx why` and `phalanx jobs --start` on a full cluster with limits, and estimates that outlive the
process.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.model.promise_records import decode_starts
from tests.e2e.test_job_command import run
from tests.e2e.test_reserve import full, policy, scheduler, told
from tests.e2e.world import PODS, World
from tests.scheduling.features import starts

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]
__all__ = ["policy"]


async def asked(world: World, policy: str, *arguments: str) -> Any:
    where = ("--config", policy, "--lease-namespace", world.namespace)
    code, output = await run(world, *arguments, *where, "-o", "json")
    assert code == 0, output
    return json.loads(output)


@pytest.mark.slow
async def test_every_waiting_gang_gets_a_start_time_or_the_reason_for_none(world: World, policy: str) -> None:
    await scheduler(world, policy)
    await full(world)
    await world.pod("head", cpu="4", activeDeadlineSeconds=60)
    start = await told(world, "head")
    await world.pod("behind", cpu="4", activeDeadlineSeconds=60)
    await world.pod("huge", cpu="5", activeDeadlineSeconds=60)
    await world.until_held("behind", "huge")

    listed = await asked(world, policy, "jobs", "--start")
    found = {entry["name"]: entry for entry in listed["starts"]}
    assert list(found) == ["head", "behind", "huge"]
    assert found["head"]["start"]["no_later_than"] == start
    assert found["head"]["start"]["basis"] == "by the run-time limit of a running gang"
    behind = found["behind"]["start"]
    assert "no_later_than" not in behind
    assert behind["planned"] > start
    assert behind["reason"] == "NotCalibrated"
    assert found["huge"]["start"]["reason"] == "CannotEverRun"

    for name in ("head", "behind", "huge"):
        why = await asked(world, policy, "why", f"pod/{name}")
        assert {**why["start"], "planned_at": ""} == {**found[name]["start"], "planned_at": ""} or name == "behind"

    code, table = await run(world, "jobs", "--start", "--config", policy, "--lease-namespace", world.namespace)
    assert code == 0
    assert table.splitlines()[0].split()[:3] == ["NAME", "KIND", "QUEUE"]
    code, refused = await run(world, "jobs", "--start", "--state", "Running")
    assert (code, "--start works with" in refused) == (2, True)


@pytest.mark.feature("start-reservations")
async def test_measured_waits_outlive_the_process(world: World, policy: str) -> None:
    first = await scheduler(world, policy)
    await full(world)
    await world.pod("head", cpu="4", activeDeadlineSeconds=60)
    await told(world, "head")
    await world.delete(PODS, "runs")
    await world.until_bound("head")

    async def written() -> str:
        maps = [
            each for each in await world.list(CONFIG_MAPS) if each["metadata"]["name"] == "phalanx-reservations"
        ]
        return str(maps[0]["data"].get("starts.json", "")) if maps else ""

    text = await world.until(written, "the start is written down")
    (start,) = decode_starts(text)[0].promised
    assert start.waited < start.told <= 600 + 60
    await first.kill()
    second = await scheduler(world, policy)
    assert [each.waited for each in starts(second.service.scheduler).observed_starts().promised] == [start.waited]
    await world.settled(second)
    assert await written() == text
    assert not [write for write in second.wire.writes if "configmaps" in write]
