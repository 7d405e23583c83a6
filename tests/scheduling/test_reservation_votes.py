"""Plugins vote on which units get a reserved start, and which can start before those."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from phalanx.plugin import Plugin, Vote, WaitingUnit
from phalanx.scheduling.framework.policy import ConfiguredPlugin
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario
from .test_reserve import busy, policy, runs_for, start_of, waiting

pytestmark = pytest.mark.feature("start-reservations")

Answer = Callable[[str], object]


def votes(point: str, *answers: Answer, **arguments: object) -> Scenario:
    """Return a world with one plugin a tier, which votes on units by their names at one point."""

    def plugin(number: int, answer: Answer) -> ConfiguredPlugin:
        def method(self: Plugin, session: object, unit: WaitingUnit) -> Any:
            return answer(unit.name)

        name = f"votes-{number}"
        kind = type("Votes", (Plugin,), {"name": name, "__init__": lambda self: None, point: method})
        return ConfiguredPlugin(kind(), number)

    text = policy(**arguments)
    world = Scenario(text)
    own = [plugin(number, answer) for number, answer in enumerate(answers)]
    world.policy = msgspec.structs.replace(load_policy(text), plugins=(*own, *world.policy.plugins))
    world.scheduler.use(world.policy)
    return world


def vote_on(units: dict[str, Vote]) -> Answer:
    return lambda name: units.get(name.rpartition("/")[2], Vote.ABSTAIN)


def full(world: Scenario) -> Scenario:
    """Return the world with two nodes, of which one is in use for 100 s, and gang "large", which needs both."""
    busy(world.nodes(2, cpu=4), "runs", "n1", 100, cpu=4)
    return world.job("large", 2, cpu=4)


@pytest.mark.parametrize("vote", Vote)
def test_start_is_reserved_unless_a_plugin_rejects_it(vote: Vote) -> None:
    world = full(votes("reserve_start", vote_on({"large": vote})))
    world.run()
    assert start_of(world, "large") == (None if vote is Vote.REJECT else 100)


def test_unit_whose_start_is_rejected_waits_as_without_reservations() -> None:
    world = full(votes("reserve_start", vote_on({"large": Vote.REJECT})))
    world.pod("endless", cpu=4).run()
    assert world.where("endless") == "n2"
    assert world.why("large").code == "NotEnoughResources"


@pytest.mark.parametrize("arguments", [{"minPriority": 5}, {"minAgeSeconds": 50}])
def test_permission_overrides_the_thresholds_of_the_policy(arguments: dict[str, object]) -> None:
    assert start_of(full(votes("reserve_start", vote_on({}), **arguments)).run(), "large") is None
    world = full(votes("reserve_start", vote_on({"large": Vote.PERMIT}), **arguments))
    assert start_of(world.run(), "large") == 100


def test_vote_of_the_first_tier_that_has_one_decides() -> None:
    reject, permit = vote_on({"large": Vote.REJECT}), vote_on({"large": Vote.PERMIT})
    assert start_of(full(votes("reserve_start", permit, reject)).run(), "large") == 100
    assert start_of(full(votes("reserve_start", reject, permit)).run(), "large") is None


def test_second_unit_gets_the_start_where_the_first_is_rejected() -> None:
    world = full(votes("reserve_start", vote_on({"large": Vote.REJECT})))
    world.now += 1
    world.job("next", 2, cpu=4).run()
    assert (start_of(world, "large"), start_of(world, "next")) == (None, 100)


@pytest.mark.parametrize("vote", Vote)
def test_short_pod_starts_before_the_reserved_start_unless_a_plugin_rejects_it(vote: Vote) -> None:
    world = full(votes("backfill", vote_on({"short": vote})))
    waiting(world, "short", 50, cpu=4).run()
    assert start_of(world, "large") == 100
    assert world.where("short") == ("" if vote is Vote.REJECT else "n2")


@pytest.mark.parametrize("order", ["queue", "shortest"])
def test_verdict_names_the_plugin_and_the_reserved_unit(order: str) -> None:
    world = full(votes("backfill", vote_on({"short": Vote.REJECT, "train": Vote.REJECT}), backfillOrder=order))
    waiting(world, "short", 50, cpu=4).job("train", 2, cpu=1, pod_class=runs_for(50)).run()
    assert world.why_pod("short").code == world.why("train").code == "BackfillRejected"
    expected = "cannot start: plugin votes-0 rejects its start before gang ns/large, whose start is reserved"
    assert world.why_pod("short").message == f"pod ns/short {expected}"
    assert world.why("train").message.startswith(f"gang ns/train {expected}")


def test_rejected_unit_starts_after_the_reserved_one() -> None:
    world = full(votes("backfill", vote_on({"short": Vote.REJECT})))
    waiting(world, "short", 50, cpu=1).node("n3", cpu=1).run()
    assert world.waiting() == ["large-0", "large-1", "short"]
    world.finishes("runs").settle()
    assert world.placed() == ["large-0", "large-1", "runs", "short"]


def test_rejected_unit_starts_when_no_start_is_reserved_any_longer() -> None:
    world = full(votes("backfill", vote_on({"short": Vote.REJECT})))
    waiting(world, "short", 50, cpu=1).run()
    assert world.where("short") == ""
    world.gone("large-0", "large-1").settle()
    assert world.where("short") == "n2"


def test_plugin_votes_on_a_rejected_unit_in_each_cycle() -> None:
    units = {"short": Vote.REJECT}
    world = full(votes("backfill", vote_on(units)))
    waiting(world, "short", 50, cpu=1).run()
    units.clear()
    world.pod("other", cpu=9).settle()
    assert world.where("short") == "n2"


def test_plugin_does_not_vote_on_a_unit_of_higher_priority_than_the_reserved_one() -> None:
    asked: list[str] = []

    def answer(name: str) -> Vote:
        asked.append(name)
        return Vote.REJECT

    world = full(votes("backfill", answer))
    world.run()
    assert asked == []
    waiting(world, "urgent", 50, cpu=1, priority=9).run()
    assert (world.where("urgent"), asked) == ("n2", [])
    waiting(world, "equal", 50, cpu=1).cycle()
    assert (world.where("equal"), asked) == ("", ["pod ns/equal"])


def test_gang_that_runs_grows_beside_a_reserved_start() -> None:
    world = votes("backfill", lambda name: Vote.REJECT)
    world.node("n3", cpu=2).job("grows", 2, minimum=1, cpu=1).settle()
    waiting(full(world), "grows-2", 50, gang="grows", cpu=1).settle()
    assert start_of(world, "large") == 100
    assert world.where("grows-2")


@pytest.mark.parametrize("point", ["reserve_start", "backfill"])
@pytest.mark.parametrize("answer", [None, True, -1, "no", LookupError])
def test_unit_is_set_aside_where_the_plugin_fails(point: str, answer: object) -> None:
    def fails(name: str) -> object:
        if answer is LookupError:
            raise LookupError("a bug of a plugin")
        return answer if name.endswith(("short", "large")) else Vote.ABSTAIN

    world = full(votes(point, fails))
    waiting(world, "short", 50, cpu=1).settle()
    assert {failure.plugin for failure in world.failures} == {"votes-0"}
    verdict = world.why("large") if point == "reserve_start" else world.why_pod("short")
    assert verdict.code == "PlanningFailed"
    assert "plugin votes-0" in verdict.message
