"""Reclaim of lent amounts: elastic quotas up to their min, queues up to their deserved amount."""

from __future__ import annotations

from phalanx.model.account import AccountKey, Tree

from .scenario import Scenario, amounts, limits

PROPORTION = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}]},
        {plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]}]
"""
CAPACITY = PROPORTION.replace("proportion", "capacity")


def two_quotas(nodes: int = 1, cpu: int = 10) -> Scenario:
    """QuotaA (min 4, max 6) and QuotaB (min 6, max 8) over ten CPUs (KEP-9, story 1)."""
    scenario = Scenario().nodes(nodes, cpu=cpu)
    return scenario.elastic_quota("a", {"cpu": 4}, {"cpu": 6}).elastic_quota("b", {"cpu": 6}, {"cpu": 8})


def test_story_1_borrowed_amount_is_reclaimed_when_b_needs_its_min() -> None:
    scenario = two_quotas()
    scenario.within("a").pods("a", 6, cpu=1, priority=1000).run()
    scenario.within("b").pods("b", 3, cpu=1).run()
    scenario.within("b").pod("b-3", cpu=3).run(50)
    assert len(scenario.evicted) == 2
    assert all(name.startswith("a-") for name in scenario.evicted)
    assert scenario.where("b-3") == "n1"


def test_story_1_one_sufficient_pod_is_evicted_rather_than_two() -> None:
    scenario = Scenario().node("n1", cpu=10)
    scenario.elastic_quota("a", {"cpu": 4}, {"cpu": 6}).elastic_quota("b", {"cpu": 6}, {"cpu": 8})
    scenario.within("a").pods("small", 4, cpu=1).pod("big", cpu=2).within("b").pods("b", 3, cpu=1).run()
    scenario.now += 3600
    scenario.within("b").pod("b-3", cpu=3).run()
    assert scenario.evicted == ["big"]


def test_story_1_end_guaranteed_amount_is_not_reclaimed() -> None:
    scenario = two_quotas()
    scenario.within("a").pods("a", 4, cpu=1).run()
    scenario.within("b").pods("b", 6, cpu=1).run()
    scenario.within("b").pod("b-more", cpu=1, priority=100).run(50)
    assert [name for name in scenario.evicted if name.startswith("a")] == []


def test_story_2_above_min_only_lower_priorities_of_the_own_quota_are_evicted() -> None:
    scenario = Scenario().node("n1", cpu=10)
    scenario.elastic_quota("a", {"cpu": 3}, {"cpu": 4}).elastic_quota("b", {"cpu": 4}, {"cpu": 6})
    scenario.elastic_quota("c", {"cpu": 3}, {"cpu": 4})
    scenario.within("a").pods("a", 2, cpu=1).within("c").pods("c", 3, cpu=1)
    scenario.within("b").pod("b-low", cpu=3).pod("b-mid", cpu=2, priority=5).run()
    scenario.within("b").pod("b-high", cpu=1, priority=10).run(50)
    assert scenario.evicted == ["b-low"]
    assert scenario.where("b-high") == "n1"


def test_worked_example_1_priority_does_not_cross_quotas() -> None:
    scenario = Scenario().node("n1", cpu=1)
    scenario.elastic_quota("q1", {"cpu": 0}, {"cpu": 2}).elastic_quota("q2", {"cpu": 0}, {"cpu": 2})
    scenario.elastic_quota("q3", {"cpu": 1}, {"cpu": 2})
    scenario.within("q1").pod("one", cpu=1).run()
    scenario.within("q2").pod("two", cpu=1, priority=1_000_000).run(50)
    assert scenario.evicted == []
    scenario.within("q3").pod("three", cpu=1).run(50)
    assert scenario.evicted == ["one"]


def across_nodes(policy: str | None = None) -> Scenario:
    scenario = Scenario(policy).nodes(2, cpu=2)
    scenario.elastic_quota("q1", {"cpu": 0}, {"cpu": 2}).elastic_quota("q2", {"cpu": 2}, {"cpu": 2})
    scenario.within("q1").pod("one", cpu=1, node="n1").pod("two", cpu=1, node="n2").run()
    scenario.recreates = True
    return scenario.within("q2").pod("large", cpu=2)


def test_worked_example_2_quota_is_freed_across_nodes() -> None:
    scenario = across_nodes().run(50)
    assert sorted(scenario.evicted) == ["one", "two"]
    assert scenario.placed("large") == ["large"]


def test_worked_example_2_quota_is_not_freed_where_the_policy_allows_one_node_at_a_time() -> None:
    policy = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
configurations:
- {name: preempt, arguments: {singleNodePreemption: true}}
- {name: reclaim, arguments: {singleNodePreemption: true}}
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]}]
"""
    scenario = across_nodes(policy).run(50)
    assert scenario.evicted == []
    assert scenario.placed("large") == []


