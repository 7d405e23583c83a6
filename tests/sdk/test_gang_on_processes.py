"""GangExecutor on `phalanx up --exec`: real pods, real processes, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from phalanx.sdk import Cluster, GangEndedError, GangExecutor, InvalidArgumentError, WaitTimeoutError

pytestmark = [pytest.mark.slow, pytest.mark.e2e]


def kubectl(directory: Path, *words: str) -> str:
    command = ["kubectl", "--kubeconfig", str(directory / "kubeconfig"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def eventually(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.1)
    raise AssertionError("waited in vain")


def nothing_left(directory: Path, name: str) -> bool:
    return name not in kubectl(directory, "get", "vcjob,pods,secrets,podgroups", "-o", "name")


def test_functions_run_in_all_workers_and_nothing_is_left_behind(
    local_cluster: Cluster, local_directory: Path
) -> None:
    with GangExecutor(3, cluster=local_cluster, name="square") as executor:
        assert list(executor.map(pow, range(50), [2] * 50)) == [number**2 for number in range(50)]
        executor.start(60, workers=3)
        addresses = {executor.submit_to(rank, os.getenv, "PHALANX_GANG_ADDRESS").result(30) for rank in range(3)}
        assert len(addresses) == 3
        secret = kubectl(local_directory, "get", "secret", "square-keys", "-o", "jsonpath={.data}")
        assert "client" not in secret
        assert executor.job.state == "Running"
    assert nothing_left(local_directory, "square")
    with pytest.raises(GangEndedError, match="was shut down"):
        executor.submit(len, "a")


def test_deleted_pod_of_a_worker_and_of_the_hub_are_replaced_and_tasks_run_again(
    local_cluster: Cluster, local_directory: Path
) -> None:
    with GangExecutor(2, cluster=local_cluster, name="lossy", retries=5) as executor:
        executor.start(60, workers=2)
        slow = [executor.submit_to(rank, time.sleep, 2) for rank in range(2)]
        eventually(lambda: all(future.running() for future in slow))
        kubectl(local_directory, "delete", "pod", "lossy-worker-0", "--grace-period=0")
        assert slow[1].result(60) is None
        kubectl(local_directory, "delete", "pod", "lossy-hub-0", "--grace-period=0")
        assert executor.submit(pow, 2, 5).result(60) == 32
    assert nothing_left(local_directory, "lossy")


def test_minimum_starts_without_the_workers_that_have_no_room(
    local_cluster: Cluster, local_directory: Path
) -> None:
    with GangExecutor(12, 2, cluster=local_cluster, name="partly", gpus=1) as executor:
        executor.start(60, workers=8)
        assert executor.submit(pow, 2, 5).result(60) == 32
        with pytest.raises(WaitTimeoutError, match=r"8 of 12 workers are connected after [\d.]+ s; \S+ is Running"):
            executor.start(1, workers=12)
    with GangExecutor(9, cluster=local_cluster, name="never", gpus=1) as executor:
        with pytest.raises(WaitTimeoutError, match="NotEnoughResources"):
            executor.start(2)
        future = executor.submit(pow, 2, 5)
        executor.shutdown(wait=False)
        with pytest.raises(GangEndedError):
            future.result(0) if not future.cancelled() else (_ for _ in ()).throw(GangEndedError("cancelled"))
    eventually(lambda: nothing_left(local_directory, "never"))


def test_deleted_job_ends_its_tasks_with_the_cause(local_cluster: Cluster) -> None:
    with GangExecutor(1, cluster=local_cluster, name="deleted") as executor:
        executor.start(60)
        future = executor.submit(time.sleep, 600)
        eventually(future.running)
        executor.job.cancel()
        with pytest.raises(GangEndedError, match="was deleted"):
            future.result(60)


CLIENT = """
import sys, time
from phalanx.sdk import GangExecutor, connect
executor = GangExecutor(2, cluster=connect(sys.argv[1]), name="orphan", client_timeout=2)
executor.start(60, workers=2)
print("started", flush=True)
time.sleep(600)
"""


def test_killed_client_leaves_no_job_no_pod_and_no_secret(local_directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(local_directory)], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "started\n"
        client.send_signal(signal.SIGKILL)
    # The hub ends after 2 s, and the ended job is deleted 10 s later.
    eventually(lambda: nothing_left(local_directory, "orphan"))


def test_client_that_ends_without_shutdown_deletes_its_gang(local_directory: Path) -> None:
    text = CLIENT.replace("time.sleep(600)", "").replace("orphan", "forgotten")
    subprocess.run([sys.executable, "-c", text, str(local_directory)], check=True, timeout=60)
    eventually(lambda: nothing_left(local_directory, "forgotten"))


def test_gang_whose_program_is_missing_ends_with_the_log(local_cluster: Cluster) -> None:
    with (
        GangExecutor(1, cluster=local_cluster, name="broken", python="/bin/false") as executor,
        pytest.raises(GangEndedError, match=r"broken-hub-0 ended with exit code 1; .* needs phalanx-scheduler"),
    ):
        executor.submit(pow, 2, 5).result(60)


def test_invalid_argument_creates_nothing(local_cluster: Cluster, local_directory: Path) -> None:
    for arguments, field in (({"replicas": 2, "minimum": 3}, "minimum"), ({"retries": -1}, "retries")):
        with pytest.raises(InvalidArgumentError) as caught:
            GangExecutor(cluster=local_cluster, name="invalid", **arguments)  # type: ignore[arg-type]
        assert caught.value.field == field
    assert nothing_left(local_directory, "invalid")
