"""Start delays, end delays and failures that are drawn from distributions, and advance reservations of jobs."""

from __future__ import annotations

from pathlib import Path

import pytest

from phalanx.simulation.cluster import read_cluster
from phalanx.simulation.errors import InputError
from phalanx.simulation.inputs import read_inputs
from phalanx.simulation.runs import RunResult, simulate
from phalanx.simulation.workloads.distributions import Distribution
from tests.simulation.worlds import history, job, nodes, story, world

CLUSTER = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: NodePool
metadata: {name: a}
spec: {count: 2, allocatable: {cpu: 4}}
---
apiVersion: simulation.phalanx.dev/v1alpha1
kind: World
metadata: {name: world}
spec: %s
"""
RESERVATION = """
---
apiVersion: phalanx.dev/v1alpha1
kind: Reservation
metadata: {name: course}
spec:
  nodes: {names: [a-0]}
  start: "2026-01-01T01:00:00Z"
  duration: 2h
  owners: [{namespaces: [simulation], queues: [default]}]
"""
JOBS = """
apiVersion: simulation.phalanx.dev/v1alpha1
kind: Workload
metadata: {name: w}
spec:
  jobs:
%s
"""
PLAIN = 'actions: "allocate"\ntiers: [{plugins: [{name: gang}, {name: predicates}]}]\n'


def run(tmp_path: Path, cluster: str, jobs: str, seed: int = 1) -> RunResult:
    for name, text in (("cluster.yaml", cluster), ("jobs.yaml", JOBS % jobs), ("plain.yaml", PLAIN)):
        (tmp_path / name).write_text(text)
    files = [str(tmp_path / name) for name in ("cluster.yaml", "jobs.yaml", "plain.yaml")]
    inputs = read_inputs(files[0], 0, [files[1]], [files[2]], [seed], "1d")
    result = simulate(inputs.experiment, inputs.policies[0], seed)
    assert not result.failures
    return result


def times(result: RunResult) -> dict[str, tuple[int | None, int | None]]:
    return {
        entry.name: (
            entry.start - result.start if entry.start is not None else None,
            entry.end - result.start if entry.end is not None else None,
        )
        for entry in result.jobs
    }


def test_pods_of_a_gang_start_after_delays_of_their_own() -> None:
    made = world([job("gang", pods=4, cpu=1, run=100)], nodes(1), delay={"uniform": [0, 60]})
    made.run()
    _, end, outcome = story(made)["gang"]
    assert outcome == "done"
    assert end is not None
    assert 100 < end <= 160


def test_delays_are_equal_for_one_seed() -> None:
    def once() -> object:
        delays: dict[str, object] = {"tailMean": 30}
        made = world([job(f"j{n}", cpu=1) for n in range(9)], nodes(1), delay=delays, end_delay=delays)
        made.run()
        return story(made)

    assert once() == once()


def test_pod_that_ends_late_occupies_its_node() -> None:
    made = world([job("a", cpu=4), job("b", cpu=4)], nodes(1), end_delay=9)
    made.run()
    assert story(made) == {"a": (0, 109, "done"), "b": (109, 218, "done")}
    assert history(made, "a").useful == 100


def test_killed_pod_ends_late_too() -> None:
    made = world([job("long", run=500, limit=60)], nodes(1), end_delay=7)
    made.run()
    assert story(made) == {"long": (0, 67, "killed")}


def test_failed_pod_restarts_its_gang() -> None:
    gang = job("gang", pods=2, cpu=1, run=100, failures=Distribution(30, "x"), most_failures=2)
    made = world([gang], nodes(1))
    made.run()
    told = history(made, "gang")
    assert story(made)["gang"] == (0, 160, "done")
    assert (told.failures, told.restarts, told.ran, told.useful) == (2, 2, 2 * 160, 2 * 100)


def test_world_reads_distributions_of_delays() -> None:
    delays = read_cluster(CLUSTER % "{startDelay: {uniform: [1, 9]}, endDelay: 5s}", "c.yaml").delays
    assert delays.start is not None
    assert delays.start.fixed is None
    assert delays.end is not None
    assert delays.end.fixed == 5
    old = read_cluster(CLUSTER % "{startDelaySeconds: 20}", "c.yaml").delays
    assert old.start is not None
    assert old.start.fixed == 20
    with pytest.raises(InputError, match=r"spec\.startDelay is 'soon'"):
        read_cluster(CLUSTER % "{startDelay: soon}", "c.yaml")
    with pytest.raises(InputError, match="write startDelay only"):
        read_cluster(CLUSTER % "{startDelay: 1, startDelaySeconds: 1}", "c.yaml")


def test_described_jobs_fail_at_most_so_often(tmp_path: Path) -> None:
    failures = "failures: {interval: {tailMean: 10m}, most: 3}"
    jobs = f"  - {{name: train, runTime: 1h, pods: 2, requests: {{cpu: 1}}, {failures}}}"
    result = run(tmp_path, CLUSTER % "{}", jobs)
    assert result.metrics["pods_failed"] == 3
    assert result.metrics["jobs_done"] == 1
    again = run(tmp_path, CLUSTER % "{}", jobs)
    assert [entry.end for entry in again.jobs] == [entry.end for entry in result.jobs]


def test_job_uses_the_advance_reservation_that_it_names(tmp_path: Path) -> None:
    jobs = "\n".join(
        [
            "  - {name: seat, at: 10m, runTime: 30m, pods: 2, requests: {cpu: 2}, reservation: course, limit: 1h}",
            "  - {name: other, at: 30m, count: 2, runTime: 1h, requests: {cpu: 4}, limit: 1h}",
        ]
    )
    told = times(run(tmp_path, CLUSTER % "{}" + RESERVATION, jobs))
    assert told["seat-0"] == (3600, 5400)
    # One of the others gets the free node, the second one waits for it: it would run into the reservation.
    assert sorted(told[f"other-{number}"] for number in range(2)) == [(1800, 5400), (5400, 9000)]


def test_job_that_is_no_owner_of_its_reservation_waits_with_the_reason(tmp_path: Path) -> None:
    jobs = "  - {name: seat, runTime: 30m, requests: {cpu: 1}, reservation: course, queue: elsewhere}"
    queue = "---\napiVersion: scheduling.volcano.sh/v1beta1\nkind: Queue\nmetadata: {name: elsewhere}\n"
    result = run(tmp_path, CLUSTER % "{}" + RESERVATION + queue, jobs)
    assert times(result) == {"seat-0": (None, None)}
    assert "is not for it: see its owners" in result.jobs[0].why


def test_reservation_that_appears_later_is_used_by_waiting_jobs(tmp_path: Path) -> None:
    reservation = RESERVATION.replace("---", "").strip().replace("\n", "\n      ")
    jobs = (
        "  - {name: seat, runTime: 30m, requests: {cpu: 1}, reservation: course}\n  events:\n"
        f"  - at: 5m\n    apply:\n      {reservation}"
    )
    assert times(run(tmp_path, CLUSTER % "{}", jobs)) == {"seat-0": (3600, 5400)}