def test_gang_within_its_min_reclaims_once_and_evictions_end() -> None:
    scenario = two_quotas(nodes=2, cpu=5)
    scenario.recreates = True
    scenario.within("a").job("train", 2, cpu=1).pods("a", 4, cpu=1).run()
    scenario.within("b").job("big", 6, cpu=1).run(50)
    assert len(scenario.placed("big")) == 6
    assert len(scenario.evicted) == 2
    assert len(scenario.placed("train")) == 2


def test_queues_reclaim_their_deserved_amounts_by_weight() -> None:
    scenario = Scenario(PROPORTION).nodes(2, cpu=4).queue("a", weight=1).queue("b", weight=1)
    scenario.recreates = True
    scenario.pods("a", 8, cpu=1, queue="a").run()
    scenario.job("b", 4, queue="b", cpu=1).run(50)
    assert len(scenario.placed("b")) == 4
    assert len(scenario.evicted) == 4


def test_queue_reclaims_no_more_than_its_deserved_amount() -> None:
    scenario = Scenario(PROPORTION).nodes(2, cpu=4).queue("a", weight=1).queue("b", weight=1)
    scenario.pods("a", 8, cpu=1, queue="a").run()
    assert scenario.job("b", 5, queue="b", cpu=1).run(50).evicted == []


def test_queue_that_is_not_reclaimable_loses_no_pod() -> None:
    scenario = Scenario(PROPORTION).nodes(2, cpu=4).queue("a", weight=1, reclaimable=False).queue("b", weight=1)
    scenario.pods("a", 8, cpu=1, queue="a").run()
    assert scenario.job("b", 2, queue="b", cpu=1).run(50).evicted == []


def test_deserved_amounts_of_three_queues_are_reached_with_the_fewest_evictions() -> None:
    """64 CPUs; A deserves 32, B 16, C 16, and B and C hold 24 each (Volcano, issue 5896: 18 evictions, 16
    necessary).
    """
    scenario = Scenario(CAPACITY).nodes(4, cpu=16)
    for name, deserved in (("a", 32), ("b", 16), ("c", 16)):
        scenario.queue(name, deserved={"cpu": deserved})
    scenario.recreates = True
    for name, count in (("a", 16), ("b", 24), ("c", 24)):
        scenario.pods(name, count, cpu=1, queue=name)
    scenario.run()
    assert len(scenario.placed()) == 64
    scenario.pods("a-more", 16, cpu=1, queue="a").run(50)
    assert len(scenario.evicted) == 16
    assert len(scenario.placed("a")) == 32
    assert len(scenario.placed("b")) == len(scenario.placed("c")) == 16


def test_nearest_branch_is_reclaimed_from_first() -> None:
    scenario = Scenario(CAPACITY).nodes(2, cpu=8)
    scenario.queue("org", deserved={"cpu": 8}).queue("other", deserved={"cpu": 4})
    scenario.queue("org-a", parent="org", deserved={"cpu": 4}).queue("org-b", parent="org", deserved={"cpu": 4})
    scenario.pods("sibling", 6, cpu=1, queue="org-b").pods("stranger", 10, cpu=1, queue="other").run()
    scenario.job("mine", 2, queue="org-a", cpu=1).run(50)
    assert len(scenario.evicted) == 2
    assert all(name.startswith("sibling") for name in scenario.evicted)


def test_reclaim_never_undercuts_guarantees() -> None:
    scenario = Scenario(CAPACITY).nodes(1, cpu=8)
    scenario.queue("a", deserved={"cpu": 6}).queue("b", guarantee={"cpu": 4}, deserved={"cpu": 2})
    scenario.pods("b", 8, cpu=1, queue="b").run()
    scenario.pods("a", 6, cpu=1, queue="a").run(50)
    assert len(scenario.placed("b")) >= 4


