"""Budgets: an account that has spent its budget starts no pod before the next window, whatever the policy."""

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
    """Return the verdict without its subject."""
    return verdict(world, name).message.partition(": ")[2]


class TestSpending:
    def test_account_with_a_spent_budget_starts_no_pod(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        assert world.submit("a", 1, queue="team").work().held() == {"a": 10}
        found = verdict(world, "a-00011")
        assert (found.code, found.unschedulable) == ("BudgetSpent", False)
        assert (
            "queue team has used 40 of 40 cpu hours of its budget for 24h; the next window starts at"
            in found.message
        )

    def test_account_within_its_budget_starts_pods(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(3.99)
        assert world.submit("a", 1, queue="team").work().held() == {"a": 11}

    def test_pods_start_in_the_next_window_without_another_event(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 1, queue="team").work()
        assert world.scheduler.next_recheck == world.start + 24 * HOUR
        assert world.wait(19.9).held() == {"a": 10}
        assert world.wait(0.1).held() == {"a": 11}

    def test_running_pods_continue_and_are_charged(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(8)
        world.submit("a", 1, queue="team").work()
        assert world.held() == {"a": 10}
        assert "80 of 40 cpu hours" in verdict(world, "a-00011").message

    def test_spent_budget_does_not_block_other_accounts(self) -> None:
        world = cluster().budget("team", cpu_hours=40).queue("rich").submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 2, queue="rich").submit("a", 2, queue="team").work()
        assert world.held() == {"a": 12}

    def test_spent_budget_of_a_parent_blocks_its_children(self) -> None:
        world = cluster().budget("division", cpu_hours=40)
        parent = AccountKey(Tree.QUEUE, "division")
        world.queue("one", parent=parent).queue("two", parent=parent)
        world.submit("a", 10, queue="one").work().wait(4)
        assert world.submit("b", 1, queue="two").work().held() == {"a": 10}
        assert "queue division has used 40 of 40 cpu hours of its budget" in verdict(world, "b-00001").message

    def test_with_several_spent_budgets_the_latest_window_end_counts(self) -> None:
        world = cluster().budget("division", cpu_hours=1, window=7 * 24 * HOUR)
        world.queue("one", parent=AccountKey(Tree.QUEUE, "division"), budget=Budget((("cpu", 1000),), 24 * HOUR))
        world.submit("a", 10, queue="one").work().wait(1).submit("a", 1, queue="one").work()
        week = 7 * 24 * HOUR
        assert world.scheduler.next_recheck == (world.start // week + 1) * week

    def test_raised_budget_lets_pods_start_at_once(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 1, queue="team").work()
        assert world.budget("team", cpu_hours=41).work().held() == {"a": 11}

    def test_budget_of_zero_allows_no_pod(self) -> None:
        world = cluster().budget("team", cpu_hours=0).submit("a", 1, queue="team").work()
        assert world.held() == {}
        assert "0 of 0 cpu hours" in verdict(world, "a-00001").message

    def test_spent_budget_blocks_a_gang_as_a_whole(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.state.apply(GangUpdated(Gang(GangKey("a", "job"), min_member=2, queue="team", created=1)))
        world.submit("a", 2, gang="job", queue="team")
        plan = world.step()
        assert plan.binds == []
        (told,) = plan.gangs
        assert told.verdict is not None
        assert told.verdict.code == "BudgetSpent"


class TestSentence:
    def test_verdict_names_the_budget_the_next_window_and_the_fix(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        found = verdict(world.submit("a", 1, queue="team").work(), "a-00011")
        assert found.message.endswith("of its budget for 24h; the next window starts at 2024-10-05T00:00:00Z")
        assert found.change == "wait until 2024-10-05T00:00:00Z, or raise the budget of queue team"

    def test_verdict_changes_only_with_each_tenth_of_the_budget(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        first = said(world.submit("a", 1, queue="team").work(), "a-00011")
        assert said(world.wait(0.3).submit("b", 1, queue="team").work(), "b-00001") == first
        assert said(world.wait(0.1).submit("c", 1, queue="team").work(), "c-00001") != first

    def test_verdict_is_not_repeated_while_a_pod_waits(self) -> None:
        world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
        world.submit("a", 1, queue="team").work()
        for _ in range(5):
            plan = world.step()
            assert (plan.binds, plan.pods, plan.gangs) == ([], [], [])


@pytest.mark.parametrize("text", [POLICY, ""])
def test_budgets_hold_under_every_policy(text: str) -> None:
    policy = load_policy(text) if text else load_policy()
    assert "budgets" in {entry.plugin.name for entry in policy.standing_plugins}


def test_window_of_an_account_that_is_declared_again_is_preserved() -> None:
    world = cluster().budget("team", cpu_hours=40).submit("a", 10, queue="team").work().wait(4)
    key = AccountKey(Tree.QUEUE, "team")
    spec = world.state.ledger.accounts[key].spec
    assert isinstance(spec, Account)
    world.state.apply(AccountUpdated(msgspec.structs.replace(spec, weight=7)))
    assert world.submit("a", 1, queue="team").work().held() == {"a": 10}
