"""A hub that dies at any of its writes and starts again: the end is the same, and no gang may start twice."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path
from typing import Any

import pytest

from phalanx.kube.errors import ApiError
from tests.hub.federation import Federation, Json, federation, until

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(900)]


async def watched(three: Federation, life: asyncio.Task[Json]) -> None:
    """Looks all the time where pods could start, until the life of the gangs is over."""
    while not life.done():
        for gang, where in (await three.startable()).items():
            assert len(where) <= 1, f"{gang} may start in {where}"
        await asyncio.sleep(0.02)
    await life


async def lived(three: Federation, name: str) -> Json:
    """Send a gang, recall it, send it to another cluster, and end it; return its state at the hub."""
    pods = (f"{name}-0", f"{name}-1")
    east, north = three.members["east"], three.members["north"]
    await three.gang(name)
    await three.until_bound("east", *pods)
    await east.phase("Running", *pods)
    await three.until_phase("Running", *pods)
    await three.annotate(name, suspend="true", clusters="north")

    async def told_to_end() -> bool:
        found = [pod for key, pod in (await east.pods()).items() if key in pods]
        for pod in found:
            if pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") == "Running":
                with contextlib.suppress(ApiError):  # a concurrent deletion is possible
                    await east.phase("Failed", pod["metadata"]["name"])  # its kubelet has ended it
        return not found

    await until(told_to_end, f"{name} leaves east")
    await three.annotate(name, suspend=None)
    await three.until_bound("north", *pods)
    await north.phase("Running", *pods)
    # Each phase is mirrored before the next, so that each life has the same writes.
    await three.until_phase("Running", *pods)
    await north.phase("Succeeded", *pods)
    await three.until_phase("Succeeded", *pods)
    status = await three.until_record(name, phase="Ended")
    return {
        "phases": [pod["status"]["phase"] for key, pod in sorted((await three.hub.pods()).items()) if key in pods],
        "ended": (status["phase"], status["cluster"], status["succeeded"], status.get("failed", 0)),
        "east": sorted(key for key in await east.pods() if key in pods),
        "north": sorted(key for key in await north.pods() if key in pods),
    }


async def killed_at(three: Federation, number: int, after: bool) -> None:
    """The hub starts, dies at its write of this number, and starts again for good."""
    three.net.writes.clear()
    three.net.dies_at = (number, after)
    await three.start_hub()
    await three.net.dead.wait()
    await three.kill_hub()
    three.net.dies_at = None
    await three.start_hub()


async def test_hub_killed_at_any_write_reaches_the_same_end_state_of_a_gang(tmp_path: Path) -> None:
    async with federation(tmp_path) as three:
        for cost, (name, site) in enumerate(three.members.items()):
            await site.node("n1", "64")
            await three.join(name, cost=cost)
        await three.start_hub()
        three.net.writes.clear()
        expected = await lived(three, "calm")
        # (The number of status writes about member clusters varies by one.)
        count = sum("memberclusters" not in write for write in three.net.writes)
        assert count > 20
        await three.kill_hub()
        for number in itertools.count(1):
            name = f"g{number}"
            life = asyncio.create_task(lived(three, name))
            killing = asyncio.create_task(killed_at(three, number, after=number % 2 == 0))
            try:
                await watched(three, life)
                if not three.net.dead.is_set() and not killing.done():
                    # (A busy machine publishes several changes in one write.)
                    assert number > 20, f"{number} writes; {count} in a calm life"
                    break
                await killing
            finally:
                for task in (life, killing):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, AssertionError):
                        await task
            found: dict[str, Any] = life.result()
            assert found == renamed(expected, name), f"killed at write {number}"
            await three.delete_gang(name)
            await three.until_forgotten(name)
            await three.kill_hub()


def renamed(expected: Json, name: str) -> Json:
    """Return the expected state for a gang of another name."""
    return {**expected, "north": [each.replace("calm", name) for each in expected["north"]]}
