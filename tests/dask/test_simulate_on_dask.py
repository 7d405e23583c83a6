"""`phalanx simulate` on Dask workers: the same files as a local run, also after the loss of a worker."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import cloudpickle
import msgspec
import pytest
from distributed import Client

from phalanx.dask import PhalanxCluster
from phalanx.simulation import sweep
from phalanx.simulation.inputs import read_inputs
from phalanx.simulation.runs import Experiment, NamedPolicy
from phalanx.simulation.runs import simulate as simulate_run
from tests.sdk.conftest import local_directory as local_directory
from tests.sdk.test_gang_on_processes import nothing_left
from tests.simulation.test_command import files as files
from tests.simulation.test_command import simulate

# Sockets of distributed are closed by its loop after the test.
pytestmark = [
    pytest.mark.slow,
    pytest.mark.e2e,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
_RUNS = ("--seed", "1", "2", "3", "--policy", "{}/packed.yaml", "{}/spread.yaml")


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_workers_of_a_gang_write_the_files_of_a_local_run(files: Path, local_directory: Path) -> None:
    runs = [word.format(files) for word in _RUNS]
    local = simulate(files, "local", *runs, "--processes", "1")
    assert local.exit_code == 0, local.output
    kubeconfig = str(local_directory / "kubeconfig")
    remote = simulate(files, "remote", *runs, "--workers", "2", "--kubeconfig", kubeconfig)
    assert remote.exit_code == 0, remote.output
    assert content(files / "remote") == content(files / "local")
    assert nothing_left(local_directory, "dask")


def kill_once(
    marker: Path,
    experiment: Experiment,
    policy: NamedPolicy,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> sweep.Timed:
    """Execute a run; the worker of the first run with seed 2 is killed."""
    if seed == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return simulate_run(experiment, policy, seed, progress), 1.0


cloudpickle.register_pickle_by_value(sys.modules[__name__])


def test_run_of_a_killed_worker_runs_again(
    files: Path, local_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marker = files / "killed"
    cluster, workload = str(files / "cluster.yaml"), str(files / "workload.yaml")
    inputs = read_inputs(cluster, 0, [workload], [], [1, 2, 3], None)
    local = sweep.sweep(inputs, processes=1, progress=False)
    monkeypatch.setattr(sweep, "_run", functools.partial(kill_once, marker))
    with (
        PhalanxCluster(2, 1, kubeconfig=local_directory, name="lossy-dask") as gang,
        Client(gang, set_as_default=False) as client,
    ):
        remote = sweep.sweep(inputs, client=client, progress=False)
    assert marker.exists()
    assert [msgspec.to_builtins(run.jobs) for run, _ in remote] == [
        msgspec.to_builtins(run.jobs) for run, _ in local
    ]
