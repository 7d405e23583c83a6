"""Published results, from data that is not part of this repository: without it a test says so and is skipped.

`python -m benchmarks.traces FOLDER` brings it; PHALANX_TRACES names the folder.
"""

from __future__ import annotations

import heapq
import json
from pathlib import Path

import pytest
from benchmarks import fgd_table, gpu_packing
from benchmarks.traces import found
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.simulation.inputs import read_inputs
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.metrics import bounded_slowdown
from phalanx.simulation.runs import simulate
from phalanx.simulation.workloads.swf import read_swf, swf_jobs

FIFO = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Machine
metadata: {name: sp2}
spec: {processors: 100}
---
apiVersion: scheduling.volcano.sh/v1beta1
kind: Queue
metadata: {name: default}
spec: {dequeueStrategy: fifo}
"""
PLAIN = 'actions: "allocate"\ntiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]\n'
# One waiting job of the queue has a start; jobs that end before it are backfilled, in order of arrival or
# shortest first.
EASY = """
actions: "allocate, reserve, backfill"
tiers: [{plugins: [{name: predicates}]}]
configurations: [{name: reserve, arguments: {depth: 1, backfillOrder: %s, startDelaySeconds: 0}}]
"""
PERFECT = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Trace
metadata: {name: perfect}
spec: {file: KTH-SP2_log.swf, limit: {factor: 1}}
"""


def kth() -> str:
    path = found("KTH-SP2_log.swf")
    if path is None:
        pytest.skip("no log of KTH: python -m benchmarks.traces FOLDER, and name the folder in PHALANX_TRACES")
    return path.read_text()


def first_come_first_served(jobs: list[SimulatedJob], processors: int) -> list[tuple[int, int]]:
    """Return (wait, run) of each job: no job starts before an earlier arrival."""
    free, now, running, found = processors, 0, list[tuple[int, int]](), []
    for job in jobs:
        now = max(now, job.submit)
        while running and (free < job.width or running[0][0] <= now):
            end, width = heapq.heappop(running)
            now, free = max(now, end), free + width
        assert job.ends_after is not None
        heapq.heappush(running, (now + job.ends_after, job.width))
        free -= job.width
        found.append((now - job.submit, job.ends_after))
    return found


def measures(found: list[tuple[int, int]]) -> tuple[float, float]:
    slowdowns = [bounded_slowdown(wait, run) for wait, run in found]
    return sum(slowdowns) / len(found), sum(wait for wait, _ in found) / len(found)


def test_replay_gives_the_published_values_of_the_whole_log() -> None:
    jobs = swf_jobs(read_swf(kth(), "KTH-SP2_log.swf"), pooled=True, processors=100)
    assert len(jobs) == 28_481
    slowdown, wait = measures(first_come_first_served(jobs, 100))
    assert slowdown == pytest.approx(6815, abs=0.5)
    assert wait == pytest.approx(353_776, abs=1)


@pytest.mark.slow
def test_strict_order_on_the_log_of_kth_is_exactly_the_replay(tmp_path: Path) -> None:
    """The first 2,000 jobs only: all waiting jobs of a queue are checked at each start, which are thousands in
    the whole log.
    """
    lines = kth().splitlines(keepends=True)
    header = [line for line in lines if line.startswith(";")]
    (tmp_path / "kth.swf").write_text("".join([*header, *lines[len(header) : len(header) + 2000]]))
    (tmp_path / "machine.yaml").write_text(FIFO)
    (tmp_path / "plain.yaml").write_text(PLAIN)
    files = str(tmp_path / "machine.yaml"), 0, [str(tmp_path / "kth.swf")], [str(tmp_path / "plain.yaml")]
    inputs = read_inputs(*files, [1], None)
    result = simulate(inputs.experiment, inputs.policies[0], 1)
    jobs = swf_jobs(read_swf((tmp_path / "kth.swf").read_text(), "kth.swf"), pooled=True, processors=100)
    expected = first_come_first_served(jobs, 100)
    assert [(job.wait(result.end), job.run) for job in result.jobs] == expected
    slowdown, wait = measures(expected)
    assert result.metrics["mean_bounded_slowdown"] == pytest.approx(slowdown)
    assert result.metrics["mean_wait_seconds"] == pytest.approx(wait)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("order", "limits", "published"),
    [
        ("queue", "as given", 92.577),
        ("shortest", "as given", 69.405),
        ("queue", "perfect", 71.722),
        ("shortest", "perfect", 49.848),
    ],
)
def test_the_whole_log_of_kth_with_starts_that_are_kept(
    tmp_path: Path, order: str, limits: str, published: float
) -> None:
    """Mean bounded slowdown as published for EASY and EASY-SJBF; no job starts later than promised."""
    (tmp_path / "KTH-SP2_log.swf").write_text(kth())
    (tmp_path / "perfect.yaml").write_text(PERFECT)
    (tmp_path / "easy.yaml").write_text(EASY % order)
    workload = "perfect.yaml" if limits == "perfect" else "KTH-SP2_log.swf"
    words = ["simulate", "--processors", "100", "--workload", f"{tmp_path}/{workload}"]
    words += ["--policy", f"{tmp_path}/easy.yaml", "--report", f"{tmp_path}/out", "--processes", "1"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    (run,) = json.loads((tmp_path / "out" / "summary.json").read_text())["runs"]
    metrics = run["metrics"]
    assert run["failures"] == []
    assert metrics["jobs"] == metrics["jobs_done"] + metrics["jobs_killed_at_limit"] == 28_481
    assert metrics["mean_bounded_slowdown"] == pytest.approx(published, rel=0.005)
    assert metrics["promises"] > 2000
    assert metrics["broken_promises"] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plugin", sorted(fgd_table.PUBLISHED))
def test_gpus_that_are_allocated_by_arrived_load(plugin: str) -> None:
    """Two seeds of ten; `python -m benchmarks.fgd_table` runs all of them."""
    if not fgd_table.at_hand():
        pytest.skip("no openb trace: python -m benchmarks.traces FOLDER, and name the folder in PHALANX_TRACES")
    told = fgd_table.mean(fgd_table.allocated(plugin, [42, 43]))
    assert told == pytest.approx(fgd_table.PUBLISHED[plugin], abs=1.0)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_default_policy_allocates_scarce_gpus_within_one_point_of_fgd() -> None:
    if not fgd_table.at_hand():
        pytest.skip("no openb trace: python -m benchmarks.traces FOLDER, and name the folder in PHALANX_TRACES")
    default, best = gpu_packing.shares("default"), gpu_packing.shares("fgd")
    assert all(ours >= theirs - gpu_packing.TOLERANCE for ours, theirs in zip(default, best, strict=True))
