"""Preemption by priority: as few victims as possible, whole gangs, and only if the preemptor fits afterwards."""

from __future__ import annotations

import pytest

from phalanx.model.account import AccountKey, EvictionRate, Tree
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.model.pod import MemberState, PlanMark, PodClass

from .scenario import Scenario

QUOTAS = """
actions: "enqueue, allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: capacity}, {name: predicates}]}]
"""


def full(priority: int = 0, gangs: int = 2) -> Scenario:
    """Two nodes with four CPUs each, full of gangs of four one-CPU pods."""
    scenario = Scenario().nodes(2, cpu=4)
    for number in range(gangs):
        scenario.job(f"low{number}", 4, cpu=1, priority=priority).run()
    return scenario


def test_pod_of_higher_priority_evicts_exactly_one_sufficient_victim() -> None:
    scenario = Scenario().node("n1", cpu=2).pods("low", 2, cpu=1).run()
    scenario.pod("high", cpu=1, priority=10).work()
    assert len(scenario.evicted) == 1
    assert scenario.held() == {"high": "n1"}
    assert scenario.run(50).where("high") == "n1"


def test_pod_of_equal_priority_evicts_no_pod() -> None:
    scenario = Scenario().node("n1", cpu=2).pods("low", 2, cpu=1).run()
    assert scenario.pod("same", cpu=1).run().evicted == []


def test_gang_preempts_another_gang_as_a_whole() -> None:
    scenario = full().job("high", 3, cpu=1, priority=10).run(50)
    assert sorted(scenario.evicted) in ([f"low0-{n}" for n in range(4)], [f"low1-{n}" for n in range(4)])
    assert len(scenario.placed("high")) == 3


def test_surplus_is_evicted_before_a_gang_is_broken() -> None:
    scenario = Scenario().nodes(2, cpu=4).job("elastic", 5, minimum=2, cpu=1).job("rigid", 3, cpu=1).run()
    scenario.job("high", 3, cpu=1, priority=10).run(50)
    assert len(scenario.evicted) == 3
    assert all(name.startswith("elastic") for name in scenario.evicted)


def test_no_pod_is_evicted_if_the_whole_gang_would_not_fit() -> None:
    assert full().job("high", 9, cpu=1, priority=10).run(50).evicted == []


@pytest.mark.parametrize("refreshes", [True, False], ids=["verdicts refreshed", "verdicts not refreshed"])
def test_freed_room_that_is_too_small_alone_completes_the_room_of_victims(refreshes: bool) -> None:
    """A simulation, which refreshes no verdicts, evicts as the scheduler does."""
    scenario = Scenario().node("n1", cpu=4).pod("equal", cpu=2, priority=10).pod("low", cpu=2).settle()
    scenario.scheduler._refresh_verdicts = refreshes
    assert scenario.pod("high", cpu=4, priority=10).settle().evicted == []
    assert scenario.gone("equal").settle().evicted == ["low"]
    assert scenario.where("high") == "n1"


@pytest.mark.parametrize("refreshes", [True, False], ids=["verdicts refreshed", "verdicts not refreshed"])
def test_rest_of_the_room_of_victims_of_another_unit_completes_the_room_of_victims(refreshes: bool) -> None:
    """The other half of an evicted gang completes the room of one more victim."""
    scenario = Scenario().node("n1", cpu=2, labels={"disk": "ssd"}).node("n2", cpu=4).gang("gang", 2)
    for name, node in (("gang-0", "n1"), ("gang-1", "n2")):
        scenario.pod(name, node=node, gang="gang", cpu=2, priority=5)
    scenario.pod("low", node="n2", cpu=2).settle()
    scenario.scheduler._refresh_verdicts = refreshes
    assert scenario.pod("second", cpu=4, priority=5).settle().evicted == []
    ssd = PodClass(node_selector=(("disk", "ssd"),))
    scenario.pod("first", cpu=2, priority=10, pod_class=ssd).work()
    assert sorted(scenario.evicted) == ["gang-0", "gang-1", "low"]


