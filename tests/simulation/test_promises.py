"""Promised starts in virtual time: promises, outcomes, and idle resources for them."""

from __future__ import annotations

import pytest

from phalanx.simulation.metrics import promise_metrics, start_metrics
from phalanx.simulation.world import World
from tests.scheduling.features import starts
from tests.simulation.worlds import START, history, job, nodes, story, world

pytestmark = pytest.mark.feature("start-reservations")

KEEPING = """
actions: "allocate, reserve, backfill"
tiers: [{plugins: [{name: predicates}]}]
configurations: [{name: reserve, arguments: {depth: 1, startDelaySeconds: 0}}]
"""
JOBS = [
    job("runs", run=60, cpu=3, limit=100),
    job("large", submit=1, run=50, cpu=4, limit=50),
    job("long", submit=2, run=200, cpu=1, limit=200),
]


def promised(made: World) -> tuple[object, object]:
    """Return the number of promised starts, and of those broken without a cause."""
    told = start_metrics(starts(made.scheduler).plan)
    return told["promises"], told["broken_promises"]


def test_first_promise_is_recorded_with_its_job_and_outcome() -> None:
    made = world(JOBS, nodes(1), KEEPING)
    made.run()
    assert story(made)["large"] == (60, 110, "done")
    large = history(made, "large")
    # Its room was promised at the limit of the running job, and was free earlier.
    assert (large.promised, large.lateness, large.slip) == (START + 100, -40, "")
    assert history(made, "runs").promised is None
    # Then the long one is the first that waits.
    assert (history(made, "long").promised, history(made, "long").lateness) == (START + 110, 0)
    told = promise_metrics(made.histories, made.now)
    assert told["promises_kept_ratio"] == 1
    assert (told["mean_earliness_seconds"], told["mean_lateness_seconds"]) == (20, 0)
    assert promised(made) == (2, 0)


def test_idle_counts_as_reserved_while_another_waits_for_it() -> None:
    made = world(JOBS, nodes(1), KEEPING)
    made.run()
    # One core, from when the long job came until the large one started.
    assert made.promises.idle_seconds == (60 - 2) * 1000
    alone = world(JOBS[:2], nodes(1), KEEPING)
    alone.run()
    assert alone.promises.idle_seconds == 0


def test_a_lost_node_is_a_slip_with_its_cause() -> None:
    jobs = [job("runs", run=90, cpu=4, limit=100), job("large", submit=1, run=50, cpu=4, limit=50, pods=2)]
    made = world(jobs, nodes(2), KEEPING)
    made.lose_node(START + 20, "n1", 200)
    made.run()
    large = history(made, "large")
    assert large.promised == START + 100
    assert large.start is not None
    assert large.start >= START + 220
    assert promised(made)[1] == 0
    assert promise_metrics(made.histories, made.now)["max_lateness_seconds"] == large.lateness


def test_no_start_is_promised_without_the_action() -> None:
    made = world(JOBS, nodes(1))
    made.run()
    assert all(each.promised is None for each in made.histories)
    assert promised(made) == (0, 0)
    assert set(promise_metrics(made.histories, made.now).values()) == {None}
