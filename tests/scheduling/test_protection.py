"""Vetoes on victims: annotations that apply under every policy, and the plugins conformance, cdp and pdb."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.scheduling.framework.extension_points import EvictVeto

from .desk import policy
from .scenario import NAMESPACE, Scenario

BARE = policy()
FOREIGN = f"{policy()}\nconfigurations: [{{name: preempt, arguments: {{phalanx.foreignVictims: true}}}}]"


def spared(scenario: Scenario, name: str = "p") -> list[EvictVeto]:
    """Return every objection to the eviction of a pod."""
    session = scenario.scheduler.new_session(scenario.now)
    record = scenario.state.pods[name]
    said = [plugin.evict_veto(session, record) for plugin in session.plugin_runtime.plugins("evict_veto")]
    return [each for each in said if each is not None]


def why(scenario: Scenario, name: str = "p") -> list[str]:
    return [each.why for each in spared(scenario, name)]


def world(plugins: str = BARE, scheduler: str = "phalanx", **fields: Any) -> Scenario:
    scenario = Scenario(plugins).node("n").pod("p", node="n", cpu=1, scheduler=scheduler)
    return scenario.becomes("p", **fields)


class TestUnderEveryPolicy:
    def test_ordinary_pod_is_evictable(self) -> None:
        assert spared(world()) == []

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"firm": True}, "is not preemptible and within its quota's min"),
            ({"preemptable": False}, "is marked as not preemptable"),
        ],
    )
    def test_annotations_of_pods_protect_them(self, fields: dict[str, Any], reason: str) -> None:
        assert spared(world(**fields)) == [EvictVeto(reason, own=True)]

    def test_daemon_set_and_static_pods_are_protected(self) -> None:
        assert spared(world(fixture=True)) == [EvictVeto("is tied to its node: it would be created again there")]

    def test_annotations_of_gangs_protect_their_members(self) -> None:
        scenario = Scenario(BARE).node("n").job("train", 2, node="n", cpu=1)
        assert why(scenario, "train-0") == []
        scenario.gang("train", 2, preemptable=False)
        assert why(scenario, "train-0") == ["belongs to gang ns/train, which is marked as not preemptable"]

    def test_pods_of_other_schedulers_are_protected_unless_the_policy_allows_it(self) -> None:
        assert why(world(scheduler="default-scheduler")) == ["belongs to scheduler default-scheduler"]
        allowed = FOREIGN.replace("backfill", "backfill, preempt")
        assert why(world(allowed, scheduler="default-scheduler")) == []

    def test_minimum_run_times_of_all_accounts_on_the_path_protect_a_pod(self) -> None:
        scenario = world(bound=400, started=700).queue("default", min_run_time=900)
        scenario.elastic_quota(NAMESPACE, {}, {})
        assert spared(scenario) == [
            EvictVeto("has run for less than the 15m that queue default guarantees", until=1300.0)
        ]
        key = AccountKey(Tree.ELASTIC_QUOTA, NAMESPACE)
        scenario.account(key, label="the quota", min_run_time=1200)
        assert spared(scenario) == [
            EvictVeto("has run for less than the 20m that the quota guarantees", until=1600.0)
        ]
        scenario.now = 1600
        assert spared(scenario) == []

    @pytest.mark.parametrize(
        ("fields", "until"),
        [({"bound": 950, "started": 980}, 1050.0), ({"started": 980}, 1080.0), ({"created": 990}, 1090.0)],
    )
    def test_run_time_counts_from_the_binding_or_the_best_known_time(
        self, fields: dict[str, Any], until: float
    ) -> None:
        scenario = world(**fields).queue("default", min_run_time=100)
        assert [each.until for each in spared(scenario)] == [until]

    def test_pod_whose_eviction_the_api_rejected_is_protected_for_a_while(self) -> None:
        scenario = world()
        scenario.state.pods.mark_evicting(scenario.state.pods["p"])
        scenario.state.pods.eviction_refused("p", 1060.0)
        assert spared(scenario) == [EvictVeto("could not be evicted recently", until=1060.0)]
        scenario.now = 1060
        assert spared(scenario) == []


class TestConformance:
    POLICY = policy("name: conformance")

    def test_conformance_protects_system_pods(self) -> None:
        assert why(world(self.POLICY, critical=True)) == ["is critical to the cluster"]
        scenario = Scenario(self.POLICY).node("n").within("kube-system").pod("p", node="n", cpu=1)
        assert why(scenario) == ["is in namespace kube-system"]
        assert why(world(self.POLICY)) == []

    def test_without_conformance_only_priorities_protect_system_pods(self) -> None:
        assert why(world(critical=True)) == []


class TestCooldown:
    POLICY = policy("name: cdp")

    def test_running_pod_is_protected_during_its_cooldown(self) -> None:
        scenario = world(self.POLICY, bound=900, cooldown=300)
        assert spared(scenario) == [EvictVeto("is protected for 5m after its binding", until=1200.0, own=True)]
        scenario.now = 1200
        assert spared(scenario) == []

    def test_pod_that_is_not_running_yet_has_no_cooldown(self) -> None:
        assert spared(world(self.POLICY, bound=900, cooldown=300, phase="Pending")) == []

    def test_cooldown_applies_only_where_the_policy_names_cdp(self) -> None:
        assert spared(world(bound=900, cooldown=300)) == []


class TestBudgets:
    POLICY = policy("name: pdb")

    def budget(self, scenario: Scenario, allowed: int, *disrupted: str) -> Scenario:
        spec = DisruptionBudget(NAMESPACE, "web", allowed, frozenset(disrupted))
        return scenario.observe("budget", DisruptionBudgetUpdated(spec))

    def test_exhausted_disruption_budget_is_a_veto(self) -> None:
        scenario = self.budget(world(self.POLICY, budgets=("web",)), 0)
        assert why(scenario) == ["is counted by PodDisruptionBudget web, which allows no disruption now"]
        assert why(self.budget(scenario, 1)) == []
        assert why(self.budget(scenario, 0, "p")) == []

    def test_pods_outside_of_the_disruption_budget_are_evictable(self) -> None:
        assert why(self.budget(world(self.POLICY), 0)) == []

    def test_without_the_pdb_plugin_a_disruption_budget_is_no_veto(self) -> None:
        assert why(self.budget(world(budgets=("web",)), 0)) == []


class TestHowVetoesCombine:
    def test_veto_of_any_tier_applies(self) -> None:
        """Volcano #5963, #5896: a later tier or plugin made a pod evictable again that an earlier one had
        protected.
        """
        plugins = "{plugins: [{name: pdb}, {name: gang}]}, {plugins: [{name: conformance}, {name: cdp}]}"
        text = f"actions: allocate, preempt\ntiers: [{{plugins: [{{name: predicates}}]}}, {plugins}]"
        scenario = world(text, critical=True, bound=900, cooldown=300, budgets=("web",))
        TestBudgets().budget(scenario, 0)
        assert len(why(scenario)) == 3
        assert why(scenario.becomes("p", critical=False, cooldown=0)) == [
            "is counted by PodDisruptionBudget web, which allows no disruption now"
        ]