def test_nominated_pod_waits_after_a_restart_for_victims_whose_quota_it_gets() -> None:
    """Its victim is on another node: only the quota of their queue is too small for both."""
    scenario = Scenario(QUOTAS).queue("q", capability={"cpu": 4}).node("n1", cpu=4)
    scenario.pod("low", node="n1", cpu=4, queue="q").node("n2", cpu=4, labels={"disk": "ssd"})
    ssd = PodClass(node_selector=(("disk", "ssd"),))
    scenario.pod("high", cpu=4, queue="q", priority=10, pod_class=ssd).work()
    assert (scenario.held(), scenario.evicted) == ({"high": "n2"}, ["low"])
    scenario.becomes("low", terminating=True, condemned="phalanx", leaves=scenario.now + 30)
    scenario.becomes("high", nominated_node="n2")
    scenario.restart().state.pods.load_nominations()
    scenario.work()
    assert (scenario.held(), scenario.evicted) == ({"high": "n2"}, ["low"])
    assert scenario.gone("low").work().where("high") == "n2"


def test_no_pod_is_evicted_on_a_node_that_a_filter_excludes() -> None:
    scenario = Scenario().node("n1", cpu=4, labels={"gpu": "no"}).pods("low", 4, cpu=1).run()
    wants = PodClass(node_selector=(("gpu", "yes"),))
    assert scenario.pod("high", cpu=1, priority=10, pod_class=wants).run(50).evicted == []


def test_room_of_victims_is_used_neither_by_other_pods_nor_by_the_victims() -> None:
    scenario = full()
    scenario.recreates = True
    scenario.job("high", 3, cpu=1, priority=10).work()
    scenario.pods("thief", 8, cpu=1).work()
    assert scenario.placed("thief") == []
    scenario.run(50)
    assert len(scenario.placed("high")) == 3
    assert len(scenario.evicted) == 4


def test_pod_with_preemption_policy_never_evicts_no_pod() -> None:
    scenario = full().job("high", 2, cpu=1, priority=10, more={"preempts": False}).run(50)
    assert scenario.evicted == []


def test_claimed_room_survives_a_restart() -> None:
    scenario = full().job("high", 3, cpu=1, priority=10).work()
    victims = scenario.evicted
    for name, node in scenario.held().items():
        scenario.becomes(name, nominated_node=node)
    for name in victims:
        scenario.becomes(name, terminating=True, leaves=scenario.now + 30)
    scenario.restart().pods("thief", 8, cpu=1).work()
    assert {"high-0", "high-1", "high-2"} <= scenario.held().keys()
    scenario.depart(*victims).run(50)
    assert len(scenario.placed("high")) == 3
    assert sorted(scenario.evicted) == sorted(victims)


def test_no_second_preemption_starts_while_victims_terminate() -> None:
    scenario = full().job("high", 3, cpu=1, priority=10).work()
    assert len(scenario.evicted) == 4
    scenario.depart(scenario.evicted[0]).work()
    scenario.now += 5
    scenario.work()
    assert len(scenario.evicted) == 4
    assert scenario.placed("high") == []


def test_victims_that_do_not_terminate_are_not_awaited_forever() -> None:
    scenario = full().job("high", 3, cpu=1, priority=10).work()
    stuck = scenario.evicted
    for name in stuck:
        scenario.becomes(name, terminating=True, leaves=scenario.now + 30)
    scenario.now += 200
    scenario.scheduler.activate_due(scenario.now)
    scenario.work()
    assert len(scenario.evicted) == 8


def test_terminating_pods_are_counted_on_before_other_pods_are_evicted() -> None:
    scenario = full()
    for number in range(4):
        scenario.becomes(f"low0-{number}", terminating=True, leaves=scenario.now + 30)
    scenario.job("high", 3, cpu=1, priority=10).work()
    assert scenario.evicted == []
    scenario.depart(*(f"low0-{number}" for number in range(4))).run(50)
    assert len(scenario.placed("high")) == 3


def test_gang_that_loses_its_preempting_member_releases_the_room() -> None:
    scenario = full().job("high", 3, cpu=1, priority=10).work()
    assert len(scenario.held()) == 3
    scenario.gone("high-0").work()
    assert scenario.held() == {}


@pytest.mark.parametrize("mark", [{"preemptable": False}, {"fixture": True}, {"critical": True}])
def test_protected_pods_are_not_preempted(mark: dict[str, object]) -> None:
    scenario = Scenario().node("n1", cpu=2).pods("low", 2, cpu=1, more=mark).run()
    assert scenario.pod("high", cpu=1, priority=10).run(50).evicted == []


