"""How much of what owners say against the eviction of their pods counts: within what their accounts have of their
own, as far as an administrator lets them, and for as long."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.model.account import AccountKey, SelfProtection, Tree
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.scheduling.preemption.rules.self_protection import protected_pods_of

from ..extent import examples
from .scenario import Scenario, limits

POLICY = """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: conformance}%s]},
        {plugins: [{name: drf}, {name: predicates}, {name: capacity}, {name: nodeorder}]}]
"""
MARKED = {"preemptable": False}


def quotas(own: int = 2, policy: str | None = None, **fields: Any) -> Scenario:
    """Eight CPUs; `a` has a min of so many, `b` the rest."""
    scenario = Scenario(policy).nodes(4, cpu=2)
    scenario.elastic_quota("b", {"cpu": 8 - own}, {"cpu": 8})
    key = AccountKey(Tree.ELASTIC_QUOTA, "a")
    scenario.account(key, label="ElasticQuota a/quota", deserved={"cpu": own}, capability={"cpu": 8}, **fields)
    return scenario.within("a")


def runs(scenario: Scenario, prefix: str, count: int, **more: Any) -> Scenario:
    """Pods of `a` that run, each bound a second after the one before."""
    for number in range(count):
        scenario.pod(f"{prefix}{number}", cpu=1, more={"bound": 500 + number, **more})
    return scenario.run()


def take_back(scenario: Scenario, cpu: int) -> list[str]:
    """Who goes for `b`, which asks for so many CPUs as one gang."""
    scenario.within("b").job("mine", cpu, cpu=1)
    scenario.settle()
    return sorted(scenario.evicted)


class TestAgainstWhoeverTakesBackWhatIsHis:
    def test_it_covers_the_oldest_as_far_as_their_own_reaches(self) -> None:
        assert take_back(runs(quotas(), "p", 8, **MARKED), 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    def test_the_message_names_what_did_not_count_and_why(self) -> None:
        scenario = runs(quotas(), "p", 8, **MARKED)
        take_back(scenario, 1)
        (eviction,) = [each for plan in scenario.plans for each in plan.evictions]
        assert eviction.message == (
            "ElasticQuota a/quota uses 8 cpu, 6 above its share; that it is marked as not preemptable does "
            "not count: it exceeds the guarantee of ElasticQuota a/quota"
        )

    def test_every_resource_counts_that_anybody_has_a_share_of(self) -> None:
        scenario = quotas(own=4).node("g", cpu=4, gpu=2)
        scenario.elastic_quota("b", {"cpu": 8, "gpu": 2}, {})
        scenario.pod("p", cpu=1, gpu=1, more=MARKED).run()
        scenario.within("b").pods("theirs", 2, gpu=1).settle()
        assert scenario.evicted == ["p"]

    @pytest.mark.parametrize("tree", [Tree.KOORDINATOR, Tree.ACK])
    def test_any_kind_of_quota_guarantees_its_min(self, tree: Tree) -> None:
        scenario = Scenario().nodes(4, cpu=2)
        for name, least in (("a", 2), ("b", 6)):
            scenario.account(
                AccountKey(tree, name), deserved={"cpu": least}, capability={"cpu": 8}, namespaces=(name,)
            )
        runs(scenario.within("a"), "p", 8, **MARKED)
        assert take_back(scenario, 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    @pytest.mark.parametrize("tree", [Tree.KOORDINATOR, Tree.ACK])
    @pytest.mark.parametrize("pool", [None, 8])
    def test_a_root_that_states_no_min_takes_nothing_from_those_below(self, tree: Tree, pool: int | None) -> None:
        """Koordinator's own root is written down by nobody; that of a pool of nodes says what the pool has."""
        root, scenario = AccountKey(tree, "koordinator-root-quota"), Scenario().nodes(4, cpu=2)
        scenario.account(root, parental=True, total=limits({"cpu": pool}) if pool else None)
        scenario.account(AccountKey(tree, "both"), parent=root, deserved={"cpu": 8}, parental=True)
        for name, least in (("a", 2), ("b", 6)):
            fields = {"deserved": {"cpu": least}, "capability": {"cpu": 8}, "namespaces": (name,)}
            scenario.account(AccountKey(tree, name), parent=AccountKey(tree, "both"), **fields)
        runs(runs(scenario.within("a"), "p", 6), "q", 2, **MARKED)
        assert take_back(scenario, 6) == ["p0", "p1", "p2", "p3", "p4", "p5"]

    @pytest.mark.parametrize("field", ["deserved", "guarantee"])
    def test_a_queue_guarantees_what_it_deserves(self, field: str) -> None:
        scenario = Scenario(POLICY % "").nodes(4, cpu=2).queue("b", deserved={"cpu": 6})
        scenario.account(AccountKey(Tree.QUEUE, "a"), **{field: {"cpu": 2}})
        for number in range(8):
            scenario.pod(f"p{number}", cpu=1, queue="a", more={"bound": 500 + number, **MARKED})
        scenario.run().job("mine", 6, queue="b", cpu=1).settle()
        assert sorted(scenario.evicted) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    def test_cooldowns_and_disruption_budgets_reach_no_farther(self) -> None:
        scenario = runs(quotas(policy=POLICY % ", {name: cdp}"), "p", 8, cooldown=10_000)
        assert take_back(scenario, 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]
        scenario = quotas(policy=POLICY % ", {name: pdb}")
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("a", "all", 0)))
        assert take_back(runs(scenario, "p", 8, budgets=("all",)), 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    def test_what_the_api_server_refuses_it_refuses(self) -> None:
        scenario = quotas(policy="phalanx: {evictions: eviction-api}\n" + POLICY % "")
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("a", "all", 0)))
        assert take_back(runs(scenario, "p", 8, budgets=("all",)), 6) == []

    def test_it_does_not_count_for_less_than_a_whole_gang(self) -> None:
        """One small member that is covered must not keep a large gang in its place."""
        scenario = quotas(own=2).job("big", 8, cpu=1).becomes("big-0", preemptable=False).run()
        assert len(take_back(scenario, 6)) == 8

    def test_a_gang_that_fits_as_a_whole_is_covered(self) -> None:
        scenario = quotas(own=4).job("old", 4, cpu=1).becomes_all("old", bound=400).becomes("old-0", **MARKED).run()
        runs(scenario, "p", 4, **MARKED)
        assert take_back(scenario, 4) == ["p0", "p1", "p2", "p3"]

    def test_members_above_the_minimum_do_not_keep_a_gang_that_is_not_covered(self) -> None:
        scenario = quotas(own=1).job("elastic", 8, minimum=4, cpu=1).becomes_all("elastic", **MARKED).run()
        assert len(take_back(scenario, 7)) == 8

    def test_a_gangs_own_word_counts_as_its_members_do(self) -> None:
        scenario = quotas(own=2).job("big", 8, cpu=1).gang("big", 8, preemptable=False).run()
        assert len(take_back(scenario, 6)) == 8


