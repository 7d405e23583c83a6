"""Self-protection: annotations of owners against eviction apply within their accounts' guarantees, as far as an
administrator allows, and for a limited time.
"""

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
    """Eight CPUs; `a` has this min, `b` the remainder."""
    scenario = Scenario(policy).nodes(4, cpu=2)
    scenario.elastic_quota("b", {"cpu": 8 - own}, {"cpu": 8})
    key = AccountKey(Tree.ELASTIC_QUOTA, "a")
    scenario.account(key, label="ElasticQuota a/quota", deserved={"cpu": own}, capability={"cpu": 8}, **fields)
    return scenario.within("a")


def runs(scenario: Scenario, prefix: str, count: int, **more: Any) -> Scenario:
    """Running pods of `a`, each bound a second after the one before."""
    for number in range(count):
        scenario.pod(f"{prefix}{number}", cpu=1, more={"bound": 500 + number, **more})
    return scenario.run()


def take_back(scenario: Scenario, cpu: int) -> list[str]:
    """Return the victims for `b`, which requests this number of CPUs as one gang."""
    scenario.within("b").job("mine", cpu, cpu=1)
    scenario.settle()
    return sorted(scenario.evicted)


class TestAgainstReclaim:
    def test_protection_covers_the_oldest_pods_up_to_the_guarantee(self) -> None:
        assert take_back(runs(quotas(), "p", 8, **MARKED), 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    def test_eviction_message_names_the_ignored_annotation_and_the_reason(self) -> None:
        scenario = runs(quotas(), "p", 8, **MARKED)
        take_back(scenario, 1)
        (eviction,) = [each for plan in scenario.plans for each in plan.evictions]
        assert eviction.message == (
            "ElasticQuota a/quota uses 8 cpu, 6 above its share; that it is marked as not preemptable does "
            "not count: it exceeds the guarantee of ElasticQuota a/quota"
        )

    def test_every_resource_with_a_guarantee_limits_protection(self) -> None:
        scenario = quotas(own=4).node("g", cpu=4, gpu=2)
        scenario.elastic_quota("b", {"cpu": 8, "gpu": 2}, {})
        scenario.pod("p", cpu=1, gpu=1, more=MARKED).run()
        scenario.within("b").pods("theirs", 2, gpu=1).settle()
        assert scenario.evicted == ["p"]

    @pytest.mark.parametrize("tree", [Tree.KOORDINATOR, Tree.ACK])
    def test_min_of_any_kind_of_quota_is_a_guarantee(self, tree: Tree) -> None:
        scenario = Scenario().nodes(4, cpu=2)
        for name, least in (("a", 2), ("b", 6)):
            scenario.account(
                AccountKey(tree, name), deserved={"cpu": least}, capability={"cpu": 8}, namespaces=(name,)
            )
        runs(scenario.within("a"), "p", 8, **MARKED)
        assert take_back(scenario, 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    @pytest.mark.parametrize("tree", [Tree.KOORDINATOR, Tree.ACK])
    @pytest.mark.parametrize("pool", [None, 8])
    def test_koordinator_root_without_a_min_takes_nothing_from_its_children(
        self, tree: Tree, pool: int | None
    ) -> None:
        """No object declares Koordinator's own root; the root of a node pool has the pool's amounts."""
        root, scenario = AccountKey(tree, "koordinator-root-quota"), Scenario().nodes(4, cpu=2)
        scenario.account(root, parental=True, total=limits({"cpu": pool}) if pool else None)
        scenario.account(AccountKey(tree, "both"), parent=root, deserved={"cpu": 8}, parental=True)
        for name, least in (("a", 2), ("b", 6)):
            fields = {"deserved": {"cpu": least}, "capability": {"cpu": 8}, "namespaces": (name,)}
            scenario.account(AccountKey(tree, name), parent=AccountKey(tree, "both"), **fields)
        runs(runs(scenario.within("a"), "p", 6), "q", 2, **MARKED)
        assert take_back(scenario, 6) == ["p0", "p1", "p2", "p3", "p4", "p5"]

    @pytest.mark.parametrize("field", ["deserved", "guarantee"])
    def test_deserved_amount_of_a_queue_is_a_guarantee(self, field: str) -> None:
        scenario = Scenario(POLICY % "").nodes(4, cpu=2).queue("b", deserved={"cpu": 6})
        scenario.account(AccountKey(Tree.QUEUE, "a"), **{field: {"cpu": 2}})
        for number in range(8):
            scenario.pod(f"p{number}", cpu=1, queue="a", more={"bound": 500 + number, **MARKED})
        scenario.run().job("mine", 6, queue="b", cpu=1).settle()
        assert sorted(scenario.evicted) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    def test_cooldowns_and_disruption_budgets_protect_up_to_the_guarantee_only(self) -> None:
        scenario = runs(quotas(policy=POLICY % ", {name: cdp}"), "p", 8, cooldown=10_000)
        assert take_back(scenario, 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]
        scenario = quotas(policy=POLICY % ", {name: pdb}")
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("a", "all", 0)))
        assert take_back(runs(scenario, "p", 8, budgets=("all",)), 6) == ["p2", "p3", "p4", "p5", "p6", "p7"]

    def test_eviction_that_the_api_server_rejects_stays_rejected(self) -> None:
        scenario = quotas(policy="phalanx: {evictions: eviction-api}\n" + POLICY % "")
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("a", "all", 0)))
        assert take_back(runs(scenario, "p", 8, budgets=("all",)), 6) == []

    def test_protection_does_not_apply_to_a_part_of_a_gang(self) -> None:
        """One small covered member must not protect a large gang."""
        scenario = quotas(own=2).job("big", 8, cpu=1).becomes("big-0", preemptable=False).run()
        assert len(take_back(scenario, 6)) == 8

    def test_gang_that_fits_the_guarantee_as_a_whole_is_protected(self) -> None:
        scenario = quotas(own=4).job("old", 4, cpu=1).becomes_all("old", bound=400).becomes("old-0", **MARKED).run()
        runs(scenario, "p", 4, **MARKED)
        assert take_back(scenario, 4) == ["p0", "p1", "p2", "p3"]

    def test_members_above_the_minimum_do_not_protect_an_uncovered_gang(self) -> None:
        scenario = quotas(own=1).job("elastic", 8, minimum=4, cpu=1).becomes_all("elastic", **MARKED).run()
        assert len(take_back(scenario, 7)) == 8

    def test_annotation_of_a_gang_protects_like_those_of_its_members(self) -> None:
        scenario = quotas(own=2).job("big", 8, cpu=1).gang("big", 8, preemptable=False).run()
        assert len(take_back(scenario, 6)) == 8


