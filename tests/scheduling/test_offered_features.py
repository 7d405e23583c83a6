"""Features of the cycle from other packages: what they raise is reported, and affects nothing else."""

from __future__ import annotations

import cProfile
import pstats
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from phalanx.model.decisions import EvictionReason
from phalanx.model.gang import Problem
from phalanx.plugin import Allocation, CyclePlugin, GangRecord, PolicyError, QueuedUnit, Session, Turn
from phalanx.scheduling.policy import registry
from phalanx.scheduling.session.cycle_plugin import CYCLE_POINTS
from phalanx.scheduling.session.offered_feature import REST, OfferedFeature

from ..soak.cluster import POLICIES
from ..soak.life import live, relive
from .scenario import Scenario, amounts

POLICY = """
actions: "enqueue, allocate, preempt, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: binpack}]}]
"""
POINTS = tuple(point for point in CYCLE_POINTS if point != "reserved_room")
Method = Callable[..., Any]


def offer(monkeypatch: pytest.MonkeyPatch, *kinds: object) -> None:
    """Let an installed package offer features of the cycle."""
    found = [(f"entry point {number}", kind) for number, kind in enumerate(kinds)]
    monkeypatch.setattr(
        registry, "_offered", lambda group: found if group == registry.CYCLE_ENTRY_POINT_GROUP else []
    )


def feature(point: str, method: Method, name: str = "faulty") -> type[CyclePlugin]:
    return type("Feature", (CyclePlugin,), {"name": name, point: method})


def fails(*asked: object) -> Any:
    raise RuntimeError("the feature is broken")


def play() -> Scenario:
    """Return a world in which every point is called: placement, refusal, preemption, retry of waiting units."""
    world = Scenario(POLICY).node("a", cpu=4).pod("runs", node="a", cpu=1, priority=20)
    world.job("train", 2, cpu=1).pod("large", cpu=8).settle()
    world.pod("urgent", cpu=2, priority=10).settle()
    world.now += 1
    world.node("b", cpu=1).pod("small", cpu=1).settle()
    assert world.scheduler.next_recheck is None or world.scheduler.next_recheck > world.now
    world.cycle()
    return world


def decisions(world: Scenario) -> list[object]:
    return [(plan.binds, plan.evictions, plan.nominations, plan.gangs, plan.pods) for plan in world.plans]


