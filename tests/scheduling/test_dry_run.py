"""Dry run of evictions for a waiting unit: victims, objections, and changes that would help."""

from __future__ import annotations

from phalanx.model.gang import GangKey
from phalanx.scheduling.preemption.solution import Eviction
from phalanx.scheduling.refusals.over_quota import OverQuota
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.whatif.dry_run import DryRun, NothingHelps

from .scenario import Scenario
from .test_reclaim import CAPACITY, PROPORTION, two_quotas

ONE_NODE = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
configurations:
- {name: preempt, arguments: {singleNodePreemption: true}}
- {name: reclaim, arguments: {singleNodePreemption: true}}
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]}]
"""
NO_EVICTIONS = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}]}]
"""


def rehearse(scenario: Scenario) -> DryRun:
    """Dry run over a second observation of the present cluster."""
    scenario.restart()
    rehearsal = DryRun(scenario.state, scenario.policy)
    rehearsal.cycle(scenario.now)
    return rehearsal


def answer(scenario: Scenario, who: str) -> Eviction | NothingHelps | None:
    rehearsal = rehearse(scenario)
    unit = rehearsal.unit(who) or rehearsal.unit(GangKey(scenario.namespace, who))
    assert unit is not None
    return rehearsal.disruption(unit)


def vain(scenario: Scenario, who: str) -> NothingHelps:
    found = answer(scenario, who)
    assert isinstance(found, NothingHelps)
    return found


def objections(found: NothingHelps) -> dict[str, list[str]]:
    """Return the names of the pods by reason."""
    assert found.what_if is not None
    return {
        obstacle.why: sorted(record.pod.name for record in obstacle.records) for obstacle in found.what_if.obstacles
    }


def wanted(found: NothingHelps) -> list[str]:
    """Return the names of the victims."""
    assert found.what_if is not None
    assert found.what_if.eviction is not None
    return sorted(record.pod.name for victim in found.what_if.eviction.victims for record in victim.records)


def full(priority: int = 0, **fields: object) -> Scenario:
    return Scenario().node("n1", cpu=2).pods("low", 2, cpu=1, priority=priority, **fields).run()


def test_next_eviction_is_reported_with_its_cost() -> None:
    scenario = full().pod("high", cpu=1, priority=10)
    found = answer(scenario, "high")
    assert isinstance(found, Eviction)
    assert found.cost.pods == 1
    assert found.cost.preempting


def test_equal_priority_is_reported_with_the_lowest_sufficient_priority() -> None:
    found = vain(full(priority=100).pod("same", cpu=1, priority=100), "same")
    assert objections(found) == {"their priority 100 is not lower": wanted(found)}
    assert len(wanted(found)) == 1
    assert found.changes == ("raise its priority above 100",)


def test_dry_run_lists_a_whole_gang_as_victims() -> None:
    scenario = Scenario().nodes(2, cpu=4).job("a", 4, cpu=1, priority=7).job("b", 4, cpu=1, priority=9).run()
    found = vain(scenario.job("c", 3, cpu=1), "c")
    assert wanted(found) == [f"a-{number}" for number in range(4)]
    assert found.changes == ("raise its priority above 7",)


def test_evictable_pods_come_first_and_only_the_remaining_pods_object() -> None:
    scenario = Scenario().node("n1", cpu=2).pod("low", cpu=1).pod("equal", cpu=1, priority=10).run()
    found = vain(scenario.pod("asks", cpu=2, priority=10), "asks")
    assert wanted(found) == ["equal", "low"]
    assert objections(found) == {"their priority 10 is not lower": ["equal"]}


def test_protected_pod_is_reported_beside_a_daemon_set_pod() -> None:
    scenario = Scenario().node("n1", cpu=2).pod("daemon", cpu=1, more={"fixture": True})
    scenario.pod("mine", cpu=1, more={"preemptable": False}).run()
    found = vain(scenario.pod("asks", cpu=1, priority=10), "asks")
    assert objections(found) == {"each is marked as not preemptable": ["mine"]}
    assert found.changes == ("make ns/mine preemptable (volcano.sh/preemptable)",)


def test_dry_run_reports_amounts_missing_even_after_all_evictions() -> None:
    found = vain(full().pod("large", cpu=3, priority=10), "large")
    assert found.what_if is not None
    assert found.what_if.eviction is None
    assert found.what_if.missing is not None
    assert found.changes == ()


def test_minimum_run_time_is_reported_with_its_end() -> None:
    scenario = Scenario().queue("q", min_run_time=600).node("n1", cpu=1).pod("low", cpu=1, queue="q").run()
    found = vain(scenario.pod("high", cpu=1, priority=10, queue="q"), "high")
    assert [obstacle.until for obstacle in found.what_if.obstacles] == [1600.0]  # type: ignore[union-attr]
    assert found.changes == (
        "wait until 1970-01-01T00:26:40Z (ns/low has run for less than the 10m that queue q guarantees)",
    )


def test_pod_with_two_objections_needs_two_changes() -> None:
    scenario = Scenario().queue("q", min_run_time=600).node("n1", cpu=1).pod("low", cpu=1, queue="q").run()
    found = vain(scenario.pod("same", cpu=1, queue="q"), "same")
    assert len(objections(found)) == 2
    assert len(found.changes) == 1
    assert found.changes[0].startswith("wait until ")
    assert found.changes[0].endswith(", and raise its priority above 0")


def test_quotas_within_their_min_object_and_a_larger_own_min_would_help() -> None:
    scenario = two_quotas().within("a").pods("a", 4, cpu=1).within("b").pods("b", 6, cpu=1).run()
    found = vain(scenario.pod("more", cpu=1), "more")
    assert objections(found) == {"their priority 0 is not lower": wanted(found)}
    assert found.changes == ("raise its priority above 0",)