def test_evicted_pod_counts_as_terminating_at_once() -> None:
    scenario = Scenario().node("n1", cpu=2).pods("low", 2, cpu=1).run()
    scenario.pod("high", cpu=1, priority=10).work()
    assert scenario.state.pods[scenario.evicted[0]].state is MemberState.TERMINATING


SURPLUS = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang, enableJobStarving: false}, {name: predicates}, {name: nodeorder}]
"""


def test_gang_above_its_minimum_evicts_no_pod_for_its_surplus() -> None:
    scenario = Scenario().node("n1", cpu=4).pods("low", 2, cpu=1).run()
    scenario.job("high", 4, minimum=2, cpu=1, priority=10).run(50)
    assert scenario.evicted == []
    assert len(scenario.placed("high")) == 2


def test_gang_above_its_minimum_preempts_for_surplus_if_the_policy_says_so() -> None:
    scenario = Scenario(SURPLUS).node("n1", cpu=4).pods("low", 2, cpu=1).run()
    scenario.recreates = True
    scenario.job("high", 4, minimum=2, cpu=1, priority=10).run(50)
    assert len(scenario.placed("high")) == 4
    assert len(scenario.evicted) == 2


def budget(name: str, allowed: int) -> DisruptionBudgetUpdated:
    return DisruptionBudgetUpdated(DisruptionBudget("ns", name, allowed))


def test_pods_with_an_exhausted_disruption_budget_are_evicted_last() -> None:
    scenario = Scenario().node("n1", cpu=4).observe("pdb", budget("web", 0))
    scenario.pods("web", 3, cpu=1, more={"budgets": ("web",)}).pod("batch", cpu=1).run()
    scenario.pod("high", cpu=1, priority=10).run(50)
    assert scenario.evicted == ["batch"]
    scenario.pod("higher", cpu=2, priority=20).run(50)
    assert "batch" not in scenario.evicted[1:]
    assert len(scenario.evicted) == 3  # a preference, no veto


def test_disruption_budget_counts_over_the_whole_set_of_victims() -> None:
    """Two nodes; either two pods of one budget that allows one, or one of each of two budgets."""
    scenario = Scenario().nodes(2, cpu=2).observe("pdb-a", budget("a", 1)).observe("pdb-b", budget("b", 1))
    scenario.pod("a1", cpu=1, node="n1", more={"budgets": ("a",)})
    scenario.pod("a2", cpu=1, node="n2", more={"budgets": ("a",)})
    scenario.pod("b1", cpu=1, node="n1", more={"budgets": ("b",)}).pod("x", cpu=1, node="n2", priority=5).run()
    scenario.job("high", 2, cpu=1, priority=10).run(50)
    assert sorted(scenario.evicted) in (["a1", "b1"], ["a2", "b1"])


def test_parked_preemptor_is_woken_when_the_protection_of_a_pod_expires() -> None:
    """A protected pod loses its protection by time alone."""
    policy = SURPLUS.replace("{name: predicates}", "{name: cdp}, {name: predicates}")
    scenario = (
        Scenario(policy).node("n1", cpu=1).pod("low", cpu=1, node="n1", more={"bound": 1000, "cooldown": 60}).run()
    )
    scenario.pod("high", cpu=1, priority=10).run()
    assert scenario.evicted == []
    assert scenario.scheduler.next_recheck == 1060
    scenario.now = 1061
    scenario.scheduler.activate_due(scenario.now)
    scenario.run(50)
    assert scenario.evicted == ["low"]
    assert scenario.where("high") == "n1"


def test_rejected_eviction_is_not_retried_at_once() -> None:
    scenario = Scenario().node("n1", cpu=1).pod("low", cpu=1).run()
    scenario.pod("high", cpu=1, priority=10).work()
    scenario.state.pods.eviction_refused("low", scenario.now + 60)
    scenario.work()
    assert scenario.evicted == ["low"]
    assert scenario.held() == {}
    scenario.now += 61
    scenario.scheduler.activate_due(scenario.now)
    scenario.run(50)
    assert scenario.evicted == ["low", "low"]
    assert scenario.where("high") == "n1"


def test_many_waiting_gangs_of_one_class_search_victims_once() -> None:
    scenario = full()
    for number in range(20):
        scenario.job(f"j{number:02}", 9, cpu=1, priority=10)
    scenario.work()
    assert scenario.evicted == []
    assert len(scenario.scheduler.cycle_history.failed_evictions) == 1


def test_pod_without_lower_priorities_in_the_cluster_searches_no_victims() -> None:
    scenario = full().job("same", 3, cpu=1).work()
    assert scenario.evicted == []
    assert len(scenario.scheduler.cycle_history.failed_evictions) == 0


def test_gang_of_higher_priority_uses_room_freed_for_a_lower_one() -> None:
    scenario = full(gangs=2).job("high", 4, cpu=1, priority=10).work()
    victims = scenario.evicted
    assert len(scenario.held()) == 4
    scenario.becomes_all("low", preemptable=False)  # no other pod is evictable
    scenario.job("higher", 4, cpu=1, priority=20).work()
    assert set(scenario.held()) == {f"higher-{number}" for number in range(4)}
    assert scenario.evicted == victims
    scenario.run(50)
    assert len(scenario.placed("higher")) == 4
    assert scenario.placed("high-") == []


def test_gang_of_equal_priority_does_not_use_room_freed_for_another() -> None:
    scenario = full(gangs=2).job("high", 4, cpu=1, priority=10).work()
    scenario.becomes_all("low", preemptable=False)
    scenario.job("other", 4, cpu=1, priority=10).work()
    assert set(scenario.held()) == {f"high-{number}" for number in range(4)}


def test_room_unused_by_the_higher_priority_stays_claimed() -> None:
    scenario = full(gangs=2).job("high", 3, cpu=1, priority=10).work()
    scenario.becomes_all("low", preemptable=False)
    scenario.pod("higher", cpu=1, priority=20).work()
    assert set(scenario.held()) == {f"high-{number}" for number in range(3)}
    scenario.run(50)
    assert len(scenario.placed("high")) == 4  # the fourth CPU of the evicted gang was unclaimed


def test_gang_that_lost_a_member_claims_room_for_its_replacement() -> None:
    scenario = Scenario().nodes(2, cpu=2).job("high", 3, cpu=1, priority=10).run()
    scenario.gone("high-0").pods("low", 2, cpu=1).run()
    scenario.pod("high-3", gang="high", cpu=1, priority=10).run(50)
    assert len(scenario.evicted) == 1
    assert len(scenario.placed("high")) == 3


def test_half_bound_gang_claims_room_for_its_repair() -> None:
    mark = PlanMark("p", 3, 1000)
    scenario = Scenario().nodes(2, cpu=2).gang("high", 3, created=1)
    scenario.pod("high-0", gang="high", cpu=1, priority=10, node="n1", mark=mark, created=1)
    scenario.pod("high-1", gang="high", cpu=1, priority=10, node="n1", mark=mark, created=1)
    scenario.pod("low-0", cpu=1, node="n2").pod("low-1", cpu=1, node="n2")
    scenario.pod("high-2", gang="high", cpu=1, priority=10, created=1).run(50)
    assert len(scenario.evicted) == 1
    assert len(scenario.placed("high")) == 3


def test_no_member_of_a_broken_gang_keeps_running() -> None:
    """Three nodes, a gang of three that needs two; both of the preemptor's members need a node each."""
    scenario = Scenario().nodes(3, cpu=4).job("elastic", 3, minimum=2, cpu=4).run()
    scenario.job("high", 2, cpu=4, priority=10).run(50)
    assert sorted(scenario.evicted) == ["elastic-0", "elastic-1", "elastic-2"]
    assert len(scenario.placed("high")) == 2