class TestWhoeverAsks:
    def verdict(self, scenario: Scenario, name: str) -> str:
        session = scenario.scheduler.new_session(scenario.now)
        return protected_pods_of(session).verdict(scenario.state.pods[name])

    def test_is_told_of_whom_the_word_does_not_count_and_why(self) -> None:
        scenario = runs(quotas(), "p", 8, **MARKED)
        assert self.verdict(scenario, "p1") == ""
        assert self.verdict(scenario, "p2") == (
            "; that it is marked as not preemptable does not count: it exceeds the guarantee of "
            "ElasticQuota a/quota"
        )

    def test_is_told_where_it_counts_within_the_account(self) -> None:
        scenario = Scenario().nodes(4, cpu=2).elastic_quota("a", {}, {"cpu": 8}).elastic_quota("b", {"cpu": 1}, {})
        runs(scenario.within("a"), "p", 1, **MARKED)
        assert self.verdict(scenario, "p0").endswith(", when other accounts reclaim")

    def test_is_told_nothing_of_a_pod_that_says_nothing(self) -> None:
        assert self.verdict(runs(quotas(), "p", 8), "p7") == ""


class TestAgainstOthersOfTheSameAccount:
    def important(self, scenario: Scenario) -> list[str]:
        scenario.pods("high", 4, cpu=1, priority=9).settle()
        return scenario.evicted

    def test_it_is_honoured_where_nothing_is_guaranteed(self) -> None:
        scenario = Scenario().nodes(4, cpu=2)
        assert self.important(runs(scenario, "p", 8, **MARKED)) == []

    def test_and_where_the_quota_has_no_min(self) -> None:
        scenario = Scenario().nodes(4, cpu=2).elastic_quota("a", {}, {"cpu": 8}).within("a")
        assert self.important(runs(scenario, "p", 8, **MARKED)) == []

    def test_it_is_honoured_within_what_is_guaranteed(self) -> None:
        assert self.important(runs(quotas(own=6), "p", 8, **MARKED)) == ["p6", "p7"]


