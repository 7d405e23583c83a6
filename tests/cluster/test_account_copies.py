"""Copies of accounts: equal to the ledger at their last update, without needless copying."""

from __future__ import annotations

import random

import pytest

from phalanx.cluster.account_copies import AccountCopies
from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey, Tree
from tests.extent import examples
from tests.scheduling.scenario import Scenario

TREES = (Tree.QUEUE, Tree.ELASTIC_QUOTA)


def told(record: AccountRecord) -> tuple[object, ...]:
    """Return all fields of an account."""
    above = record.parent.key if record.parent is not None else None
    sums = tuple(map(dict, record.as_tuple()))
    kept = dict(record.guarantee), dict(record.reserved_for_children), set(record.guaranteed_resources)
    said = record.spec, record.weight, dict(record.capability), record.fault
    return record.key, above, list(record.children), sums, kept, said


def ledger_told(world: Scenario) -> dict[AccountKey, tuple[object, ...]]:
    world.state.ledger.refresh_sums()
    accounts = world.state.ledger.accounts
    return {key: told(record) for key, record in accounts.items() if key.tree in TREES}


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(10)))
def test_account_copies_equal_the_ledger_at_their_last_update(seed: int) -> None:
    choice = random.Random(seed)
    world = Scenario().node("n", cpu=64)
    copies = AccountCopies(world.state.ledger, TREES)
    queues = ["default"]
    for step in range(30):
        match choice.randrange(5):
            case 0:
                parent = choice.choice(["", *queues[1:]])
                least = {"cpu": choice.randint(0, 3)}
                world.queue(f"q{step}", parent=parent, guarantee=least, weight=choice.randint(1, 9))
                queues.append(f"q{step}")
            case 1 if len(queues) > 1:
                world.no_account(AccountKey(Tree.QUEUE, queues.pop()))
            case 2:
                world.elastic_quota("ns", min={"cpu": 1}, max={"cpu": choice.randint(2, 50)})
            case 3:
                world.pod(f"p{step}", queue=choice.choice(queues), cpu=1, user=choice.choice(["", "ann"]))
            case _:
                world.settle()
        copies.refresh()
        before = ledger_told(world)
        world.pod(f"later{step}", queue=choice.choice(queues), cpu=1).work()
        assert {key: told(record) for key, record in copies.accounts.items()} == before
        live = set(map(id, world.state.ledger.accounts.values()))
        for record in copies.accounts.values():
            assert not {id(record), *map(id, record.lineage()), *map(id, record.children.values())} & live


def test_unchanged_accounts_are_not_copied_again() -> None:
    world = Scenario().node("n", cpu=64)
    for name in ("still", "busy"):
        world.queue(name).pod(name, queue=name, cpu=1)
    copies = AccountCopies(world.state.ledger, TREES)
    copies.refresh()
    still, busy = (copies.accounts[AccountKey(Tree.QUEUE, name)] for name in ("still", "busy"))
    before = still.pending, busy.pending
    world.pod("more", queue="busy", cpu=1)
    copies.refresh()
    assert copies.accounts[still.key] is still
    assert still.pending is before[0]
    assert busy.pending is not before[1]
    assert busy.pending["cpu"] == 2000