def test_any_surplus_member_of_a_gang_can_be_the_victim() -> None:
    scenario = Scenario().node("n1", cpu=1, labels={"disk": "ssd"}).nodes(2, prefix="m", cpu=1)
    scenario.gang("elastic", 2)
    for node in ("m1", "n1", "m2"):
        scenario.pod(f"on-{node}", gang="elastic", cpu=1, node=node)
    ssd = PodClass(node_selector=(("disk", "ssd"),))
    scenario.pod("high", cpu=1, priority=10, pod_class=ssd).run(50)
    assert scenario.evicted == ["on-n1"]
    assert scenario.where("high") == "n1"


def test_many_pods_of_one_class_preempt_at_once_and_each_waits_for_its_victim() -> None:
    scenario = Scenario().nodes(4, cpu=2).pods("low", 8, cpu=1).run()
    scenario.pods("high", 5, cpu=1, priority=10).work()
    assert len(scenario.evicted) == 5
    assert len(scenario.held()) == 5
    held = scenario.held()["high-0"]
    scenario.depart(*(name for name in scenario.evicted if scenario.state.pods[name].pod.node == held)).work()
    assert scenario.where("high-0") == held
    scenario.run(50)
    assert len(scenario.placed("high")) == 5
    assert len(scenario.evicted) == 5