@pytest.mark.parametrize("point", POINTS)
def test_feature_that_raises_is_reported_once_and_changes_no_decision(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = play()
    offer(monkeypatch, feature(point, fails))
    world = play()
    (failure,) = world.failures
    assert (failure.what, failure.plugin) == (f"feature faulty at {point}", "faulty")
    assert failure.why == "RuntimeError: the feature is broken"
    assert "in fails" in failure.trace
    assert decisions(world) == decisions(undisturbed)


@pytest.mark.parametrize("point", POINTS)
def test_feature_that_raised_is_called_again_after_a_minute(point: str, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, feature(point, fails))
    world = play()
    # (A feature in back-off is due at the end of the back-off.)
    ends = world.scheduler.next_recheck
    assert ends is not None
    assert world.now < ends <= world.now + REST
    world.now = int(ends) - 1
    world.gone("small").pod("again", cpu=1).job("next", 2, cpu=9).pod("urgent too", cpu=2, priority=15).settle()
    assert len(world.failures) == 1
    world.now = int(ends)
    world.scheduler.activate_due(world.now)
    assert not world.scheduler.idle
    world.gone("again").pod("once more", cpu=1).job("last", 2, cpu=9).pod("urgent as well", cpu=2, priority=16)
    world.settle().node("c", cpu=1).settle()
    world.scheduler.activate_due(world.now)
    world.cycle()
    assert len(world.failures) == 2


@pytest.mark.parametrize(
    ("point", "answer", "why"),
    [
        ("outdated", "yes", "expected True or False, got str 'yes'"),
        ("next_due", "noon", "expected seconds since the epoch or None, got str 'noon'"),
        ("next_due", float("nan"), "expected seconds since the epoch or None, got float NaN"),
        ("wake", 7, "'int' object is not iterable"),
        ("wake", [7], "expected keys of units, got int 7"),
        ("wake_behind", iter(lambda: "same", None), "expected an end"),
        ("guard_turn", 7, "expected a context manager, got int 7"),
        ("note", 7, "expected str, got int 7"),
    ],
)
def test_answer_without_a_meaning_is_a_failure(
    point: str, answer: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = play()
    offer(monkeypatch, feature(point, lambda *asked: answer))
    world = play()
    (failure,) = world.failures
    assert why in failure.why
    assert decisions(world) == decisions(undisturbed)


@pytest.mark.parametrize("point", ["wake", "begin", "ready", "refused", "evict_ended", "revise", "published"])
def test_evictions_of_an_offered_feature_that_raises_are_undone(
    point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def evicts(self: CyclePlugin, session: Session, *asked: object) -> None:
        session.decisions.evict(session.state.pods["runs"], EvictionReason.REVOKED, "for no reason")
        raise RuntimeError("the feature is broken")

    offer(monkeypatch, feature(point, evicts))
    world = play()
    assert len(world.failures) == 1
    assert "runs" not in world.evicted


@pytest.mark.parametrize("part", ["enter", "exit"])
def test_guard_that_raises_does_not_change_the_turn(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def guard(self: CyclePlugin, session: Session, units: list[QueuedUnit], turn: Turn) -> Iterator[None]:
        if part == "enter":
            raise RuntimeError("no entry")
        yield
        raise RuntimeError("no exit")

    undisturbed = play()
    offer(monkeypatch, feature("guard_turn", guard))
    world = play()
    assert [failure.why for failure in world.failures] == [f"RuntimeError: no {part.replace('enter', 'entry')}"]
    assert decisions(world) == decisions(undisturbed)


def test_error_of_a_turn_is_no_failure_of_the_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def guard(self: CyclePlugin, session: Session, units: list[QueuedUnit], turn: Turn) -> Iterator[None]:
        yield

    offer(monkeypatch, feature("guard_turn", guard))
    world = Scenario(POLICY).node("a", cpu=4)
    monkeypatch.setattr(world.scheduler.placer, "place", fails)
    plan = world.pod("small", cpu=1).cycle()
    assert {failure.what for failure in plan.failures} == {"pod ns/small"}


def test_feature_that_ends_the_process_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(*asked: object) -> None:
        raise SystemExit(1)

    offer(monkeypatch, feature("begin", ends))
    assert [failure.why for failure in play().failures] == ["SystemExit: 1"]


def test_other_feature_is_called_after_one_has_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    other = feature("begin", lambda self, session: asked.append("begin"), name="other")
    offer(monkeypatch, feature("begin", fails), other)
    play()
    assert len(asked) > 1


def test_feature_whose_configuration_failed_is_configured_after_its_back_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[str] = []

    class Late(CyclePlugin):
        name = "late"

        def configure(self, policy: object) -> None:
            calls.append("configure")
            if len(calls) == 1:
                raise RuntimeError("not yet")

        def begin(self, session: Session) -> None:
            calls.append("begin")

    offer(monkeypatch, Late)
    world = Scenario(POLICY).node("a")
    world.cycle()
    assert calls == ["configure"]
    world.now += int(REST)
    world.cycle()
    assert calls == ["configure", "configure", "begin"]


def test_feature_gets_no_cycle_in_less_than_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, feature("next_due", lambda self: 0.0))
    world = Scenario(POLICY).node("a")
    world.cycle()
    assert world.scheduler.next_recheck == world.now + 1


def test_feature_that_is_always_outdated_does_not_keep_the_scheduler_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, feature("outdated", lambda self: True))
    world = Scenario(POLICY).node("a", cpu=1).pod("one", cpu=1).settle()
    assert world.where("one") == "a"
    assert [failure.why for failure in world.failures] == [
        "PluginResultError: still outdated after 20 cycles in a row"
    ]


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (object, "is not a phalanx CyclePlugin class"),
        (type("Nameless", (CyclePlugin,), {}), "its name is null; give it a name"),
        (feature("begin", fails, name="maintenance"), "feature 'maintenance' exists already"),
        (feature("__init__", fails), "cannot be created: RuntimeError: the feature is broken"),
        (feature("reserved_room", fails), "reserved_room is not available to other packages"),
    ],
)
def test_class_that_cannot_be_used_is_an_error_at_the_start(
    offered: object, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(monkeypatch, offered)
    with pytest.raises(PolicyError, match="entry point 0") as raised:
        Scenario(POLICY)
    assert why in str(raised.value)


class Listener(CyclePlugin):
    """Record the events, and check that they are correct."""

    name = "listener"
    seen: list[str]

    def __init__(self) -> None:
        self.held: dict[str, str] = {}
        type(self).seen = []

    def deallocated(self, session: Session, allocations: list[Allocation]) -> None:
        for each in allocations:
            assert self.held.pop(each.record.pod.uid) == each.node
            self.seen.append(f"-{each.record.pod.name} {each.node}")

    def allocated(self, session: Session, allocations: list[Allocation]) -> None:
        for each in allocations:
            assert each.record.pod.uid not in self.held
            self.held[each.record.pod.uid] = each.node
            self.seen.append(f"+{each.record.pod.name} {each.node}")

    def ready(self, session: Session, gangs: list[GangRecord]) -> None:
        self.seen += [f"ready {gang.key.name}" for gang in gangs]

    def published(self, session: Session) -> None:
        there = {uid: each for uid, each in session.state.pods.items() if each.row >= 0 and each.nomination is None}
        assert self.held == {uid: session.state.nodes.names[each.row] for uid, each in there.items()}


def events() -> list[str]:
    seen, Listener.seen[:] = list(Listener.seen), []
    return seen


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Scenario:
    offer(monkeypatch, Listener)
    return Scenario(POLICY).node("a", cpu=4)


def test_pod_is_allocated_when_it_is_placed_and_deallocated_when_it_ends(world: Scenario) -> None:
    world.pod("runs", node="a", cpu=1).pod("new", cpu=1).cycle()
    assert events() == ["+runs a", "+new a"]
    world.confirm().cycle()
    assert events() == []
    world.finishes("runs").gone("new").cycle()
    assert events() == ["-new a", "-runs a"]


def test_pod_whose_binding_failed_is_deallocated_and_allocated_again(world: Scenario) -> None:
    world.pod("new", cpu=1).cycle()
    world.state.pods.binding_failed("new")
    world.cycle()
    assert events() == ["+new a", "-new a", "+new a"]


def test_pod_that_another_scheduler_bound_elsewhere_moves(world: Scenario) -> None:
    world.node("b").pod("new", cpu=1).cycle()
    first = world.where("new")
    other = "b" if first == "a" else "a"
    world.becomes("new", node=other).cycle()
    assert events() == [f"+new {first}", f"-new {first}", f"+new {other}"]


def test_evicted_pod_is_deallocated_when_it_is_gone(world: Scenario) -> None:
    world.pod("low", node="a", cpu=4).pod("high", cpu=4, priority=10).cycle()
    assert (world.evicted, events()) == (["low"], ["+low a"])
    world.depart().cycle()
    assert events() == ["-low a", "+high a"]


def test_pods_of_a_removed_node_are_deallocated(world: Scenario) -> None:
    world.pod("runs", node="a", cpu=1).cycle()
    world.no_node("a").cycle()
    assert events() == ["+runs a", "-runs a"]


def test_gang_is_ready_once_when_it_is_complete(world: Scenario) -> None:
    world.gang("train", 2).pod("train-0", gang="train", cpu=3).cycle()
    assert events() == []
    world.pod("train-1", gang="train", cpu=3).cycle()
    world.pod("other", cpu=9).cycle()
    assert events() == ["ready train"]


def test_gang_is_ready_again_after_it_was_incomplete(world: Scenario) -> None:
    world.job("train", 2, cpu=3).cycle()
    world.gone("train-1").cycle()
    world.pod("train-1", gang="train", cpu=3).cycle()
    assert events() == ["ready train", "ready train"]


def test_gang_that_awaits_admission_is_ready_when_it_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, Listener)
    world = Scenario(POLICY.replace("{name: gang}", "{name: gang}, {name: overcommit}")).node("a", cpu=2)
    world.gang("train", 1, admission=True, admitted=False, min_resources=amounts(cpu=8))
    world.pod("train-0", gang="train", cpu=1).cycle()
    assert (world.admissions, events()) == ([], [])
    world.node("b", cpu=8).cycle()
    assert world.admissions == ["train"]
    assert events() == ["ready train", "+train-0 a"]