class TestQuestionsAboutProtection:
    def verdict(self, scenario: Scenario, name: str) -> str:
        session = scenario.scheduler.new_session(scenario.now)
        return protected_pods_of(session).verdict(scenario.state.pods[name])

    def test_answer_names_ignored_protection_and_the_reason(self) -> None:
        scenario = runs(quotas(), "p", 8, **MARKED)
        assert self.verdict(scenario, "p1") == ""
        assert self.verdict(scenario, "p2") == (
            "; that it is marked as not preemptable does not count: it exceeds the guarantee of "
            "ElasticQuota a/quota"
        )

    def test_answer_says_where_protection_is_within_the_account(self) -> None:
        scenario = Scenario().nodes(4, cpu=2).elastic_quota("a", {}, {"cpu": 8}).elastic_quota("b", {"cpu": 1}, {})
        runs(scenario.within("a"), "p", 1, **MARKED)
        assert self.verdict(scenario, "p0").endswith(", when other accounts reclaim")

    def test_answer_is_empty_for_a_pod_without_protection(self) -> None:
        assert self.verdict(runs(quotas(), "p", 8), "p7") == ""


class TestWithinTheAccount:
    def important(self, scenario: Scenario) -> list[str]:
        scenario.pods("high", 4, cpu=1, priority=9).settle()
        return scenario.evicted

    def test_protection_applies_where_no_amount_is_guaranteed(self) -> None:
        scenario = Scenario().nodes(4, cpu=2)
        assert self.important(runs(scenario, "p", 8, **MARKED)) == []

    def test_protection_applies_where_the_quota_has_no_min(self) -> None:
        scenario = Scenario().nodes(4, cpu=2).elastic_quota("a", {}, {"cpu": 8}).within("a")
        assert self.important(runs(scenario, "p", 8, **MARKED)) == []

    def test_protection_applies_within_the_guarantee(self) -> None:
        assert self.important(runs(quotas(own=6), "p", 8, **MARKED)) == ["p6", "p7"]