def test_group_without_pods_is_admitted_where_its_queue_can_reclaim() -> None:
    """Volcano holds it back: the cluster is full, so it never gets pods that could reclaim (issues 569, 4817)."""
    scenario = Scenario().nodes(2, cpu=4).queue("a", weight=1).queue("b", weight=1)
    scenario.pods("a", 8, cpu=1, queue="a").run()
    scenario.gang("b", 4, queue="b", admission=True, admitted=False, min_resources=amounts(cpu=4)).run()
    assert scenario.admissions == ["b"]
    scenario.pods("b", 4, gang="b", cpu=1).run(50)
    assert len(scenario.placed("b")) == 4


def test_group_is_not_admitted_for_an_amount_that_it_cannot_reclaim() -> None:
    scenario = Scenario().nodes(2, cpu=4).queue("a", weight=1).queue("b", weight=1)
    scenario.pods("a", 8, cpu=1, queue="a").run()
    scenario.gang("b", 8, queue="b", admission=True, admitted=False, min_resources=amounts(cpu=8)).run()
    assert scenario.admissions == []


def test_refused_unit_is_retried_when_a_protected_pod_ends() -> None:
    """The little room alone does not wake the parked gang; it wakes since evictions help now."""
    scenario = Scenario().node("n1", cpu=4).pods("safe", 2, cpu=1, more={"preemptable": False})
    scenario.pods("low", 2, cpu=1).run()
    scenario.job("high", 3, cpu=1, priority=10).run()
    assert scenario.evicted == []
    scenario.gone("safe-0").run(50)
    assert len(scenario.placed("high")) == 3
    assert sorted(scenario.evicted) == ["low-0", "low-1"]


def test_runtime_quota_does_not_shrink_while_a_claim_waits() -> None:
    """A unit that waits for its claim still has requests: the runtime quota must count it (Koordinator)."""
    scenario = Scenario().nodes(2, cpu=5)
    for name, least in (("batch", 2), ("prod", 4)):
        key = AccountKey(Tree.KOORDINATOR, name)
        scenario.account(
            key,
            label=name,
            deserved={"cpu": least},
            capability={"cpu": 10},
            namespaces=(name,),
            weights=limits({"cpu": 1}),
        )
    scenario.within("batch").pods("b", 10, cpu=1).run()
    for number in range(5):
        scenario.within("prod").pod(f"p{number}", cpu=1).run()
    assert len(scenario.placed("p")) == 5
    assert len(scenario.placed("b")) == 5


class TestMessagesToVictims:
    def told(self, scenario: Scenario) -> set[str]:
        return {eviction.sentence for plan in scenario.plans for eviction in plan.evictions}

    def test_eviction_message_has_the_usage_of_the_quota_above_its_min(self) -> None:
        scenario = two_quotas()
        scenario.within("a").pods("a", 6, cpu=1).within("b").pods("b", 3, cpu=1).run()
        scenario.within("b").pod("b-3", cpu=3).run(50)
        (sentence,) = self.told(scenario)
        assert sentence.startswith("reclaimed by pod b/b-3 (")
        assert sentence.endswith("uses 6 cpu, 2 above its share)")

    def test_eviction_message_has_the_usage_of_the_queue_above_its_deserved_amount(self) -> None:
        scenario = Scenario(PROPORTION).node("n1", cpu=4).queue("q1").queue("q2")
        scenario.pods("a", 4, queue="q1", cpu=1).run().pods("b", 2, queue="q2", cpu=1).run(50)
        assert {sentence.partition(" (")[2] for sentence in self.told(scenario)} == {
            "queue q1 uses 4 cpu, 2 above its share)"
        }


def test_queue_below_its_guarantee_is_not_reclaimed_from_although_its_branch_has_too_much() -> None:
    scenario = Scenario(CAPACITY).nodes(1, cpu=8)
    scenario.queue("org", deserved={"cpu": 4}).queue("mine", deserved={"cpu": 4})
    scenario.queue("poor", parent="org", guarantee={"cpu": 4}).queue("rich", parent="org", deserved={"cpu": 0})
    # The cluster has eight CPUs, of which one is reserved for the poor queue.
    scenario.pods("poor", 3, cpu=1, queue="poor").pods("rich", 4, cpu=1, queue="rich").run()
    scenario.pods("mine", 4, cpu=1, queue="mine").run(50)
    assert len(scenario.placed("poor")) == 3
    assert all(name.startswith("rich") for name in scenario.evicted)
    assert scenario.evicted
