"""A start follows from the present request and priority of its unit, whatever they were before."""

from __future__ import annotations

import pytest

from phalanx.model.promise_records import encode
from phalanx.scheduling.reservations.stored import shares_of, stored

from .features import starts
from .scenario import Scenario
from .test_reserve import busy, plan_of, policy, restarted, start_of, waiting

pytestmark = pytest.mark.feature("start-reservations")


def ranks(world: Scenario) -> list[tuple[str, int]]:
    return [(reservation.name, reservation.priority) for reservation in plan_of(world).all()]


def next_process(world: Scenario) -> Scenario:
    return restarted(world, encode(*starts(world.scheduler).promised()[1:]))


@pytest.mark.parametrize("refreshes", [True, False], ids=["verdicts refreshed", "verdicts not refreshed"])
def test_unit_without_a_possible_start_gets_one_with_its_new_priority(refreshes: bool) -> None:
    world = busy(Scenario(policy(depth=0)).node("n1", cpu=4), "short", "n1", 100, cpu=4)
    world.scheduler._refresh_verdicts = refreshes
    world.pod("endless", cpu=4, priority=10).settle()
    world.gang("g", 2).pod("g-0", gang="g", cpu=2).pod("g-1", gang="g", cpu=2).settle()
    assert (start_of(world, "endless"), start_of(world, "g")) == (100, None)
    world.pod("g-2", gang="g", cpu=2, priority=100).settle()
    assert (start_of(world, "endless"), start_of(world, "g")) == (None, 100)
    assert ranks(next_process(world)) == ranks(world) == [("gang ns/g", 100)]


def test_unit_without_a_possible_start_gets_one_with_its_smaller_request() -> None:
    world = busy(Scenario(policy(depth=0)).node("n1", cpu=4), "short", "n1", 100, cpu=2)
    world.pod("endless", node="n1", cpu=2)
    world.job("g", 2, cpu=2).settle()
    assert start_of(world, "g") is None
    world.gang("g", 1).settle()
    assert start_of(world, "g") == 100


def test_rank_of_a_promise_follows_the_priority_of_its_unit() -> None:
    world = busy(Scenario(policy(depth=0)).node("n1", cpu=4), "short", "n1", 100, cpu=4)
    waiting(world, "first", 50, cpu=4).settle()
    world.gang("g", 1)
    waiting(world, "g-0", 50, gang="g", cpu=4).settle()
    assert ranks(world) == [("pod ns/first", 0), ("gang ns/g", 0)]
    waiting(world, "g-1", 50, gang="g", cpu=4, priority=10).settle()
    assert ranks(world) == [("gang ns/g", 10), ("pod ns/first", 0)]
    again = next_process(world)
    assert ranks(again) == ranks(world)
    assert [start_of(again, name) for name in ("first", "g")] == [start_of(world, name) for name in ("first", "g")]


@pytest.mark.parametrize("refreshes", [True, False], ids=["verdicts refreshed", "verdicts not refreshed"])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_units_behind_those_without_a_possible_start_get_one_as_in_the_next_process(
    depth: int, refreshes: bool
) -> None:
    world = Scenario(policy(depth=depth)).queue("q").queue("other").node("n1", cpu=4)
    world.scheduler._refresh_verdicts = refreshes
    busy(world, "short", "n1", 100, cpu=4)
    world.pod("first", cpu=4, queue="other", priority=10)
    for number in range(3):
        world.pod(f"large-{number}", cpu=8 + number, queue="q")
    world.pod("small", cpu=4, queue="q").settle()
    assert (start_of(world, "first"), start_of(world, "small")) == (100, None)
    world.gone("first").settle()
    assert start_of(world, "small") == 100
    assert start_of(restarted(world, encode([]), policy(depth=depth)), "small") == 100


def test_restart_preserves_the_start_of_a_gang_whose_equal_members_are_charged_to_different_users() -> None:
    """Its window has two shares of one class."""
    world = busy(Scenario(policy()).node("n1", cpu=3), "short", "n1", 100, cpu=3).gang("g", 3)
    for name, user in (("g-0", "ann"), ("g-1", "ben"), ("g-2", "ben")):
        waiting(world, name, 50, gang="g", cpu=1, user=user)
    world.settle()
    (promise,) = plan_of(world).all()
    (one, two), nodes = promise.parts, world.state.nodes
    assert (one.count, two.count, one.pod_class) == (1, 2, two.pod_class)
    shares = shares_of(stored(promise, nodes, {}), promise.parts, nodes)
    assert shares is not None, "without shares the window would be searched again, and could be lost"
    assert [share.counts.sum() for share in shares] == [1, 2]
    world.now += 10
    again = restarted(world, encode(*starts(world.scheduler).promised()[1:]), policy())
    (kept,) = plan_of(again).all()
    assert (kept.start, kept.made, kept.slips) == (promise.start, promise.made, ())
