"""Jobs managed by the hub: one cluster runs each, and the job at the hub shows its state."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from phalanx.hub.jobs.kinds import JOB, JOB_SET
from tests.hub import played_jobs
from tests.hub.federation import NAMESPACE, Federation, federation, until
from tests.hub.played_jobs import a_job, a_job_set, condition, get, patch, pods_of, submit, until_running

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio, pytest.mark.timeout(300)]


@contextlib.asynccontextmanager
async def clusters(folder: Path) -> AsyncIterator[Federation]:
    """A hub with east, the cheapest, north and west, where controllers of Jobs and JobSets run."""
    definitions = [played_jobs.JOB_SET_DEFINITION]
    async with federation(folder, played_jobs.CONTROLLERS, definitions) as three:
        for cost, (name, site) in enumerate(three.members.items()):
            await site.node("n1", "64")
            await three.join(name, cost=cost)
        playing = [asyncio.create_task(played_jobs.play_job_sets(site)) for site in three.members.values()]
        try:
            yield three
        finally:
            for task in playing:
                task.cancel()
            results = await asyncio.gather(*playing, return_exceptions=True)
            assert all(isinstance(each, asyncio.CancelledError) for each in results), results


async def test_a_job_runs_in_one_cluster_and_its_status_comes_back(tmp_path: Path) -> None:
    async with clusters(tmp_path) as three:
        await three.start_hub()
        await submit(three, JOB, a_job("train"))
        east = three.members["east"]
        await until_running(east, "train")
        copy = await get(east, JOB, "train")
        assert copy is not None
        assert "managedBy" not in copy["spec"]
        assert {pod["metadata"]["labels"]["phalanx.dev/dispatch-uid"] for pod in await pods_of(east, "train")} == {
            copy["metadata"]["labels"]["phalanx.dev/dispatch-uid"]
        }
        assert not await pods_of(three.hub, "train")
        await played_jobs.end_pods(east, "train")
        job = await condition(three, JOB, "train", "Complete")
        assert (job["status"]["succeeded"], job["status"]["completedIndexes"]) == (2, "0,1")
        status = await three.until_record("train", phase="Ended", cluster="east")
        assert status["succeeded"] == 1
        for name in ("north", "west"):
            assert await get(three.members[name], JOB, "train") is None
        # A job deleted at the hub is deleted at the member, also by a hub that was down at the deletion.
        await three.kill_hub()
        await three.hub.client.delete(JOB.resource.path(NAMESPACE, "train"), propagation="Background")
        await three.start_hub()
        await three.until_forgotten("train")
        await three.until_empty("east")
        assert await get(east, JOB, "train") is None


async def test_a_job_does_not_run_twice_because_its_clusters_server_has_just_started(tmp_path: Path) -> None:
    async with clusters(tmp_path) as three:
        await three.start_hub(patience=2)
        for name in three.members:
            await three.until_member(name, "True")
        await submit(three, JOB_SET, a_job_set("train"))
        east = three.members["east"]
        await until_running(east, "train")
        url = east.server.url
        three.net.cut.add(url)
        await three.until_member("east", "Unknown", "Unreachable")
        three.net.beginning[url] = {JOB_SET.resource.group}
        three.net.cut.clear()

        async def hidden() -> bool:
            return three.net.hidden[url] >= 5

        await until(hidden, "the hub has looked for the kind again and again")
        three.net.beginning.clear()
        await three.until_member("east", "True")
        # The hub sends the next job there only when it knows the jobs that run there.
        await submit(three, JOB_SET, a_job_set("later"))
        await until_running(east, "later")
        record = await three.record("train")
        assert (record["phase"], record["cluster"], record["epoch"]) == ("Granted", "east", 1)
        for name in ("north", "west"):
            assert await get(three.members[name], JOB_SET, "train") is None


async def test_suspension_holds_a_job_where_it_is_and_the_annotation_takes_it_back(tmp_path: Path) -> None:
    async with clusters(tmp_path) as three:
        await three.start_hub()
        job = a_job("train")
        job["spec"]["suspend"] = True
        await submit(three, JOB, job)
        await submit(three, JOB, a_job("other"))
        east, north = three.members["east"], three.members["north"]
        await until_running(east, "other")
        # No cluster is asked about a suspended job.
        assert not await three.record("train")
        await patch(three.hub, JOB, "train", {"spec": {"suspend": False}})
        await until_running(east, "train")
        await three.kill_hub()
        await patch(three.hub, JOB, "train", {"spec": {"suspend": True}})
        await three.start_hub()
        await condition(three, JOB, "train", "Suspended")

        async def paused() -> bool:
            return not await pods_of(east, "train")

        await until(paused, "the pods of train have gone")
        await three.until_record("train", phase="Granted", cluster="east", epoch=1)
        await patch(three.hub, JOB, "train", {"spec": {"suspend": False}})
        await until_running(east, "train")
        taken = {"metadata": {"annotations": {"phalanx.dev/suspend": "true", "phalanx.dev/clusters": "north"}}}
        await patch(three.hub, JOB, "train", taken)

        async def gone() -> bool:
            return await get(east, JOB, "train") is None and not await pods_of(east, "train")

        await until(gone, "train has left east", await three.record("train"))
        await patch(three.hub, JOB, "train", {"metadata": {"annotations": {"phalanx.dev/suspend": None}}})
        await until_running(north, "train")
        await played_jobs.end_pods(north, "train")
        await condition(three, JOB, "train", "Complete")
        await three.until_record("train", phase="Ended", cluster="north", epoch=2)


async def test_job_set_is_sent_whole(tmp_path: Path) -> None:
    async with clusters(tmp_path) as three:
        await three.start_hub()
        await submit(three, JOB_SET, a_job_set("train"))
        east = three.members["east"]
        await until_running(east, "train")
        child = await get(east, JOB, "train-workers-0")
        assert child is not None
        # A Job that has no labels gets its pods': it is known by them, and is no copy all the same.
        assert "phalanx.dev/origin" in child["metadata"]["labels"]
        await three.kill_hub()
        await three.start_hub()
        await three.until_member("east", "True")
        left = await get(east, JOB, "train-workers-0")
        assert left is not None
        assert left["metadata"]["uid"] == child["metadata"]["uid"]
        await played_jobs.end_pods(east, "train")
        job = await condition(three, JOB_SET, "train", "Completed")
        assert job["status"]["terminalState"] == "Completed"
        await three.until_record("train", phase="Ended", cluster="east")


async def test_copy_deleted_by_a_user_has_failed_and_is_not_run_again(tmp_path: Path) -> None:
    async with clusters(tmp_path) as three:
        await three.start_hub()
        await submit(three, JOB, a_job("train"))
        east = three.members["east"]
        await until_running(east, "train")
        await east.client.delete(JOB.resource.path(NAMESPACE, "train"), propagation="Background")
        job = await condition(three, JOB, "train", "Failed")
        told = [each for each in job["status"]["conditions"] if each["type"] == "Failed"]
        assert told[0]["reason"] == "CopyLost"
        await three.until_record("train", phase="Ended", cluster="east", epoch=1, failed=1)
        await three.until_empty("east")


async def test_foreign_job_of_the_same_name_is_not_changed_and_an_unmanaged_job_gets_a_message(
    tmp_path: Path,
) -> None:
    async with clusters(tmp_path) as three:
        east, north = three.members["east"], three.members["north"]
        theirs = await east.client.create(JOB.resource.path(NAMESPACE), a_job("train", managed_by=None))
        await three.start_hub()
        await submit(three, JOB, a_job("train"))
        await until_running(north, "train")
        found = await get(east, JOB, "train")
        assert found is not None
        assert found["metadata"]["uid"] == theirs["metadata"]["uid"]
        note = {"phalanx.dev/dispatch": "true"}
        await submit(three, JOB, a_job("plain", managed_by=None, annotations=note))

        async def told() -> str:
            events = (await three.hub.client.list_all(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"))[
                "items"
            ]
            return "".join(each["note"] for each in events if each["regarding"]["name"] == "plain")

        said = await until(told, "an event says why plain is not dispatched")
        assert "write spec.managedBy: phalanx.dev/hub" in said