def test_gang_with_a_problem_is_ready_when_it_is_corrected(world: Scenario) -> None:
    problem = Problem("InvalidMinimum", "minAvailable is no number")
    world.gang("train", 1, problem=problem).pod("train-0", gang="train", cpu=9).cycle()
    assert events() == []
    world.gang("train", 1, problem=None).cycle()
    assert events() == ["ready train"]


# The clusters of the soak store promised starts, and close nodes that rejected pods.
@pytest.mark.feature("start-reservations")
@pytest.mark.feature("rejecting-nodes")
@pytest.mark.parametrize("seed", range(len(POLICIES), 2 * len(POLICIES)))
def test_events_of_a_random_history_are_exact_and_change_no_decision(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed, errors = live(seed, 60), list[BaseException]()
    monkeypatch.setattr(OfferedFeature, "fail", lambda self, point, error: errors.append(error))
    offer(monkeypatch, Listener)
    life = relive(undisturbed.story, compares=False)
    assert (errors, life.fault) == ([], "")
    assert life.cluster.digest == undisturbed.cluster.digest
    assert {text[0] for text in events()} >= {"+", "-"}


def test_cycle_without_offered_features_makes_no_extra_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def calls() -> dict[str, int]:
        world = Scenario(POLICY).nodes(4, cpu=4).pods("pod", 8, cpu=1).job("train", 4, cpu=1)
        profile = cProfile.Profile()
        profile.runcall(world.scheduler.cycle, world.now)
        stats: dict[tuple[str, int, str], tuple[int, ...]] = pstats.Stats(profile).stats  # type: ignore[attr-defined]
        return {
            name: counts[1]
            for (file, _, name), counts in stats.items()
            if file.endswith(("offered_feature.py", "cycle_events.py"))
        }

    assert calls() == {}
    offer(monkeypatch, Listener)
    assert calls()["collect"] == 2
