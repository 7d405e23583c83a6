"""Runs of several policies and seeds: over the processes of this machine, or over a Dask cluster."""

from __future__ import annotations

import os
import sys
import time
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
    inputs: Inputs, *, processes: int | None = None, dask: str | None = None, progress: bool = True
) -> list[Timed]:
    """Run each policy with each seed. Return the results in this order, with seconds. Raises InputError."""
    tasks = [(policy, seed) for policy in inputs.policies for seed in inputs.seeds]
    bar = ProgressBar(sys.stderr, len(tasks), shown=progress and sys.stderr.isatty())
    try:
        if dask is not None:
            return _on_dask(inputs.experiment, tasks, dask, bar)
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


def _on_dask(
    experiment: Experiment, tasks: list[tuple[NamedPolicy, int]], address: str, bar: ProgressBar
) -> list[Timed]:
    try:
        import distributed
    except ImportError as error:
        raise InputError("--dask needs the package distributed: pip install distributed") from error
    try:
        client = distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise InputError(f"--dask {address}: no Dask scheduler answers: {error}") from error
    with client:
        scattered = client.scatter(experiment, broadcast=True)
        futures = [client.submit(_run, scattered, policy, seed, pure=False) for policy, seed in tasks]
        return _gather(futures, bar, distributed.as_completed)
