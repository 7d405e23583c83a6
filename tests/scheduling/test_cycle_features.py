"""Features of the cycle: a `CyclePlugin` is added by one line in the registry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from phalanx.model.decisions import EvictionReason
from phalanx.model.gang import GangKey
from phalanx.scheduling import scheduler as scheduler_module
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.policy import registry
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.session.cycle_plugin import CYCLE_POINTS, CyclePlugin, Turn
from phalanx.scheduling.session.session import Session

from .scenario import NAMESPACE, Scenario


class Recorder(CyclePlugin):
    """Feature that implements every point; `calls` are the points in the order of their calls."""

    name = "recorder"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.due: float | None = None
        self.text = ""

    def configure(self, policy: Policy) -> None:
        self.calls.append("configure")

    def reserved_room(self) -> None:
        return None

    def outdated(self) -> bool:
        return False

    def next_due(self) -> float | None:
        return self.due

    def observe(self, now: float) -> None:
        pass

    def advance(self, now: float) -> None:
        self.calls.append("advance")

    def wake(self, session: Session) -> Iterable[UnitKey]:
        self.calls.append("wake")
        return ()

    def wake_behind(self, session: Session) -> Iterable[UnitKey]:
        self.calls.append("wake_behind")
        return ()

    def begin(self, session: Session) -> None:
        self.calls.append("begin")

    @contextmanager
    def guard_turn(self, session: Session, units: list[QueuedUnit], turn: Turn) -> Iterator[None]:
        self.calls.append("guard_turn")
        yield
        self.calls.append("turn over")

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        self.calls.append(f"refused {', '.join(unit.name for unit in units)}")

    def evict_ended(self, session: Session) -> None:
        self.calls.append("evict_ended")

    def revise(self, session: Session) -> None:
        self.calls.append("revise")

    def note(self, of: GangKey | str) -> str:
        return self.text

    def published(self, session: Session) -> None:
        self.calls.append("published")


class Failing(CyclePlugin):
    """Feature that raises at the end of each cycle, after it has evicted every bound pod."""

    name = "failing"

    def evict_ended(self, session: Session) -> None:
        bound = [record for record in session.state.pods.values() if record.pod.node]
        assert bound
        for record in bound:
            session.decisions.evict(record, EvictionReason.REVOKED, "for no reason")
        raise RuntimeError("the feature is broken")


def with_features(monkeypatch: pytest.MonkeyPatch, *features: CyclePlugin) -> None:
    """Add features to the registry, behind the built-in ones."""
    ours = registry.cycle_plugins
    monkeypatch.setattr(scheduler_module, "cycle_plugins", lambda *parts: (*ours(*parts), *features))


def test_feature_is_called_at_each_point_in_the_order_of_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    feature = Recorder()
    with_features(monkeypatch, feature)
    world = Scenario().node("a", cpu=1)
    assert feature.calls.pop(0) == "configure"
    world.pod("small", cpu=1).pod("large", cpu=2).cycle()
    expected = [
        *("advance", "wake", "wake_behind", "begin"),
        *("guard_turn", "turn over", f"refused pod {NAMESPACE}/large", "guard_turn", "turn over"),
        *("evict_ended", "revise", "published"),
    ]
    assert feature.calls == expected


def test_note_of_a_feature_is_part_of_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    feature = Recorder()
    feature.text = "the moon is full"
    with_features(monkeypatch, feature)
    world = Scenario().node("a", cpu=1).pod("large", cpu=2)
    world.settle()
    assert world.why_pod("large").message.endswith("The moon is full.")


def test_scheduler_wants_a_cycle_when_a_feature_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    feature = Recorder()
    with_features(monkeypatch, feature)
    world = Scenario().node("a", cpu=1)
    world.settle()
    feature.due = world.now + 10
    assert world.scheduler.next_recheck == world.now + 10
    world.scheduler.activate_due(world.now + 9)
    assert world.scheduler.idle
    world.scheduler.activate_due(world.now + 10)
    assert not world.scheduler.idle


def test_evictions_of_a_feature_that_raises_are_undone_and_the_failure_is_in_the_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_features(monkeypatch, Failing())
    world = Scenario().node("a", cpu=2).pod("runs", node="a", cpu=1)
    plan = world.pod("new", cpu=1).cycle()
    assert plan.evictions == []
    assert [bind.name for bind in plan.binds] == ["new"]
    assert [(failure.what, failure.why) for failure in plan.failures] == [
        ("failing at evict_ended", "RuntimeError: the feature is broken")
    ]


def test_scheduler_plans_without_any_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler_module, "cycle_plugins", lambda *parts: ())
    world = Scenario().node("a", cpu=3).job("fits", 2, cpu=1).job("waits", 2, cpu=1)
    world.settle()
    assert world.state.pods["fits-0"].pod.node == "a"
    assert world.why("waits").code


def test_example_of_the_contributors_page_is_a_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parent.parent.parent / "CONTRIBUTING.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(class QueueLength.*?)```", page, re.DOTALL)
    names: dict[str, Any] = dict(globals())
    exec(compile(f"from __future__ import annotations\n{example}", "CONTRIBUTING.md", "exec"), names)
    with_features(monkeypatch, names["QueueLength"]())
    world = Scenario().node("a", cpu=1).pod("first", cpu=2)
    world.settle()
    assert "had no room" not in world.why_pod("first").message
    world.pod("second", cpu=3).pod("third", cpu=4).settle()
    assert world.why_pod("second").message.endswith("2 had no room in this cycle.")


def test_every_feature_of_the_registry_overrides_a_point() -> None:
    world = Scenario()
    features: list[Any] = list(
        registry.cycle_plugins(world.state, world.scheduler.queue, world.scheduler.cycle_history)
    )
    for feature in features:
        assert any(point in vars(type(feature)) for point in CYCLE_POINTS), feature.name
    assert len({feature.name for feature in features}) == len(features)
