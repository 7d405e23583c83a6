"""`tdm`: nodes that are lent for a part of the day, and the eviction of their users."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.model.account import AccountKey, EvictionRate, Tree
from phalanx.model.decisions import EvictionReason
from phalanx.model.disruption import DisruptionBudget, Portion
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.model.pod import PodClass
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario

MIDNIGHT = 20_000 * 24 * 3600
REVOCABLE = PodClass(revocable=True)
POLICY = """
actions: "enqueue, allocate, backfill, shuffle"
tiers:
- plugins: [{{name: gang}}, {{name: conformance}}, {{name: pdb}}]
- plugins:
  - {{name: tdm, arguments: {{tdm.revocable-zone.night: "22:00-06:00"{more}}}}}
  - {{name: predicates}}
  - {{name: nodeorder}}
"""


def world(more: str = "", clock: str = "23:00") -> Scenario:
    """A node that is lent by night, and no other."""
    scenario = Scenario(POLICY.format(more=more))
    scenario.now = MIDNIGHT
    return at(scenario, clock).node("lent", labels={"volcano.sh/revocable-zone": "night"})


def at(scenario: Scenario, clock: str) -> Scenario:
    """Return the next time at which the clock shows this."""
    hours, minutes = map(int, clock.split(":"))
    ahead = (hours * 3600 + minutes * 60 - scenario.now) % (24 * 3600)
    return later(scenario, ahead)


def later(scenario: Scenario, seconds: int) -> Scenario:
    """Advance the time without another event."""
    scenario.now += seconds
    scenario.scheduler.activate_due(scenario.now)
    return scenario.settle()


class TestWhileTheWindowIsOpen:
    def test_only_revocable_pods_can_use_the_node(self) -> None:
        scenario = world().pod("plain", cpu=1).pod("unwilling", cpu=1, pod_class=PodClass(revocable=False))
        scenario.pod("willing", cpu=1, pod_class=REVOCABLE).run()
        assert scenario.placed() == ["willing"]
        assert "for preemptable pods only" in scenario.why_pod("plain").message

    def test_revocable_pods_prefer_the_lent_node(self) -> None:
        scenario = world().nodes(3).pods("batch", 4, cpu=1, pod_class=REVOCABLE).pods("plain", 2, cpu=1).run()
        assert scenario.spread("batch") == {"lent": 4}
        assert "lent" not in scenario.spread("plain")

    def test_no_pod_is_evicted_while_the_window_is_open(self) -> None:
        scenario = world().pod("batch", cpu=1, pod_class=REVOCABLE).run()
        assert at(scenario, "05:59").evicted == []


class TestWhileItIsClosed:
    def test_no_pod_can_use_the_node_outside_of_its_window(self) -> None:
        scenario = world(clock="12:00").pod("willing", cpu=1, pod_class=REVOCABLE).run()
        assert scenario.waiting() == ["willing"]
        assert "closed now" in scenario.why_pod("willing").message

    def test_waiting_pods_are_retried_when_the_window_opens(self) -> None:
        scenario = world(clock="12:00").pod("willing", cpu=1, pod_class=REVOCABLE).run()
        assert scenario.scheduler.next_recheck == MIDNIGHT + 22 * 3600
        assert at(scenario, "21:59").waiting() == ["willing"]
        assert at(scenario, "22:00").placed() == ["willing"]

    def test_zone_without_an_argument_is_never_open_and_loses_no_pod(self) -> None:
        scenario = world().node("odd", labels={"volcano.sh/revocable-zone": "weekend"}).no_node("lent")
        scenario.pod("waits", cpu=1, pod_class=REVOCABLE).pod("runs", node="odd", cpu=1, pod_class=REVOCABLE).run()
        assert scenario.waiting() == ["waits"]
        assert at(scenario, "12:00").evicted == []


class TestWhenItCloses:
    def test_single_pods_are_evicted_at_once(self) -> None:
        scenario = world().pods("batch", 3, cpu=1, pod_class=REVOCABLE).run()
        assert scenario.scheduler.next_recheck == MIDNIGHT + 30 * 3600
        at(scenario, "06:00")
        assert scenario.evicted == ["batch-0", "batch-1", "batch-2"]
        eviction = next(eviction for plan in scenario.plans for eviction in plan.evictions)
        assert eviction.reason is EvictionReason.REVOKED
        assert eviction.message == "node lent was lent until 06:00 UTC"

    def test_gang_loses_one_member_a_period(self) -> None:
        scenario = world().job("elastic", 4, minimum=1, cpu=1, pod_class=REVOCABLE).run()
        assert len(at(scenario, "06:00").evicted) == 1
        assert len(later(scenario, 59).evicted) == 1
        assert len(later(scenario, 1).evicted) == 2
        assert len(later(scenario, 60).evicted) == 3

    def test_eviction_period_can_be_set(self) -> None:
        scenario = world(", tdm.evict.period: 10m").job("elastic", 4, minimum=1, cpu=1, pod_class=REVOCABLE).run()
        assert len(at(scenario, "06:00").evicted) == 1
        assert len(later(scenario, 599).evicted) == 1
        assert len(later(scenario, 1).evicted) == 2

    def test_member_of_the_lowest_priority_is_evicted_first(self) -> None:
        scenario = world().gang("elastic", 1)
        for name, priority in (("a", 5), ("b", 1), ("c", 3)):
            scenario.pod(name, gang="elastic", priority=priority, cpu=1, pod_class=REVOCABLE)
        assert at(scenario.run(), "06:00").evicted == ["b"]

    def test_gang_without_surplus_is_evicted_as_a_whole(self) -> None:
        scenario = world().nodes(2, cpu=1).job("rigid", 4, cpu=1, pod_class=REVOCABLE).run()
        scenario.no_node("n1").no_node("n2")
        assert sorted(at(scenario, "06:00").evicted) == ["rigid-0", "rigid-1", "rigid-2", "rigid-3"]

    def test_members_on_other_nodes_are_evicted_with_their_gang(self) -> None:
        scenario = world().node("own", cpu=2).job("rigid", 4, cpu=1, pod_class=REVOCABLE)
        scenario.node("lent", labels={"volcano.sh/revocable-zone": "night"}, cpu=2).run()
        assert scenario.spread() == {"lent": 2, "own": 2}
        assert len(at(scenario, "06:00").evicted) == 4

    def test_surplus_of_a_gang_is_evicted_first(self) -> None:
        scenario = world().job("gang", 3, minimum=2, cpu=1, pod_class=REVOCABLE).run()
        assert len(at(scenario, "06:00").evicted) == 1
        assert len(later(scenario, 60).evicted) == 3

    @pytest.mark.parametrize(
        ("budget", "gone"),
        [
            ({"max_unavailable": Portion(2)}, 2),
            ({"max_unavailable": Portion(50, percent=True)}, 3),
            ({"min_available": Portion(4)}, 2),
            ({"max_unavailable": Portion(0)}, 0),
        ],
    )
    def test_gang_with_a_budget_is_evicted_as_far_as_the_budget_allows(
        self, budget: dict[str, object], gone: int
    ) -> None:
        scenario = world().job("gang", 6, minimum=1, cpu=1, pod_class=REVOCABLE).gang("gang", 1, **budget).run()
        scenario.recreates = True
        assert len(at(scenario, "06:00").evicted) == gone
        assert len(later(scenario, 60).evicted) == gone, "those who left run nowhere yet"

    def test_eviction_continues_when_evicted_members_run_elsewhere(self) -> None:
        scenario = world().job("gang", 6, minimum=1, cpu=1, pod_class=REVOCABLE)
        scenario.gang("gang", 1, max_unavailable=Portion(2)).run()
        scenario.recreates = True
        scenario.node("own")
        for minutes in range(3):
            assert len((later(scenario, 60) if minutes else at(scenario, "06:00")).evicted) == 2 * (minutes + 1)
        assert scenario.spread() == {"own": 6}

    def test_budget_can_forbid_the_eviction_of_a_whole_gang(self) -> None:
        scenario = world().job("rigid", 4, cpu=1, pod_class=REVOCABLE)
        scenario.gang("rigid", 4, max_unavailable=Portion(1)).run()
        assert at(scenario, "06:00").evicted == []

    def test_pods_that_are_not_revocable_are_not_evicted(self) -> None:
        scenario = world().pod("guest", node="lent", cpu=1).run()
        assert at(scenario, "06:00").evicted == []

    def test_vetoes_protect_revocable_pods(self) -> None:
        scenario = world().pod("critical", cpu=1, pod_class=REVOCABLE, more={"critical": True})
        scenario.pod("kept", cpu=1, pod_class=REVOCABLE, more={"preemptable": False}).run()
        assert at(scenario, "06:00").evicted == []

    def test_no_disruption_budget_is_broken_by_tdm(self) -> None:
        scenario = world().pods("web", 3, cpu=1, pod_class=REVOCABLE, more={"budgets": ("web",)}).run()
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "web", allowed=1)))
        assert at(scenario, "06:00").evicted == ["web-0"]

    def test_disruption_budgets_are_hard_for_tdm_even_where_preemption_can_break_them(self) -> None:
        scenario = Scenario(POLICY.format(more="").replace(", {name: pdb}", ""))
        scenario.now = MIDNIGHT + 23 * 3600
        scenario.node("lent", labels={"volcano.sh/revocable-zone": "night"})
        scenario.pods("web", 3, cpu=1, pod_class=REVOCABLE, more={"budgets": ("web",)}).run()
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "web", allowed=2)))
        assert at(scenario, "06:00").evicted == ["web-0", "web-1"]

    def test_account_loses_at_most_its_eviction_rate(self) -> None:
        scenario = world().account(AccountKey(Tree.QUEUE, "default"), eviction_rate=EvictionRate(2, 3600))
        scenario.pods("batch", 5, cpu=1, pod_class=REVOCABLE).run()
        assert len(at(scenario, "06:00").evicted) == 2
        assert len(later(scenario, 60).evicted) == 2
        assert len(later(scenario, 3600).evicted) == 4


class TestOrder:
    def test_pods_that_cannot_use_lent_nodes_are_first(self) -> None:
        scenario = world().node("own", cpu=1).no_node("lent")
        scenario.job("early", 1, cpu=1, pod_class=REVOCABLE).gang("early", 1, revocable=True, created=1)
        scenario.job("late", 1, cpu=1).run()
        assert scenario.placed() == ["late-0"]


class TestArguments:
    def test_clock_of_another_time_zone_applies(self) -> None:
        scenario = world(', tdm.utc-offset: "+08:00"', clock="15:00").pod("willing", cpu=1, pod_class=REVOCABLE)
        assert scenario.run().placed() == ["willing"]
        assert at(scenario, "22:00").evicted == ["willing"]

    def test_without_a_time_zone_a_report_names_the_assumed_clock(self) -> None:
        reports = load_policy(POLICY.format(more="")).inactive
        assert [text for text in reports if text.startswith("plugin tdm: windows are read as UTC")]
        assert not load_policy(POLICY.format(more=', tdm.utc-offset: "+00:00"')).inactive

    @pytest.mark.parametrize(
        ("more", "complaint"),
        [
            (
                ", tdm.revocable-zone.day: 8-18",
                "tdm.revocable-zone.day: '8-18' is not a window such as 22:00-06:00",
            ),
            (", tdm.evict.period: soon", "tdm.evict.period: 'soon' is not a duration"),
            (", tdm.utc-offset: CET", "tdm.utc-offset: 'CET' is not an offset such as +08:00"),
        ],
    )
    def test_unreadable_tdm_arguments_are_named(self, more: str, complaint: str) -> None:
        with pytest.raises(PolicyError) as error:
            load_policy(POLICY.format(more=more))
        assert complaint in str(error.value)

    def test_equal_tdm_histories_give_equal_plans(self) -> None:
        def plans() -> list[bytes]:
            scenario = world().nodes(2, cpu=2).job("gang", 5, minimum=2, cpu=1, pod_class=REVOCABLE).run()
            scenario.recreates = True
            later(at(scenario, "06:00"), 60)
            return [msgspec.json.encode(plan) for plan in scenario.plans]

        assert plans() == plans()
