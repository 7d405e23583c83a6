"""Dask on one gang of `phalanx up --exec`, with the real distributed: pods are real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import dask.array
import pytest
from distributed import Client

from phalanx.dask import PhalanxCluster
from phalanx.dask.gang import check_versions
from phalanx.dask.member import exit_code, versions
from phalanx.sdk.errors import InvalidArgumentError, PythonVersionError, WaitTimeoutError
from tests.sdk.conftest import local_directory as local_directory
from tests.sdk.test_gang_on_processes import eventually, kubectl, nothing_left

# Sockets of distributed are closed by its loop after the test.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")


def test_other_version_of_python_or_distributed_is_an_error_with_both_versions() -> None:
    check_versions(versions())
    with pytest.raises(PythonVersionError, match=r"the gang has Python 3\.99, this process has 3"):
        check_versions({**versions(), "python": [3, 99]})
    with pytest.raises(PythonVersionError, match=r"the gang has distributed 1999\.1"):
        check_versions({**versions(), "distributed": "1999.1"})


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("scheduler-close", 1),
        ("worker-handle-scheduler-connection-broken", 1),
        ("worker-heartbeat-missing", 1),
        ("scheduler-close-worker", 0),
        ("pod-ends", 0),
    ],
)
def test_pod_of_a_worker_starts_again_unless_the_worker_was_retired(reason: str, code: int) -> None:
    assert exit_code(reason) == code


@pytest.mark.parametrize(("n_workers", "minimum"), [(0, None), (2, 3), (2, -1)])
def test_impossible_minimum_is_refused_before_anything_is_created(n_workers: int, minimum: int | None) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        PhalanxCluster(n_workers, minimum)
    assert caught.value.field == "minimum"


@pytest.fixture(scope="module")
def dask_cluster(local_directory: Path) -> Iterator[PhalanxCluster]:
    with PhalanxCluster(2, 1, kubeconfig=local_directory, name="dask") as cluster:
        yield cluster
    assert nothing_left(local_directory, "dask")


@pytest.fixture
def client(dask_cluster: PhalanxCluster) -> Iterator[Client]:
    with Client(dask_cluster) as client:
        client.wait_for_workers(1, timeout=60)
        yield client


def pause(number: int, seconds: float) -> int:
    time.sleep(seconds)
    return number


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def workers(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = client.scheduler_info(n_workers=-1)["workers"]
    return found


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.timeout(600)  # workers are processes, slow on a busy machine
class TestDaskOnProcesses:
    def test_array_is_summed_by_the_workers(self, dask_cluster: PhalanxCluster, client: Client) -> None:
        client.wait_for_workers(2, timeout=60)
        assert dask.array.ones((1000, 1000), chunks=(100, 1000)).sum().compute() == 1_000_000
        assert {worker["name"] for worker in workers(client).values()} == {"worker-0", "worker-1"}
        client.run(print, "a line of a worker", workers=[next(iter(workers(client)))])
        eventually(lambda: "a line of a worker" in dask_cluster.job.logs())
        assert dask_cluster.job.state == "Running"

    def test_peer_without_certificate_is_refused_by_the_scheduler_and_the_workers(
        self, dask_cluster: PhalanxCluster, client: Client
    ) -> None:
        stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE

        async def refused(address: str) -> bool:
            host, port = address.removeprefix("tls://").rsplit(":", 1)
            try:
                reader, _ = await asyncio.open_connection(host, int(port), ssl=stranger)
                return await asyncio.wait_for(reader.read(1), 10) == b""
            except (OSError, ssl.SSLError):
                return True

        for address in (dask_cluster.scheduler_address, *workers(client)):
            assert address.startswith("tls://")
            assert asyncio.run(refused(address))
        assert "127.0.0.1" in dask_cluster.dashboard_link

    def test_adaptive_cluster_grows_with_its_load_and_retires_workers_of_any_index(
        self, dask_cluster: PhalanxCluster, client: Client, local_directory: Path
    ) -> None:
        dask_cluster.scale(4)
        client.wait_for_workers(4, timeout=60)
        dask_cluster.sync(dask_cluster.scale_down, ["worker-1"])
        eventually(lambda: len(workers(client)) == 3)
        assert {worker["name"] for worker in workers(client).values()} == {"worker-0", "worker-2", "worker-3"}
        phase = ["get", "pod", "dask-worker-1", "-o", "jsonpath={.status.phase}"]
        eventually(lambda: kubectl(local_directory, *phase) == "Succeeded")
        dask_cluster.scale(4)
        client.wait_for_workers(4, timeout=60)
        dask_cluster.adapt(maximum=4, interval="200ms", wait_count=2)
        eventually(lambda: len(workers(client)) == 1)
        futures = client.map(pause, range(60), seconds=0.5, pure=False)
        eventually(lambda: len(workers(client)) >= 3)
        assert sum(client.gather(futures)) == sum(range(60))
        dask_cluster.adapt(maximum=2)
        dask_cluster._adaptive.stop()

    def test_scale_below_the_minimum_of_the_gang_is_refused(self, dask_cluster: PhalanxCluster) -> None:
        with pytest.raises(InvalidArgumentError, match="the minimum of this gang is 1"):
            dask_cluster.scale(0)

    def test_killed_worker_returns_and_its_tasks_run_again(
        self, dask_cluster: PhalanxCluster, client: Client
    ) -> None:
        dask_cluster.scale(2)
        client.wait_for_workers(2, timeout=60)
        slow = client.map(pause, range(4), seconds=1.0, pure=False)
        pid = next(iter(client.run(os.getpid).values()))
        os.kill(pid, signal.SIGKILL)
        assert client.gather(slow) == [0, 1, 2, 3]
        client.wait_for_workers(2, timeout=60)

    def test_restarted_scheduler_has_the_same_address_and_its_workers_return(
        self, dask_cluster: PhalanxCluster, local_directory: Path
    ) -> None:
        address = dask_cluster.scheduler_address
        with Client(dask_cluster) as client:
            kill_scheduler(client)
            with Client(dask_cluster, timeout=30) as other:
                other.wait_for_workers(1, timeout=30)
                assert other.submit(pow, 2, 5).result(timeout=30) == 32
        kubectl(local_directory, "delete", "pod", "dask-scheduler-0", "--grace-period=0")
        with Client(dask_cluster, timeout=30) as client:
            client.wait_for_workers(1, timeout=30)
            assert client.submit(pow, 2, 6).result(timeout=30) == 64
        assert dask_cluster.scheduler_address == address


def kill_scheduler(client: Client) -> None:
    os.kill(client.run_on_scheduler(os.getpid), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.e2e
def test_cluster_that_is_closed_while_its_scheduler_is_down_leaves_nothing_behind(local_directory: Path) -> None:
    cluster = PhalanxCluster(1, kubeconfig=local_directory, name="down")
    with Client(cluster) as client:
        kill_scheduler(client)
    cluster.close()
    assert nothing_left(local_directory, "down")


@pytest.mark.slow
@pytest.mark.e2e
def test_cluster_without_room_is_a_timeout_with_the_reason_and_leaves_nothing_behind(local_directory: Path) -> None:
    with pytest.raises(WaitTimeoutError, match=r"after 2 s; large is Pending \(AwaitingAdmission: .* 10 nvidia"):
        PhalanxCluster(9, gpus=1, kubeconfig=local_directory, name="large", timeout=2)
    assert nothing_left(local_directory, "large")


CLIENT = """
import sys, time
from phalanx.dask import PhalanxCluster
cluster = PhalanxCluster(1, kubeconfig=sys.argv[1], name="orphan", client_timeout=2)
print("started", flush=True)
time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.e2e
def test_killed_client_leaves_no_dask_gang_behind(local_directory: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CLIENT, str(local_directory)], stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "started\n"
        client.send_signal(signal.SIGKILL)
    eventually(lambda: nothing_left(local_directory, "orphan"))