def test_as_many_pods_of_one_class_preempt_as_there_is_room_for() -> None:
    scenario = (
        Scenario().nodes(2, cpu=2).pods("low", 3, cpu=1).pod("safe", cpu=1, more={"preemptable": False}).run()
    )
    scenario.pods("high", 9, cpu=1, priority=10).run(50)
    assert len(scenario.evicted) == 3
    assert len(scenario.placed("high")) == 3


def test_next_pods_are_evicted_when_the_account_can_lose_more_without_an_event() -> None:
    scenario = Scenario().nodes(4, cpu=1)
    quota = {"deserved": {"cpu": 0}, "capability": {"cpu": 9}, "eviction_rate": EvictionRate(1, 8)}
    scenario.account(AccountKey(Tree.ELASTIC_QUOTA, "lent"), label="ElasticQuota lent", **quota)
    scenario.elastic_quota("mine", {"cpu": 4}, {"cpu": 4})
    scenario.within("lent").pods("lent", 4, cpu=1).run()
    scenario.within("mine").pods("mine", 2, cpu=1).work()
    assert len(scenario.evicted) == 1
    scenario.settle()
    assert len(scenario.placed("mine")) == 1
    assert scenario.scheduler.next_recheck == 1009  # eight seconds after the first eviction
    scenario.now += 10
    scenario.scheduler.activate_due(scenario.now)
    scenario.run(50)
    assert len(scenario.placed("mine")) == 2
    assert len(scenario.evicted) == 2


def test_eviction_message_names_both_priorities_and_the_preemptor_once() -> None:
    scenario = full(priority=3).job("high", 3, cpu=1, priority=10).work()
    (sentence,) = {eviction.sentence for plan in scenario.plans for eviction in plan.evictions}
    assert sentence == "preempted by gang ns/high (priority 3 is below priority 10)"


def test_gangs_of_a_gang_group_are_evicted_together() -> None:
    scenario = Scenario().nodes(4, cpu=4)
    scenario.gang("ps", 1, gang_group=["ps", "workers"]).gang("workers", 2, gang_group=["ps", "workers"])
    scenario.pod("ps-0", gang="ps", cpu=4).pods("workers", 2, gang="workers", cpu=4).pod(
        "single", cpu=4, priority=5
    )
    scenario.run()
    scenario.pod("high", cpu=4, priority=10).run(50)
    assert scenario.evicted in (["single"], ["ps-0", "workers-0", "workers-1"])


def test_no_pod_is_evicted_for_a_member_of_too_low_priority() -> None:
    scenario = Scenario().nodes(2, cpu=1).pods("mid", 2, cpu=1, priority=5).run()
    scenario.gang("mixed", 2).pod("mixed-0", gang="mixed", cpu=1, priority=10)
    scenario.pod("mixed-1", gang="mixed", cpu=1, priority=1).run(50)
    assert scenario.evicted == []


def test_claim_on_a_node_that_closes_is_not_awaited() -> None:
    scenario = Scenario().nodes(2, cpu=1).pods("low", 2, cpu=1).run()
    scenario.pod("high", cpu=1, priority=10).work()
    (first,) = scenario.evicted
    closed = scenario.held()["high"]
    scenario.node(closed, cpu=1, unschedulable=True).work()
    assert len(scenario.evicted) == 2
    assert scenario.held()["high"] != closed
    scenario.run(50)
    assert scenario.where("high") not in ("", closed)
    assert scenario.evicted.count(first) == 1


def test_deleted_gang_does_not_block_a_new_gang_of_its_name() -> None:
    """Its class is still cached after its last pod with this priority is gone."""
    scenario = Scenario().nodes(2, cpu=1).job("h", 2, cpu=1, priority=5).run()
    scenario.job("low", 1, cpu=1).run()  # searches victims and finds none
    scenario.gone("h-0", "h-1").no_gang("h").gone("low-0").no_gang("low").run()
    scenario.job("h", 2, cpu=1, priority=12).run()
    scenario.job("mid", 1, cpu=1, priority=10).run(50)
    assert scenario.evicted == []


