"""Reclaim over many nodes: each choice of victims counts for the next one, on whatever nodes it was made."""

from __future__ import annotations

from collections import Counter

import pytest
from benchmarks.bench_eviction import NOW, QUEUES, ask_by_unlike_pods, lent_in_gangs, quiet

from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.placement.exact_search import LIMIT, ExactSearch
from phalanx.scheduling.policy.loader import DEFAULT_POLICY
from phalanx.scheduling.preemption.solver import SEARCH_WORK

from .scenario import Scenario

CAPACITY = DEFAULT_POLICY.replace("proportion", "capacity")

# Queues of the two pods on each node: mixed on all, or apart on half of them.
MIXED = [("b", "c")] * 120
APART = [("b", "b")] * 30 + [("b", "c")] * 60 + [("c", "c")] * 30


@pytest.mark.parametrize("nodes", [MIXED, APART], ids=["mixed", "apart"])
def test_queues_on_many_nodes_lose_no_more_than_they_have_borrowed(nodes: list[tuple[str, str]]) -> None:
    """Queue b has borrowed 30 CPUs and c 50, but no memory; a takes back its 80 CPUs."""
    world = Scenario(CAPACITY)
    for queue, cpus in (("a", 80), ("b", 90), ("c", 70)):
        world.account(AccountKey(Tree.QUEUE, queue), deserved={"cpu": cpus, "memory": f"{8 * cpus}Gi"})
    for number, queues in enumerate(nodes):
        world.node(f"n{number:03}", cpu=2, memory="16Gi")
        for place, queue in enumerate(queues):
            world.pod(f"{queue}-{number:03}-{place}", node=f"n{number:03}", queue=queue, cpu=1, memory="1Gi")
    world.settle()
    world.job("mine", 80, queue="a", cpu=1, memory="1Gi").work()
    assert Counter(name[0] for name in world.evicted) == {"b": 30, "c": 50}
    assert len(world.held()) == 80


def test_placements_of_unlike_pods_among_victims_share_one_limit_of_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each victim that is put back would otherwise cost a search of its own: seconds for a gang of 64 pods."""
    looks, run = 0, ExactSearch.run

    def counted(search: ExactSearch) -> list[tuple[int, int]] | None:
        nonlocal looks
        solution = run(search)
        looks += search.looks
        return solution

    monkeypatch.setattr(ExactSearch, "run", counted)
    state = lent_in_gangs(200)
    scheduler = quiet(state, QUEUES)
    ask_by_unlike_pods(state)
    plan = scheduler.cycle(NOW)
    assert len(plan.nominations) == 64
    assert LIMIT < looks < SEARCH_WORK + 3 * LIMIT