def test_borrowing_quota_can_be_reclaimed_by_a_quota_with_a_larger_min() -> None:
    scenario = Scenario().node("n1", cpu=10).node("n2", cpu=10)
    scenario.elastic_quota("a", {"cpu": 4}, {"cpu": 20}).elastic_quota("b", {"cpu": 0}, {"cpu": 20})
    scenario.within("a").pods("a", 4, cpu=1).run()
    scenario.within("c").elastic_quota("c", {"cpu": 16}, {"cpu": 20})
    scenario.within("a").pods("lent", 16, cpu=1).run()
    found = vain(scenario.within("b").pod("b", cpu=2), "b")
    assert objections(found) == {"ElasticQuota b/quota would use more cpu than its min": wanted(found)}
    assert found.changes == ("raise the min of ElasticQuota b/quota by 2 cpu",)


def test_dry_run_names_the_queues_that_object_and_their_amounts() -> None:
    scenario = Scenario(CAPACITY).nodes(1, cpu=8)
    scenario.queue("a", deserved={"cpu": 4}).queue("b", deserved={"cpu": 4}, reclaimable=False)
    scenario.pods("b", 8, cpu=1, queue="b").run()
    found = vain(scenario.pod("a", cpu=1, queue="a"), "a")
    assert objections(found) == {"queue b is not reclaimable": wanted(found)}
    assert found.changes == ("make queue b reclaimable",)


def test_queue_at_its_deserved_amount_would_need_a_larger_one() -> None:
    scenario = Scenario(CAPACITY).nodes(1, cpu=8)
    scenario.queue("a", deserved={"cpu": 2}).queue("b", deserved={"cpu": 4})
    scenario.pods("b", 8, cpu=1, queue="b").run()
    found = vain(scenario.pod("a", cpu=3, queue="a"), "a")
    assert objections(found) == {"queue a would use more cpu than its deserved share": wanted(found)}
    assert found.changes == ("raise the deserved of queue a by 1 cpu",)


def test_queue_at_its_weighted_share_gets_no_more_whichever_pods_are_evicted() -> None:
    scenario = Scenario(PROPORTION).nodes(2, cpu=4).queue("a", weight=1).queue("b", weight=1)
    scenario.pods("a", 8, cpu=1, queue="a").run()
    found = vain(scenario.job("b", 5, queue="b", cpu=1), "b")
    assert found.what_if is not None
    assert isinstance(found.what_if.missing, OverQuota)
    assert found.what_if.missing.account.label == "queue b"
    assert found.changes == ()


def test_policy_without_evictions_is_named() -> None:
    scenario = Scenario(NO_EVICTIONS).node("n1", cpu=1).pod("low", cpu=1).run()
    found = vain(scenario.pod("high", cpu=1, priority=10), "high")
    assert objections(found) == {"the policy has no action that preempts": ["low"]}
    assert found.changes == ("add the action preempt to the policy",)


def test_eviction_on_one_node_at_a_time_is_named() -> None:
    scenario = Scenario(ONE_NODE).nodes(2, cpu=2)
    scenario.elastic_quota("q1", {"cpu": 0}, {"cpu": 2}).elastic_quota("q2", {"cpu": 2}, {"cpu": 2})
    scenario.within("q1").pod("one", cpu=1, node="n1").pod("two", cpu=1, node="n2").run()
    found = vain(scenario.within("q2").pod("large", cpu=2), "large")
    assert wanted(found) == ["one", "two"]
    assert list(objections(found)) == [
        "the policy requires all victims of a pod on one node (singleNodePreemption)"
    ]
    assert found.changes == ("remove singleNodePreemption from the policy",)


def test_pod_with_preemption_policy_never_is_reported() -> None:
    found = vain(full().pod("high", cpu=1, priority=10, more={"preempts": False}), "high")
    assert list(objections(found)) == ["the preemptor has the preemptionPolicy Never"]
    assert found.changes == ("use a priority class with preemptionPolicy PreemptLowerPriority",)


def test_one_protected_member_protects_its_whole_gang() -> None:
    scenario = Scenario().node("n1", cpu=2).gang("low", 2)
    scenario.pod("low-0", gang="low", cpu=1).pod("low-1", gang="low", cpu=1, more={"preemptable": False}).run()
    found = vain(scenario.pod("high", cpu=1, priority=10), "high")
    assert objections(found) == {
        "each is marked as not preemptable": ["low-1"],
        "each belongs to a gang with another member that cannot be evicted": ["low-0"],
    }


def test_no_victims_are_searched_for_a_gang_above_its_minimum() -> None:
    scenario = Scenario().node("n1", cpu=2).pod("low", cpu=1).run()
    scenario.job("elastic", 2, minimum=1, cpu=1, priority=10).run()
    assert vain(scenario, "elastic-1").what_if is None


def test_dry_run_does_not_change_the_cluster() -> None:
    scenario = full(priority=100).pod("same", cpu=1, priority=100)
    rehearsal = rehearse(scenario)
    session: Session = rehearsal.session
    unit = rehearsal.unit("same")
    assert unit is not None
    before = session.state.nodes.idle.copy()
    answers = [rehearsal.disruption(unit) for _ in range(2)]
    first, second = (found for found in answers if isinstance(found, NothingHelps))
    assert first.changes == second.changes == ("raise its priority above 100",)
    assert objections(first) == objections(second)
    assert (session.state.nodes.idle == before).all()
    assert scenario.run().evicted == []
