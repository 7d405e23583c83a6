"""Units that wait for reclaim are searched again when shares change, and only then."""

from __future__ import annotations

from collections import Counter

import pytest

from phalanx.model.pod import PodClass
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.preemption.solution import Eviction, NoSolution
from phalanx.scheduling.preemption.solver import Solver
from phalanx.scheduling.scheduler import Scheduler

from .scenario import Scenario

POLICY = """
actions: "enqueue, allocate, {actions}, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{{plugin}}}, {{name: predicates}}, {{name: nodeorder}}]
"""
PROPORTION = POLICY.format(actions="reclaim", plugin="name: proportion")
CAPACITY = POLICY.format(actions="reclaim", plugin="name: capacity")
DRF = POLICY.format(actions="preempt", plugin="name: drf, enablePreemptable: true")
FIRST, SECOND = (PodClass(node_selector=(("node", name),)) for name in ("n1", "n2"))
NEVER = {"preempts": False}
DUE = "pod ns/due"


def count_searches(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the searches for victims from now on, by the name of the unit."""
    counts: Counter[str] = Counter()
    solve = Solver.solve

    def counted(solver: Solver) -> Eviction | NoSolution:
        counts[solver._preemptor.unit.name] += 1
        return solve(solver)

    monkeypatch.setattr(Solver, "solve", counted)
    return counts


def world(policy: str) -> Scenario:
    """Two nodes: n1 with four CPUs, n2 with two."""
    scenario = Scenario(policy)
    return scenario.node("n1", cpu=4, labels={"node": "n1"}).node("n2", cpu=2, labels={"node": "n2"})


def waiting(policy: str = PROPORTION) -> Scenario:
    """Queue `c` uses its share of three CPUs, all on n1, where a pod of queue `b` with two CPUs does not fit."""
    scenario = world(policy).queue("a")
    if policy == PROPORTION:
        scenario.queue("b", weight=2).queue("c").pod("beside", cpu=1, queue="b", pod_class=SECOND)
    else:
        scenario.queue("b", deserved={"cpu": 3}).queue("c", deserved={"cpu": 3})
    scenario.pods("lent", 3, cpu=1, queue="c", pod_class=FIRST).run()
    scenario.pod("due", cpu=2, queue="b", pod_class=FIRST).run()
    assert scenario.evicted == []
    return scenario


def test_pending_request_that_lowers_the_share_of_a_queue_exposes_its_pods() -> None:
    scenario = waiting().pod("new", cpu=2, queue="a", pod_class=SECOND, more=NEVER).run()
    assert scenario.evicted == ["lent-0"]
    assert scenario.where("due") == "n1"


def test_placed_request_that_lowers_the_share_of_a_queue_exposes_its_pods() -> None:
    scenario = waiting().pod("new", cpu=1, queue="a", pod_class=SECOND).run()
    assert scenario.where("new") == "n2"
    assert scenario.evicted == ["lent-0"]


def test_usage_above_a_declared_share_exposes_other_pods_of_the_queue() -> None:
    scenario = waiting(CAPACITY).pod("more", cpu=1, queue="c", pod_class=SECOND).run()
    assert scenario.where("more") == "n2"
    assert scenario.evicted == ["lent-0"]


def test_usage_above_the_min_of_a_quota_exposes_other_pods_of_the_quota() -> None:
    scenario = world(CAPACITY).elastic_quota("ns", {"cpu": 3}, {"cpu": 6})
    scenario.elastic_quota("other", {"cpu": 3}, {"cpu": 6})
    scenario.pods("lent", 3, cpu=1, pod_class=FIRST).run()
    scenario.namespace = "other"
    scenario.pod("due", cpu=2, pod_class=FIRST).run()
    assert scenario.evicted == []
    scenario.namespace = "ns"
    scenario.pod("more", cpu=1, pod_class=SECOND).run()
    assert scenario.evicted == ["lent-0"]


def test_scheduler_without_rechecks_of_verdicts_searches_again_too() -> None:
    scenario = waiting()
    scenario.scheduler = Scheduler(scenario.state, load_policy(PROPORTION), refresh_verdicts=False)
    scenario.run()
    assert scenario.evicted == []
    scenario.pod("new", cpu=1, queue="a", pod_class=SECOND).run()
    assert scenario.evicted == ["lent-0"]


def test_growth_of_a_gang_exposes_it_to_a_gang_with_a_smaller_dominant_share() -> None:
    scenario = world(DRF).job("large", 2, 1, cpu=1, pod_class=FIRST)
    scenario.pod("rigid", cpu=1, pod_class=FIRST, priority=100).run()
    scenario.job("due", 2, cpu=1, pod_class=FIRST).run()
    assert scenario.evicted == []
    for number in (2, 3):
        scenario.pod(f"large-{number}", gang="large", cpu=1, pod_class=SECOND)
    assert len(scenario.run().evicted) == 1
    assert len(scenario.placed("due")) == 2


@pytest.mark.parametrize("policy", [PROPORTION, CAPACITY])
def test_stream_of_arriving_pods_that_changes_no_share_causes_no_search(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = waiting(policy).node("n3", cpu=40, labels={"node": "n3"})
    scenario.queue("stream", deserved={"cpu": 40} if policy == CAPACITY else {}).run()
    scenario.pod("filler", cpu=1, queue="stream", pod_class=SECOND).run()
    counts, third = count_searches(monkeypatch), PodClass(node_selector=(("node", "n3"),))
    for number in range(20):
        scenario.pod(f"pending{number}", cpu=2, queue="stream", pod_class=SECOND, more=NEVER).run()
        scenario.pod(f"placed{number}", cpu=1, queue="stream", pod_class=third).run()
    assert len(scenario.placed("placed")) == 20
    assert counts[DUE] == 0


def test_changed_share_causes_one_search_for_each_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = waiting()
    scenario.queue("c", reclaimable=False)
    for number in range(5):
        scenario.pod(f"large{number}", cpu=4, queue="b", pod_class=FIRST).run()
    counts = count_searches(monkeypatch)
    scenario.pod("new", cpu=1, queue="a", pod_class=SECOND).run()
    assert scenario.where("new") == "n2"
    assert scenario.evicted == []
    assert counts == {DUE: 1, "pod ns/large0": 1}


def test_new_policy_repeats_failed_searches() -> None:
    scenario = waiting()
    history = scenario.scheduler.cycle_history
    assert len(history.failed_evictions)
    history.failed_placements.add("question", 0, 1)
    scenario.scheduler.use(load_policy(PROPORTION))
    assert not len(history.failed_evictions)
    assert history.failed_placements.result("question", 0) is None
