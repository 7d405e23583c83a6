"""Runs of several policies and seeds: over the processes of this machine, or over a Dask cluster."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import Any

from phalanx.simulation.errors import InputError
from phalanx.simulation.inputs import Inputs
from phalanx.simulation.progress import ProgressBar
from phalanx.simulation.runs import Experiment, NamedPolicy, RunResult, simulate

Timed = tuple[RunResult, float]


def sweep(
    inputs: Inputs,
    *,
    processes: int | None = None,
    dask: str | None = None,
    client: Any = None,
    progress: bool = True,
) -> list[Timed]:
    """Run each policy with each seed. Return the results in this order, with seconds. Raises InputError.

    The runs are executed by the Dask scheduler at the address `dask`, by the Dask `client`, or by `processes`.
    """
    tasks = [(policy, seed) for policy in inputs.policies for seed in inputs.seeds]
    bar = ProgressBar(sys.stderr, len(tasks), shown=progress and sys.stderr.isatty())
    try:
        if client is not None:
            return _on_dask(inputs.experiment, tasks, client, bar)
        if dask is not None:
            with _connected(dask) as connected:
                return _on_dask(inputs.experiment, tasks, connected, bar)
        workers = min(len(tasks), processes or os.cpu_count() or 1)
        if workers == 1:
            return [_run(inputs.experiment, policy, seed, bar.within) for policy, seed in bar.each(tasks)]
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            futures = [pool.submit(_run, inputs.experiment, policy, seed) for policy, seed in tasks]
            return _gather(futures, bar, as_completed)
    finally:
        bar.close()


def _run(
    experiment: Experiment,
    policy: NamedPolicy,
    seed: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Timed:
    began = time.perf_counter()
    result = simulate(experiment, policy, seed, progress)
    return result, time.perf_counter() - began


def _gather(
    futures: list[Future[Timed]], bar: ProgressBar, completed: Callable[[list[Any]], Iterator[Any]]
) -> list[Timed]:
    for _ in completed(futures):
        bar.advance()
    return [future.result() for future in futures]


def _connected(address: str) -> Any:
    """Return a client of the Dask scheduler at an address. Raises InputError."""
    try:
        import distributed
    except ImportError as error:
        raise InputError("--dask needs the extra dask: pip install 'phalanx-scheduler[dask]'") from error
    try:
        return distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--dask {address}: no Dask scheduler answers: {error}") from error


def _on_dask(
    experiment: Experiment, tasks: list[tuple[NamedPolicy, int]], client: Any, bar: ProgressBar
) -> list[Timed]:
    """Execute the runs on the workers of a Dask client. Dask repeats a run whose worker is lost."""
    import distributed

    # As the value of a task it can be made again after the loss of the workers that hold it; scattered data cannot.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sending large graph")
        shared = client.submit(_same, experiment, pure=False)
        futures = [client.submit(_run, shared, policy, seed, pure=False) for policy, seed in tasks]
    # Without the loop it would search a default client.
    return _gather(futures, bar, lambda several: distributed.as_completed(several, loop=client.loop))


def _same(experiment: Experiment) -> Experiment:
    return experiment