class TestAdministratorSettings:
    def test_none_lets_no_pod_protect_itself(self) -> None:
        scenario = runs(quotas(own=8, self_protection=SelfProtection.NONE), "p", 8, **MARKED)
        scenario.pods("high", 1, cpu=1, priority=9).settle()
        (eviction,) = [each for plan in scenario.plans for each in plan.evictions]
        assert eviction.message == (
            "priority 0 is below priority 9; that it is marked as not preemptable does not count: "
            "ElasticQuota a/quota lets no pod protect itself"
        )

    def test_all_lets_every_pod_protect_itself(self) -> None:
        assert take_back(runs(quotas(self_protection=SelfProtection.ALL), "p", 8, **MARKED), 6) == []

    def test_setting_of_an_account_applies_to_its_children_unless_they_override_it(self) -> None:
        scenario = Scenario(POLICY % "").nodes(4, cpu=2).queue("b", deserved={"cpu": 8})
        scenario.queue("team", parental=True, self_protection=SelfProtection.ALL)
        scenario.queue("x", parent="team").queue("y", parent="team", self_protection=SelfProtection.GUARANTEED)
        for name in "xy":
            for number in range(4):
                scenario.pod(f"{name}{number}", cpu=1, queue=name, more=MARKED)
        scenario.run().pods("mine", 8, queue="b", cpu=1).settle()
        assert sorted(scenario.evicted) == ["y0", "y1", "y2", "y3"]

    def test_strictest_setting_of_several_trees_applies(self) -> None:
        scenario = quotas(self_protection=SelfProtection.ALL)
        scenario.queue("default", self_protection=SelfProtection.NONE)
        assert len(take_back(runs(scenario, "p", 8, **MARKED), 6)) == 6

    @pytest.mark.parametrize(("word", "gone"), [("none", 6), ("guaranteed", 6), ("all", 0)])
    def test_policy_decides_where_no_account_has_a_setting(self, word: str, gone: int) -> None:
        scenario = quotas(policy=f"phalanx: {{selfProtection: {word}}}\n" + POLICY % "")
        assert len(take_back(runs(scenario, "p", 8, **MARKED), 6)) == gone

    def test_protection_of_a_pod_expires(self) -> None:
        scenario = runs(quotas(own=8, max_protection=600), "p", 8, **MARKED)
        scenario.pod("high", cpu=1, priority=9).settle()
        assert scenario.evicted == []
        scenario.now = 1101
        scenario.scheduler.activate_due(scenario.now)
        scenario.settle()
        assert len(scenario.evicted) == 1
        assert scenario.scheduler.idle

    def test_changed_setting_applies_at_once(self) -> None:
        scenario = runs(quotas(self_protection=SelfProtection.ALL), "p", 8, **MARKED)
        assert take_back(scenario, 6) == []
        key = AccountKey(Tree.ELASTIC_QUOTA, "a")
        scenario.account(key, deserved={"cpu": 2}, capability={"cpu": 8}).settle()
        assert len(scenario.evicted) == 6


@pytest.mark.thorough
@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(own=st.integers(0, 8), marked=st.lists(st.booleans(), min_size=8, max_size=8), wanted=st.integers(1, 8))
def test_protection_neither_keeps_borrowed_amounts_nor_loses_guaranteed_ones(
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


def test_non_preemptible_pods_are_limited_to_a_lowered_min() -> None:
    """Koordinator's `preemptible: "false"`."""
    scenario = Scenario().nodes(4, cpu=2)
    a, b = (AccountKey(Tree.KOORDINATOR, name) for name in "ab")
    scenario.account(a, deserved={"cpu": 8}, capability={"cpu": 8}, namespaces=("a",))
    scenario.within("a").pods("p", 8, cpu=1, firm=True).run()
    scenario.account(a, deserved={"cpu": 2}, capability={"cpu": 8}, namespaces=("a",))
    scenario.account(b, deserved={"cpu": 6}, capability={"cpu": 8}, namespaces=("b",))
    assert len(take_back(scenario, 6)) == 6
