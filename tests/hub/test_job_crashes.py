"""A hub that dies at any write of a job's life: the end is the same, and no two clusters could run it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from pathlib import Path

import pytest

from phalanx.hub.jobs.kinds import JOB, JOB_SET, JobKind
from phalanx.kube.errors import ApiError
from tests.hub import played_jobs
from tests.hub.federation import NAMESPACE, Federation, Json, until
from tests.hub.played_jobs import a_job, a_job_set, condition, get, patch, pods_of, submit, until_running
from tests.hub.test_hub_crashes import killed_at
from tests.hub.test_jobs_over_http import clusters

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(1200)]

ENDS = {JOB: "Complete", JOB_SET: "Completed"}


async def lived(three: Federation, kind: JobKind, name: str) -> Json:
    """Send a job, recall it, send it to another cluster, and end it; return its state at the hub."""
    await submit(three, kind, (a_job if kind is JOB else a_job_set)(name))
    east, north = three.members["east"], three.members["north"]
    await until_running(east, name)
    await patch(
        three.hub,
        kind,
        name,
        {"metadata": {"annotations": {"phalanx.dev/suspend": "true", "phalanx.dev/clusters": "north"}}},
    )

    async def told_to_end() -> bool:
        """End the running pods as their kubelet would."""
        for pod in await pods_of(east, name):
            if pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") == "Running":
                with contextlib.suppress(ApiError):
                    await east.phase("Failed", pod["metadata"]["name"])
        return await get(east, kind, name) is None and not await pods_of(east, name)

    await until(told_to_end, f"{name} leaves east", await three.record(name))
    await patch(three.hub, kind, name, {"metadata": {"annotations": {"phalanx.dev/suspend": None}}})
    await until_running(north, name)
    await played_jobs.end_pods(north, name)
    job = await condition(three, kind, name, ENDS[kind])
    status = await three.until_record(name, phase="Ended")
    return {
        "conditions": sorted(each["type"] for each in job["status"]["conditions"] if each["status"] == "True"),
        "ended": (status["cluster"], status["succeeded"], status.get("failed", 0)),
        "east": await get(east, kind, name),
        "west": await get(three.members["west"], kind, name),
    }


async def watched(three: Federation, kind: JobKind, name: str, life: asyncio.Task[Json]) -> Json:
    """Looks all the time where it could run, until its life is over."""
    while not life.done():
        where = set()
        for site in three.members.values():
            copy = await get(site, kind, name)
            if copy is not None and not copy["spec"].get("suspend"):
                where.add(site.name)
            where |= {site.name for pod in await pods_of(site, name) if pod["spec"].get("nodeName")}
        assert len(where) <= 1, f"{name} may run in {where}"
        await asyncio.sleep(0.02)
    return await life


@pytest.mark.parametrize("kind", [JOB, JOB_SET], ids=["Job", "JobSet"])
async def test_hub_killed_at_any_write_reaches_the_same_end_state_of_a_job(tmp_path: Path, kind: JobKind) -> None:
    async with clusters(tmp_path) as three:
        await three.start_hub()
        three.net.writes.clear()
        expected = await lived(three, kind, "calm")
        count = sum("memberclusters" not in write for write in three.net.writes)
        assert count > 10
        await three.kill_hub()
        for number in itertools.count(1):
            name = f"g{number}"
            life = asyncio.create_task(lived(three, kind, name))
            killing = asyncio.create_task(killed_at(three, number, after=number % 2 == 0))
            try:
                found = await watched(three, kind, name, life)
                if not three.net.dead.is_set() and not killing.done():
                    # (A busy machine publishes several changes in one write.)
                    assert number > 10, f"{number} writes; {count} in a calm life"
                    break
                await killing
            finally:
                for task in (life, killing):
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError, AssertionError):
                        await task
            assert found == expected, f"killed at write {number}"
            await three.hub.client.delete(kind.resource.path(NAMESPACE, name), propagation="Background")
            await three.until_forgotten(name)
            await three.kill_hub()
