"""Objects of a finished cycle are freed by reference counts: collections would stop the process, and cost more than
freeing each object while it is in the cache."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from .scenario import Scenario

PREEMPTING = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}]}, {plugins: [{name: predicates}, {name: proportion}]}]
"""
RESERVING = """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: gang}, {name: predicates}, {name: binpack}]}]
configurations: [{name: reserve, arguments: {depth: 0, startDelaySeconds: 0}}]
"""


@pytest.fixture
def collections_disabled() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("policy", [None, PREEMPTING, RESERVING])
@pytest.mark.usefixtures("collections_disabled")
def test_cycles_with_refusals_and_searches_leave_no_reference_cycles(policy: str | None) -> None:
    world = Scenario(policy).nodes(3, cpu=4)
    for number in range(5):
        world.job(f"first-{number}", 4, cpu=1)
    world.cycle()
    gc.collect()
    for number in range(3):
        world.job(f"gang-{number}", 4, cpu=1).pod(f"small-{number}", cpu=1).pod(f"large-{number}", cpu=8)
        world.job(f"important-{number}", 2, cpu=1, priority=10)
        world.cycle()

    assert gc.collect() == 0
