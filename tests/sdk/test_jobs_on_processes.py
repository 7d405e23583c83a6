"""Jobs of the SDK on `phalanx up --exec`, where pods are real processes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from phalanx.sdk import (
    AsyncCluster,
    Cluster,
    GangExecutor,
    InvalidArgumentError,
    JobFailedError,
    JobNotFoundError,
    PhalanxError,
    RequestRejectedError,
    WaitTimeoutError,
    as_completed,
    connect,
)

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def test_submitted_gang_runs_and_its_logs_name_each_pod(local_cluster: Cluster) -> None:
    job = local_cluster.submit(["echo", "hi"], name="hi", replicas=2)
    assert job.wait(60).logs() == "[hi-task-0] hi\n[hi-task-1] hi\n"
    assert job.done()
    assert job.state == "Completed"
    assert job.exception() is None
    assert job.logs(index=0) == "hi\n"
    again = local_cluster.job("hi")
    assert again.result() == job.result()


def test_failed_job_raises_its_exit_codes_and_its_log_is_followed(local_cluster: Cluster) -> None:
    job = local_cluster.submit("echo a; sleep 1; echo b; exit 3", name="bad")
    assert list(job.logs(follow=True)) == ["a", "b"]
    with pytest.raises(JobFailedError, match="bad is Failed") as caught:
        job.result(60)
    assert caught.value.exit_codes == {"bad-task-0": 3}
    with pytest.raises(JobFailedError, match="not completed"):
        job.wait(60, state="completed")


def test_waiting_job_explains_itself_and_obeys_orders(local_cluster: Cluster) -> None:
    job = local_cluster.submit(["true"], name="big", replicas=9, gpus=1)
    with pytest.raises(WaitTimeoutError, match="big is Pending, not running"):
        job.wait(2, state="running")
    explanation = job.explain()
    assert explanation.reason == "NotEnoughResources"
    assert explanation.fix == "add 1 nvidia.com/gpu"
    assert job.start_estimate() is not None
    assert "Insufficient nvidia.com/gpu" in job._repr_html_() + explanation._repr_html_()
    with pytest.raises(PhalanxError, match=r"cannot read the logs of big: big-task-0: .*; and 6 more pods$"):
        job.logs()
    assert "held" in job.hold()
    job.wait(60, state="suspended")
    assert "released" in job.release()
    assert "10 pods" in job.scale(10)
    with pytest.raises(InvalidArgumentError, match="the minimum of vcjob/big is 9") as caught:
        job.scale(2)
    assert caught.value.field == "replicas"
    assert job.events()
    job.cancel()
    with pytest.raises(JobNotFoundError, match="does not exist any more"):
        job.wait(60, state="deleted").refresh()


def test_running_job_is_suspended_and_resumed_and_not_held(local_cluster: Cluster) -> None:
    job = local_cluster.submit(["sleep", "600"], name="long")
    job.wait(60, state="running")
    with pytest.raises(RequestRejectedError, match=r"only a waiting gang can be held; use job.suspend\(\)$"):
        job.hold()
    assert "will be suspended" in job.suspend()
    job.wait(60, state="suspended")
    assert job.suspend() == "vcjob/long is already suspended"
    assert "released" in job.resume()
    job.wait(60, state="running")
    job.cancel()


def test_array_runs_at_most_its_limit_and_returns_results_in_order(local_cluster: Cluster) -> None:
    array = local_cluster.map_array(["echo", "{}"], "abc", name="alphabet", limit=1)
    assert len(array.jobs) == 1
    assert {job.name for job in array.as_completed(60)} == {"alphabet-0", "alphabet-1", "alphabet-2"}
    assert array.results() == ["a\n", "b\n", "c\n"]
    assert [job.name for job in as_completed(array.jobs[:1])] == ["alphabet-0"]


def test_lists_of_the_cluster_are_entries_with_fields(local_cluster: Cluster) -> None:
    local_cluster.submit(["true"], name="listed").wait(60)
    assert "listed" in {gang.name for gang in local_cluster.jobs(states=["Completed"])}
    assert [queue.name for queue in local_cluster.queues()] == ["root", "default"]
    assert len(local_cluster.nodes()) == 4
    answer = local_cluster.what_if(command=["x"], submit={"replicas": 9, "gpus": 1, "image": "x"})
    assert answer.asked[0].verdict is not None
    assert answer.asked[0].verdict.change == "add 1 nvidia.com/gpu"
    reservation = local_cluster.reserve(
        "course", start="2099-12-01T09:00:00Z", duration="1h", gpus=1, count=2, queue="default"
    )
    assert (reservation.name, reservation.phase, reservation.queue) == ("course", "Pending", "default")
    assert reservation.start == "2099-12-01T09:00:00Z"


def test_rejected_submission_names_the_object(local_cluster: Cluster) -> None:
    with pytest.raises(RequestRejectedError, match='no queue "nope"; expected one of default, root'):
        local_cluster.submit(["true"], queue="nope")
    with pytest.raises(JobNotFoundError, match="no job or PodGroup 'nope'"):
        local_cluster.job("nope")


def test_cluster_of_up_in_the_working_directory_is_found(
    local_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".phalanx").symlink_to(local_directory)
    monkeypatch.chdir(tmp_path)
    with connect() as cluster:
        assert cluster.nodes()


def test_tenant_runs_functions_and_sees_the_published_reason(local_directory: Path) -> None:
    with connect(local_directory / "ml.kubeconfig") as cluster:
        assert cluster.namespace == "ml"
        waiting = cluster.submit(["true"], name="big", replicas=9, gpus=1)
        with pytest.raises(WaitTimeoutError):
            waiting.wait(2, state="running")
        explanation = waiting.explain()
        assert explanation.reason == "NotEnoughResources"
        assert "published" in str(explanation)
        waiting.cancel()
        with GangExecutor(2, cluster=cluster) as executor:
            assert executor.submit(pow, 2, 5).result(60) == 32
        with pytest.raises(RequestRejectedError, match="nodes is forbidden") as caught:
            cluster.nodes()
        assert caught.value.status == 403


async def test_asynchronous_twin_submits_and_waits(local_directory: Path) -> None:
    async with AsyncCluster(local_directory) as cluster:
        jobs = [await cluster.submit(["echo", "hi"]) for _ in range(2)]
        await asyncio.gather(*(job.wait(60) for job in jobs))
        assert await jobs[0].logs() == "hi\n"
        assert [line async for line in jobs[1].logs(follow=True)] == ["hi"]
        assert str(await jobs[0].state) == "Completed"
