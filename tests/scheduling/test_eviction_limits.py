"""Limits of simultaneous evictions: PodDisruptionBudgets, and eviction rates of accounts."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import AccountKey, EvictionRate, Tree
from phalanx.model.disruption import DisruptionBudget
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionLimits
from phalanx.scheduling.session.eviction_log import EvictionLog

from .desk import policy, queue
from .scenario import NAMESPACE, Scenario

STRICT = policy("name: pdb")


def world(plugins: str | None = None, pods: int = 6, **fields: Any) -> Scenario:
    scenario = Scenario(plugins or policy()).node("n", pods=100).queue("a").queue("b")
    for number in range(pods):
        scenario.pod(f"p{number}", queue="a", node="n", cpu=1)
        scenario.becomes(f"p{number}", **fields)
    return scenario


def budget(scenario: Scenario, name: str, allowed: int, *disrupted: str) -> Scenario:
    spec = DisruptionBudget(NAMESPACE, name, allowed, frozenset(disrupted))
    return scenario.observe(f"budget {name}", DisruptionBudgetUpdated(spec))


def limits(scenario: Scenario, log: EvictionLog | None = None) -> EvictionLimits:
    return EvictionLimits(scenario.scheduler.new_session(scenario.now), log or EvictionLog())


def pods(scenario: Scenario, *numbers: int) -> list[PodRecord]:
    return [scenario.state.pods[f"p{number}"] for number in numbers]


class TestBudgets:
    REFUSED = f"PodDisruptionBudget {NAMESPACE}/web allows no further disruption"

    def test_disruption_budget_counts_the_whole_set_of_victims(self) -> None:
        scenario = budget(world(STRICT, budgets=("web",)), "web", 2)
        limit = limits(scenario)
        said = [limit.try_evict(record) for record in pods(scenario, 0, 1, 2)]
        assert said == [None, None, self.REFUSED]
        assert limit.violations == 0  # a rejected victim does not count
        limit.take_back(pods(scenario, 0)[0])
        assert limit.try_evict(pods(scenario, 2)[0]) is None

    def test_without_the_pdb_plugin_broken_budgets_are_counted(self) -> None:
        scenario = budget(world(budgets=("web",)), "web", 2)
        limit = limits(scenario)
        assert [limit.try_evict(record) for record in pods(scenario, 0, 1, 2, 3)] == [None] * 4
        assert limit.violations == 2
        limit.take_back(pods(scenario, 0)[0])
        assert limit.violations == 1

    def test_unit_is_evicted_whole_or_not_at_all_within_a_budget(self) -> None:
        scenario = budget(world(STRICT, budgets=("web",)), "web", 2)
        limit = limits(scenario)
        assert limit.try_evict_all(pods(scenario, 0, 1, 2)) == self.REFUSED
        assert limit.try_evict_all(pods(scenario, 0, 1)) is None

    def test_a_pod_counts_in_each_of_its_budgets(self) -> None:
        scenario = budget(budget(world(budgets=("web", "all")), "web", 0), "all", 1)
        limit = limits(scenario)
        assert [limit.try_evict(record) for record in pods(scenario, 0, 1)] == [None, None]
        assert limit.violations == 3

    def test_pods_that_no_known_budget_counts_can_be_evicted(self) -> None:
        """Volcano's plugin protects every pod without labels."""
        scenario = budget(world(STRICT), "web", 0)
        assert limits(scenario).try_evict(pods(scenario, 0)[0]) is None
        assert limits(scenario.becomes("p0", budgets=("gone",))).try_evict(pods(scenario, 0)[0]) is None

    def test_eviction_granted_by_the_api_server_is_not_counted_again(self) -> None:
        scenario = budget(world(STRICT, budgets=("web",)), "web", 1, "p0")
        limit = limits(scenario)
        assert [limit.try_evict(record) for record in pods(scenario, 0, 1)] == [None, None]
        assert limit.try_evict(pods(scenario, 2)[0]) == self.REFUSED

    def test_evicted_pod_counts_before_the_budget_status_shows_it(self) -> None:
        scenario = budget(world(STRICT, budgets=("web",)), "web", 2)
        scenario.state.pods.mark_evicting(pods(scenario, 0)[0])
        limit = limits(scenario)
        assert [limit.try_evict(record) for record in pods(scenario, 1, 2)] == [None, self.REFUSED]


