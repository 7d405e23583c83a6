"""The scheduling order and its sort keys: the report equals the scheduler's own order."""

from __future__ import annotations

import pytest

from phalanx.reports.turn_entries import OrderReport
from phalanx.reports.turn_order import turn_order
from phalanx.scheduling.policy.loader import load_policy
from tests.reports.test_queue_report import World

PLAIN = """
actions: "allocate"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}]}]
"""
BY_SHARE = """
actions: "allocate"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: proportion}]}]
"""


def order(world: World, policy: str = PLAIN) -> OrderReport:
    return turn_order(world.snapshot, load_policy(policy), 1e9)


def names(report: OrderReport) -> list[str]:
    return [entry.name for entry in report.entries]


def test_gangs_that_start_now_precede_waiting_ones() -> None:
    world = World(2).gang("fits", 2).pods(2, gang="fits").gang("waits", 2).pods(2, gang="waits").pods(1)
    found = order(world)
    assert names(found) == ["fits", "waits", "p005"]
    assert [entry.forecast for entry in found.entries] == ["StartsNow", "", ""]
    assert {entry.state for entry in found.entries} == {"Pending"}
    assert [entry.position for entry in found.entries] == [1, 2, 3]
    assert [entry.members for entry in found.entries] == [2, 2, 1]
    assert found.entries[1].reason == "NotEnoughResources"


def test_queue_with_the_lower_share_is_first_and_the_key_is_named() -> None:
    world = World(4).queue("rich", weight=1).queue("poor", weight=1)
    world.pods(3, "rich", running=True).pods(1, "poor", running=True)
    world.gang("a", 1, "rich").pods(1, "rich", gang="a").gang("b", 1, "poor").pods(1, "poor", gang="b")
    found = order(world, BY_SHARE)
    assert names(found) == ["b", "a"]
    assert [entry.queue_share for entry in found.entries] == [25.0, 75.0]
    assert [entry.behind for entry in found.entries] == ["", "queue:proportion"]
    assert list(found.entries[0].keys) == ["queue:proportion", "priority", "gang"]


def test_equal_gangs_are_ordered_by_age_and_name() -> None:
    world = World(1).pods(1, running=True).pods(3)
    found = order(world)
    assert names(found) == ["p002", "p003", "p004"]
    assert [entry.behind for entry in found.entries] == ["", "age", "age"]


@pytest.mark.parametrize("minimum", [1, 3])
def test_members_above_a_minimum_that_holds_are_in_no_line(minimum: int) -> None:
    world = World(1).gang("g", minimum).pods(1, gang="g", running=True).pods(1, gang="g").pods(1)
    assert names(order(world)) == (["p003"] if minimum == 1 else ["g", "p003"])


def test_order_is_empty_where_everything_runs() -> None:
    assert order(World(2).pods(2, running=True)).entries == []
