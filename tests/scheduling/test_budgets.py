"""Budgets: who has used up what it may in a window takes nothing new before the next, whatever the policy."""

from __future__ import annotations

import msgspec
import pytest

from phalanx.model.account import Account, AccountKey, Budget, Tree
from phalanx.model.events import AccountUpdated, GangUpdated
from phalanx.model.gang import Gang, GangKey
from phalanx.model.verdict import Verdict
from phalanx.scheduling.policy.loader import load_policy

from .tenancy import HOUR, Tenancy

pytestmark = pytest.mark.feature("past-use")

POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: predicates}, {name: nodeorder}]}]
"""


def cluster(cpus: int = 100) -> Tenancy:
    return Tenancy(cpus, POLICY)


def verdict(world: Tenancy, name: str) -> Verdict:
    found = world.verdicts[name]
    assert found is not None, f"{name} does not wait"
    return found


def said(world: Tenancy, name: str) -> str:
    """The sentence without whom it is about."""
    return verdict(world, name).message.partition(": ")[2]


class TestSpending:
    def test_nothing_new_starts_once_the_budget_is_spent(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        assert world.submit("a", 1, queue="team").work().held() == {"a": 10}
        found = verdict(world, "a-00011")
        assert (found.code, found.unschedulable) == ("BudgetSpent", False)
        assert (
            "queue team has used 40 of 40 cpu hours of its budget for 24h; the next window starts at"
            in found.message
        )

    def test_until_then_it_does(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(3.99)
        assert world.submit("a", 1, queue="team").work().held() == {"a": 11}

    def test_with_the_next_window_it_starts_without_anything_happening(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 1, queue="team").work()
        assert world.scheduler.next_recheck == world.start + 24 * HOUR
        assert world.wait(19.9).held() == {"a": 10}
        assert world.wait(0.1).held() == {"a": 11}

    def test_what_runs_goes_on_and_is_charged(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(8)
        world.submit("a", 1, queue="team").work()
        assert world.held() == {"a": 10}
        assert "80 of 40 cpu hours" in verdict(world, "a-00011").message

    def test_others_are_not_held(self) -> None:
        world = cluster().budget("team", cpu_hours=40).queue("rich").submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 2, queue="rich").submit("a", 2, queue="team").work()
        assert world.held() == {"a": 12}

    def test_a_budget_above_holds_those_below(self) -> None:
        world = cluster().budget("division", cpu_hours=40)
        parent = AccountKey(Tree.QUEUE, "division")
        world.queue("one", parent=parent).queue("two", parent=parent)
        world.submit("a", 10, queue="one").work().wait(4)
        assert world.submit("b", 1, queue="two").work().held() == {"a": 10}
        assert "queue division has used 40 of 40 cpu hours of its budget" in verdict(world, "b-00001").message

    def test_of_several_spent_budgets_the_last_window_counts(self) -> None:
        world = cluster().budget("division", cpu_hours=1, window=7 * 24 * HOUR)
        world.queue("one", parent=AccountKey(Tree.QUEUE, "division"), budget=Budget((("cpu", 1000),), 24 * HOUR))
        world.submit("a", 10, queue="one").work().wait(1).submit("a", 1, queue="one").work()
        week = 7 * 24 * HOUR
        assert world.scheduler.next_recheck == (world.start // week + 1) * week

    def test_a_higher_budget_lets_start_at_once(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 1, queue="team").work()
        assert world.budget("team", cpu_hours=41).work().held() == {"a": 11}

    def test_a_budget_of_nothing_allows_nothing(self) -> None:
        world = cluster().budget("team", cpu_hours=0).submit("a", 1, queue="team").work()
        assert world.held() == {}
        assert "0 of 0 cpu hours" in verdict(world, "a-00001").message

    def test_gangs_are_held_as_one(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.state.apply(GangUpdated(Gang(GangKey("a", "job"), min_member=2, queue="team", created=1)))
        world.submit("a", 2, gang="job", queue="team")
        plan = world.step()
        assert plan.binds == []
        (told,) = plan.gangs
        assert told.verdict is not None
        assert told.verdict.code == "BudgetSpent"


class TestSentence:
    def test_it_says_what_when_and_what_would_help(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        found = verdict(world.submit("a", 1, queue="team").work(), "a-00011")
        assert found.message.endswith("of its budget for 24h; the next window starts at 2024-10-05T00:00:00Z")
        assert found.change == "wait until 2024-10-05T00:00:00Z, or raise the budget of queue team"

    def test_it_changes_with_every_tenth_of_the_budget_only(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        first = said(world.submit("a", 1, queue="team").work(), "a-00011")
        assert said(world.wait(0.3).submit("b", 1, queue="team").work(), "b-00001") == first
        assert said(world.wait(0.1).submit("c", 1, queue="team").work(), "c-00001") != first

    def test_nothing_is_said_twice_while_it_waits(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 1, queue="team").work()
        for _ in range(5):
            plan = world.step()
            assert (plan.binds, plan.pods, plan.gangs) == ([], [], [])


@pytest.mark.parametrize("text", [POLICY, ""])
def test_budgets_hold_under_every_policy(text: str) -> None:
    policy = load_policy(text) if text else load_policy()
    assert "budgets" in {entry.plugin.name for entry in policy.standing_plugins}


def test_the_window_of_an_account_that_is_declared_anew_stays() -> None:
    world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
    key = AccountKey(Tree.QUEUE, "team")
    spec = world.state.ledger.accounts[key].spec
    assert isinstance(spec, Account)
    world.state.apply(AccountUpdated(msgspec.structs.replace(spec, weight=7)))
    assert world.submit("a", 1, queue="team").work().held() == {"a": 10}