class TestRates:
    RATE = EvictionRate(2, 600)
    REFUSED = "queue a allows at most 2 evictions within 10m"

    def world(self, rate: EvictionRate = RATE) -> Scenario:
        return world().queue("a", eviction_rate=rate)

    def test_account_loses_at_most_its_rate_of_pods_per_window(self) -> None:
        scenario, log = self.world(), EvictionLog()
        limit = limits(scenario, log)
        assert [limit.try_evict(record) for record in pods(scenario, 0, 1, 2)] == [None, None, self.REFUSED]
        for record in pods(scenario, 0, 1):
            log.evicted(record, scenario.now)
        scenario.now += 599
        assert limits(scenario, log).try_evict(pods(scenario, 2)[0]) == self.REFUSED
        scenario.now += 1
        assert limits(scenario, log).try_evict(pods(scenario, 2)[0]) is None

    def test_windows_of_eviction_rates_slide(self) -> None:
        scenario, log = self.world(), EvictionLog()
        log.evicted(pods(scenario, 0)[0], scenario.now)
        log.evicted(pods(scenario, 1)[0], scenario.now + 500)
        scenario.now += 600
        limit = limits(scenario, log)
        assert [limit.try_evict(record) for record in pods(scenario, 2, 3)] == [None, self.REFUSED]

    def test_unit_larger_than_the_rate_is_evicted_when_the_window_is_empty(self) -> None:
        scenario, log = self.world(), EvictionLog()
        limit = limits(scenario, log)
        assert limit.try_evict_all(pods(scenario, 0, 1, 2, 3)) is None
        assert limit.try_evict(pods(scenario, 4)[0]) == self.REFUSED
        limit = limits(scenario, log)
        assert limit.try_evict(pods(scenario, 0)[0]) is None
        assert limit.try_evict_all(pods(scenario, 1, 2, 3)) == self.REFUSED
        assert limit.try_evict(pods(scenario, 1)[0]) is None
        log.evicted(pods(scenario, 5)[0], scenario.now)
        assert limits(scenario, log).try_evict_all(pods(scenario, 1, 2, 3)) == self.REFUSED

    def test_eviction_rate_of_zero_allows_no_eviction(self) -> None:
        scenario = self.world(EvictionRate(0, 60))
        assert (
            limits(scenario).try_evict_all(pods(scenario, 0, 1)) == "queue a allows at most 0 evictions within 1m"
        )

    def test_eviction_rates_apply_to_all_accounts_on_the_path_only(self) -> None:
        scenario = world().account(AccountKey(Tree.QUEUE, "root"), label="root", eviction_rate=EvictionRate(3, 60))
        scenario.queue("a", eviction_rate=self.RATE).pods("b", 3, queue="b", node="n", cpu=1)
        limit = limits(scenario)
        assert [limit.try_evict(record) for record in pods(scenario, 0, 1)] == [None, None]
        others = [scenario.state.pods[f"b-{number}"] for number in range(2)]
        assert [limit.try_evict(record) for record in others] == [
            None,
            "root allows at most 3 evictions within 1m",
        ]
        assert limit.try_evict(pods(scenario, 2)[0]) == self.REFUSED

    @pytest.mark.parametrize(("more", "free"), [(1, 700), (2, 800), (3, 800)])
    def test_time_of_the_next_allowed_evictions_is_returned(self, more: int, free: int) -> None:
        log, key, rate = EvictionLog(), queue("a"), EvictionRate(2, 600)
        log.note(key, 100, 1)
        log.note(key, 200, 1)
        assert log.free_at(key, 300, rate, more) == free
        assert log.free_at(key, 900, rate, more) == 900

    def test_evictions_outside_of_the_window_are_forgotten(self) -> None:
        log, key = EvictionLog(), queue("a")
        assert log.count(key, 0, 10) == 0
        for moment in range(1000):
            log.note(key, moment, 1)
        assert log.count(key, 999, 10) == 10
        assert log.noted <= 11