class TestWhatAnAdministratorSays:
    def test_none_lets_nobody_protect_himself(self) -> None:
        scenario = runs(quotas(own=8, self_protection=SelfProtection.NONE), "p", 8, **MARKED)
        scenario.pods("high", 1, cpu=1, priority=9).settle()
        (eviction,) = [each for plan in scenario.plans for each in plan.evictions]
        assert eviction.message == (
            "priority 0 is below priority 9; that it is marked as not preemptable does not count: "
            "ElasticQuota a/quota lets no pod protect itself"
        )

    def test_all_lets_everybody(self) -> None:
        assert take_back(runs(quotas(self_protection=SelfProtection.ALL), "p", 8, **MARKED), 6) == []

    def test_it_holds_for_what_is_below_unless_that_says_otherwise(self) -> None:
        scenario = Scenario(POLICY % "").nodes(4, cpu=2).queue("b", deserved={"cpu": 8})
        scenario.queue("team", parental=True, self_protection=SelfProtection.ALL)
        scenario.queue("x", parent="team").queue("y", parent="team", self_protection=SelfProtection.GUARANTEED)
        for name in "xy":
            for number in range(4):
                scenario.pod(f"{name}{number}", cpu=1, queue=name, more=MARKED)
        scenario.run().pods("mine", 8, queue="b", cpu=1).settle()
        assert sorted(scenario.evicted) == ["y0", "y1", "y2", "y3"]

    def test_of_several_trees_the_strictest_word_holds(self) -> None:
        scenario = quotas(self_protection=SelfProtection.ALL)
        scenario.queue("default", self_protection=SelfProtection.NONE)
        assert len(take_back(runs(scenario, "p", 8, **MARKED), 6)) == 6

    @pytest.mark.parametrize(("word", "gone"), [("none", 6), ("guaranteed", 6), ("all", 0)])
    def test_the_policy_decides_where_nobody_says_anything(self, word: str, gone: int) -> None:
        scenario = quotas(policy=f"phalanx: {{selfProtection: {word}}}\n" + POLICY % "")
        assert len(take_back(runs(scenario, "p", 8, **MARKED), 6)) == gone

    def test_a_pod_protects_itself_only_so_long(self) -> None:
        scenario = runs(quotas(own=8, max_protection=600), "p", 8, **MARKED)
        scenario.pod("high", cpu=1, priority=9).settle()
        assert scenario.evicted == []
        scenario.now = 1101
        scenario.scheduler.activate_due(scenario.now)
        scenario.settle()
        assert len(scenario.evicted) == 1
        assert scenario.scheduler.idle

    def test_a_change_of_the_word_is_heeded_at_once(self) -> None:
        scenario = runs(quotas(self_protection=SelfProtection.ALL), "p", 8, **MARKED)
        assert take_back(scenario, 6) == []
        key = AccountKey(Tree.ELASTIC_QUOTA, "a")
        scenario.account(key, deserved={"cpu": 2}, capability={"cpu": 8}).settle()
        assert len(scenario.evicted) == 6


@pytest.mark.thorough
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(own=st.integers(0, 8), marked=st.lists(st.booleans(), min_size=8, max_size=8), wanted=st.integers(1, 8))
def test_nobody_keeps_what_was_lent_by_saying_so_nor_loses_what_is_his(
    own: int, marked: list[bool], wanted: int
) -> None:
    scenario = quotas(own=own)
    for number, mark in enumerate(marked):
        scenario.pod(f"p{number}", cpu=1, more={"bound": 500 + number, "preemptable": not mark})
    scenario.run()
    evicted = take_back(scenario, wanted)
    covered = [f"p{number}" for number, mark in enumerate(marked) if mark][:own]
    assert not set(covered) & set(evicted)
    assert len(evicted) == (wanted if wanted <= 8 - own else 0)


def test_pods_that_may_never_be_preempted_are_held_to_a_min_that_was_lowered() -> None:
    """Koordinator's `preemptible: "false"`."""
    scenario = Scenario().nodes(4, cpu=2)
    a, b = (AccountKey(Tree.KOORDINATOR, name) for name in "ab")
    scenario.account(a, deserved={"cpu": 8}, capability={"cpu": 8}, namespaces=("a",))
    scenario.within("a").pods("p", 8, cpu=1, firm=True).run()
    scenario.account(a, deserved={"cpu": 2}, capability={"cpu": 8}, namespaces=("a",))
    scenario.account(b, deserved={"cpu": 6}, capability={"cpu": 8}, namespaces=("b",))
    assert len(take_back(scenario, 6)) == 6
