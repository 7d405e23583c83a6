"""Defragmentation in virtual time: a policy with it and one without, on the same jobs."""

from __future__ import annotations

import pytest

from tests.scheduling.features import defragmentation

from .worlds import START, job, nodes, story, world

pytestmark = pytest.mark.feature("defragmentation")

TIERS = "tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]\n"
WITHOUT = f'actions: "allocate, backfill"\n{TIERS}'
WITH = f"""actions: "allocate, backfill, defragment"
{TIERS}configurations:
- name: defragment
  arguments: {{schedule: FREQ=HOURLY, duration: 10m, minRunSeconds: 0, interval: 1m}}
"""


def fragmented(policy: str) -> dict[str, tuple[int | None, int | None, str]]:
    """Two jobs of half a node each remain on two nodes, and a third one requests a whole node."""
    short = [job(f"short-{number}", run=60, cpu=2) for number in range(2)]
    long = [job(f"long-{number}", submit=number, run=100_000, cpu=2) for number in range(2)]
    made = world(
        [short[0], long[0], short[1], long[1], job("whole", submit=100, run=1000, cpu=4)], nodes(2), policy
    )
    made.run()
    assert made.failures == []
    assert defragmentation(made.scheduler).runs.moved == made.evictions
    return story(made)


def test_waiting_job_starts_in_the_next_window_before_any_other_job_ends() -> None:
    without, moved = fragmented(WITHOUT), fragmented(WITH)
    assert without["whole"][0] == 100_000
    start = moved["whole"][0]
    assert start is not None
    assert start <= 3600
    # The cost is the lost work of the moved job.
    assert max(end or 0 for name, (_, end, _) in moved.items() if name.startswith("long")) < 100_000 + 3700


def test_equal_runs_have_equal_results() -> None:
    assert fragmented(WITH) == fragmented(WITH)


def test_simulation_ends_although_a_job_waits_forever() -> None:
    made = world([job("endless", run=None, cpu=2), job("huge", submit=1, cpu=64)], nodes(2), WITH)
    made.run()
    assert story(made)["huge"] == (None, None, "waiting")
    assert made.now > START
