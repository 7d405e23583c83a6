"""Usage tracking of accounts, where a policy or a budget needs it."""

from __future__ import annotations

import pytest

from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.policy.loader import load_policy

from .tenancy import HOUR, Tenancy, policy


class TestFollowing:
    """The scheduler adds up the usage of accounts only where it is needed."""

    def test_no_account_is_tracked_without_a_half_life_or_a_budget(self) -> None:
        world = Tenancy(10, policy()).submit("a", 5).work().wait(1)
        assert world.scheduler.history.export(world.now) == []

    @pytest.mark.feature("past-use")
    def test_budget_added_later_counts_from_then_on(self) -> None:
        world = Tenancy(10, policy()).queue("team").submit("a", 5, queue="team").work().wait(3)
        world.budget("team", cpu_hours=100).work().wait(2)
        (usage,) = world.scheduler.history.export(world.now)
        assert usage.spent == {}
        record = world.state.ledger.accounts[usage.key]
        assert world.scheduler.history.spent(record, world.now) == {"cpu": 5000 * 2 * HOUR * 1000}

    @pytest.mark.feature("past-use")
    def test_half_life_added_later_finds_the_present_usage(self) -> None:
        world = Tenancy(10, policy()).submit("a", 5).work().wait(3)
        world.scheduler.use(load_policy(policy(half_life="1h")))
        world.work().wait(1)
        (usage,) = (each for each in world.scheduler.history.export(world.now) if each.key.tree is Tree.NAMESPACE)
        record = world.state.ledger.accounts[usage.key]
        assert world.scheduler.history.decayed(record, world.now)["cpu"] == pytest.approx(2500)

    @pytest.mark.feature("past-use")
    def test_deleted_accounts_hold_nothing(self) -> None:
        world = Tenancy(10, policy(half_life="1h")).submit("a", 5).work().wait(1).finish("a", 5).work()
        key = AccountKey(Tree.NAMESPACE, "a", "default")
        assert key not in world.state.ledger.accounts
        found = {usage.key: usage for usage in world.scheduler.history.export(world.now)}
        assert found[key].held == {}
        assert found[key].decayed["cpu"] == pytest.approx(2500)

    @pytest.mark.feature("past-use")
    def test_account_declared_again_continues_its_history(self) -> None:
        world = Tenancy(10, policy(half_life="1h")).queue("team").submit("a", 5, queue="team").work().wait(1)
        world.queue("team", weight=3).work().wait(1)
        record = world.state.ledger.accounts[AccountKey(Tree.QUEUE, "team")]
        assert world.scheduler.history.decayed(record, world.now)["cpu"] == pytest.approx(3750)
