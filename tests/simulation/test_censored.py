"""Jobs that have not started or not ended at the end of a simulation count with their wait so far."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.simulation.history import JobHistory, JobOutcome
from phalanx.simulation.metrics import job_metrics, job_slowdown, lower_bounds, promise_metrics

from .worlds import EVICTING, START, history, job, nodes, story, world

STREAM = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: stream}
spec:
  jobs:
  - {name: small, count: 400, interval: 30, runTime: 5m, requests: {cpu: 1}}
  - {name: large, count: 3, at: 10m, interval: 10m, runTime: 10m, pods: 8, requests: {cpu: 1}}
"""
CLUSTER = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: NodePool
metadata: {name: a}
spec: {count: 2, allocatable: {cpu: 5}}
"""


def waiting(name: str, submit: int, **fields: object) -> JobHistory:
    return JobHistory(name, submit, 1, 1, "q", "", 0, **fields)  # type: ignore[arg-type]


def started(name: str, submit: int, start: int, end: int | None, **fields: object) -> JobHistory:
    outcome = JobOutcome.DONE if end is not None else JobOutcome.RUNNING
    return waiting(name, submit, start=start, end=end, outcome=outcome, **fields)


def test_policy_that_starves_jobs_has_longer_waits_not_shorter_ones() -> None:
    served = [started("a", 0, 100, 200, work=100), started("b", 0, 500, 600, work=100)]
    starving = [started("a", 0, 0, 100, work=100), waiting("b", 0, work=100)]
    fair, unfair = job_metrics(served, 5000), job_metrics(starving, 5000)
    for name in ("mean_wait_seconds", "mean_bounded_slowdown", "mean_flow_seconds", "makespan_seconds"):
        assert unfair[name] > fair[name], name
    assert (fair["never_started"], unfair["never_started"]) == (0, 1)


def test_metrics_of_jobs_that_wait_are_lower_bounds() -> None:
    jobs = [started(str(number), 0, 10, 110, work=100) for number in range(20)]
    assert lower_bounds(jobs, 1000) == []
    bounds = lower_bounds([*jobs, waiting("w", 0, work=100)], 1000)
    assert {"mean_wait_seconds", "max_wait_seconds", "p99_wait_seconds", "makespan_seconds"} <= set(bounds)
    # The median is known: more than half of the jobs have started earlier than the waiting one can.
    assert "p50_wait_seconds" not in bounds
    assert "p50_bounded_slowdown" not in bounds


def test_job_that_runs_at_the_end_counts_with_the_time_that_its_work_needs() -> None:
    assert job_slowdown(started("a", 0, 100, None, work=100), 110) == (2.0, True)
    assert job_slowdown(started("a", 0, 100, None, work=None), 110) is None
    assert lower_bounds([started("a", 0, 100, None, work=None)], 110) == []


def test_withdrawn_job_waited_until_its_withdrawal() -> None:
    left = waiting("a", 100, end=150, outcome=JobOutcome.WITHDRAWN, work=10)
    assert (left.wait(10_000), left.never_started, left.wait_is_censored) == (50, True, True)


def test_time_after_an_eviction_is_no_run_time() -> None:
    evicted = started("a", 0, 0, 1100, work=100, restarts=1)
    assert job_slowdown(evicted, 2000) == (11.0, False)


def test_evicted_job_that_waits_at_the_end_counts_with_its_wait() -> None:
    jobs = [job("low", cpu=4, run=1000), job("high", submit=100, cpu=4, run=None, priority=5)]
    made = world(jobs, nodes(1), EVICTING)
    made.run(START + 5000)
    low = history(made, "low")
    assert story(made)["low"] == (0, None, "waiting")
    assert (low.wait(made.now), low.wait_is_censored, low.never_started) == (4900, True, False)
    assert job_metrics(made.histories, made.now)["max_wait_seconds"] == 4900


def test_promise_that_has_passed_without_a_start_is_late() -> None:
    late, early = waiting("a", 0, promised=100), waiting("b", 0, promised=1000)
    metrics = promise_metrics([late, early], 500)
    assert (metrics["promises_kept_ratio"], metrics["max_lateness_seconds"]) == (0.0, 400.0)


def test_report_leads_with_the_jobs_that_never_started_by_width(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "stream.yaml").write_text(STREAM)
    words = ["simulate", "--cluster", f"{tmp_path}/cluster.yaml", "--workload", f"{tmp_path}/stream.yaml"]
    (tmp_path / "plain.yaml").write_text(
        'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]\n'
    )
    words += ["--policy", f"{tmp_path}/plain.yaml", "--until", "2h", "--report", f"{tmp_path}/out"]
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.output.splitlines()]
    assert lines[0] == ["NEVER", "STARTED", "PLAIN"]
    assert ["width", "5-8", "3", "of", "3"] in lines
    assert "≥" in next(line for line in result.output.splitlines() if line.startswith("Wait, longest"))
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert next(iter(summary)) == "never_started"
    assert summary["never_started"]["plain"]["by_width"]["5-8"] == {"jobs": 3, "never_started": 3}
    (run,) = summary["runs"]
    assert run["by_width"]["5-8"]["never_started"] == 3
    assert run["by_width"]["5-8"]["max_wait_seconds"] == 7200 - 1200 + 600
    assert "max_wait_seconds" in run["lower_bounds"]
    assert run["metrics"]["jobs_not_submitted"] == 403 - run["metrics"]["jobs"]
    rows = list(csv.DictReader((tmp_path / "out" / "jobs.csv").read_text().splitlines()))
    marked = {row["job"] for row in rows if row["wait_is_lower_bound"] == "yes"}
    assert {"large-0", "large-1", "large-2"} <= marked
    assert summary["comparison"]["mean_wait_seconds"]["plain"]["lower_bound"]


@pytest.mark.parametrize("outcome", [JobOutcome.WAITING, JobOutcome.WITHDRAWN])
def test_slowdown_of_a_job_that_never_started_uses_its_work(outcome: JobOutcome) -> None:
    assert job_slowdown(waiting("a", 0, outcome=outcome, end=None, work=50), 100) == (3.0, True)