def test_no_decision_breaks_a_budget_where_the_api_server_enforces_them() -> None:
    policy = SURPLUS + "phalanx: {evictions: eviction-api}\n"
    scenario = Scenario(policy).nodes(3, cpu=1).observe("pdb", budget("web", 0)).gang("g", 3)
    for number in range(3):
        marks = {"budgets": ("web",)} if number == 2 else {}
        scenario.pod(f"g-{number}", gang="g", cpu=1, more=marks)
    scenario.run()
    assert scenario.pod("high", cpu=1, priority=10).run(50).evicted == []
    scenario.observe("pdb", budget("web", 1)).run(50)
    assert len(scenario.evicted) == 3


class TestMembersOfUnlikePriority:
    """docs/gangs.md: the queue position of the highest priority, the preemption right of the lowest placed
    member.
    """

    def mixed(self, scenario: Scenario, *priorities: int, minimum: int = 2, created: int = 2000) -> Scenario:
        scenario.gang("mixed", minimum, created=created)
        for number, priority in enumerate(priorities):
            scenario.pod(f"mixed-{number}", gang="mixed", cpu=1, priority=priority)
        return scenario

    def test_gang_is_ordered_by_its_highest_member_priority(self) -> None:
        scenario = Scenario().node("n1", cpu=2).job("other", 2, cpu=1, priority=5)
        assert len(self.mixed(scenario, 1, 9).run().placed("mixed")) == 2
        assert scenario.placed("other") == []

    def test_gang_evicts_with_the_lowest_priority_of_its_placed_members(self) -> None:
        scenario = Scenario().node("n1", cpu=2).pods("running", 2, cpu=1, priority=5).run()
        assert self.mixed(scenario, 1, 9).run(50).evicted == []
        scenario.pod("mixed-2", gang="mixed", cpu=1, priority=9).run(50)
        assert sorted(scenario.evicted) == ["running-0", "running-1"]


@pytest.mark.parametrize("grace", [30, 600, 36_000])
def test_victims_are_awaited_for_their_whole_grace_period_after_a_restart(grace: int) -> None:
    """Only the API's state is left of the decision: claimed room, and victims that terminate on our account."""
    scenario = Scenario().nodes(4, cpu=4)
    leaves = {"condemned": "phalanx", "grace": grace, "leaves": scenario.now + grace}
    for number in (1, 2):
        scenario.pod(f"goes{number}", node=f"n{number}", cpu=4, terminating=True, more=leaves)
    for number in (3, 4):
        scenario.pod(f"stays{number}", node=f"n{number}", cpu=4)
    scenario.gang("high", 2)
    for number in (1, 2):
        scenario.pod(f"high-{number}", gang="high", cpu=4, priority=10, nominated=f"n{number}")
    scenario.run(20)
    assert scenario.evicted == []
    assert scenario.held() == {"high-1": "n1", "high-2": "n2"}
    assert scenario.why("high").code == "WaitingForEvictedPods"
    assert "waits for 2 evicted pods to terminate" in scenario.why("high").message


def test_pod_that_terminates_by_itself_is_not_awaited_forever_after_a_restart() -> None:
    scenario = Scenario().nodes(2, cpu=4)
    scenario.pod(
        "goes", node="n1", cpu=4, terminating=True, more={"grace": 36_000, "leaves": scenario.now + 36_000}
    )
    scenario.pod("low", node="n2", cpu=4)
    scenario.pod("high", cpu=4, priority=10, nominated="n1").run(20)
    assert scenario.evicted == ["low"]


def test_standby_forgets_room_claimed_for_deleted_pods() -> None:
    scenario = Scenario().nodes(2, cpu=4).gang("high", 2)
    for number in (1, 2):
        scenario.pod(f"high-{number}", gang="high", cpu=4, priority=10, nominated=f"n{number}")
    scenario.no_gang("high")
    scenario.scheduler.queue.absorb_changes()  # as a standby, which runs no cycles
    scenario.gone("high-1")
    plan = scenario.cycle()
    assert [(each.name, each.node) for each in plan.nominations] == [("high-2", "")]
    assert not plan.failures
