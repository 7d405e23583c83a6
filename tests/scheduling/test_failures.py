"""Failures while a unit is planned: they affect only this unit, once, and the accounting stays exact."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import msgspec
import pytest

from phalanx.cluster.pods import occupancy
from phalanx.model.verdict import Verdict
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.policy import ConfiguredPlugin, Policy
from phalanx.scheduling.ordering.failures import OPINIONS
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.units import attempt, gang_group

from ..cluster.audit import audit
from .scenario import Scenario, key

ALL = """
actions: "enqueue, allocate, preempt, reclaim, shuffle, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}, {name: proportion}]}]
"""


def broken(point: str, policy: Policy) -> Policy:
    """Return the policy with one more plugin, which raises at a point."""

    def fails(self: Plugin, *asked: Any) -> Any:
        raise LookupError("a bug of a plugin")

    kind = type("Broken", (Plugin,), {"name": "broken", "__init__": lambda self: None, point: fails})
    return msgspec.structs.replace(policy, plugins=(ConfiguredPlugin(kind(), 0), *policy.plugins))


def cluster(policy: Policy) -> Scenario:
    scenario = Scenario(ALL)
    scenario.scheduler.use(policy)
    scenario.nodes(2, cpu=8)
    for name in ("a", "b"):
        scenario.gang(name, 2)
        scenario.pod(f"{name}1", gang=name, cpu=1).pod(f"{name}2", gang=name, cpu=1)
    scenario.pod("alone", cpu=1)
    return scenario


def cycles(scenario: Scenario) -> tuple[set[str], list[str]]:
    """Run until nothing is left to do; return the bound pods and the failures."""
    bound, failed = set(), []
    for _ in range(20):
        if scenario.scheduler.idle:
            break
        plan = scenario.scheduler.cycle(float(scenario.now))
        bound |= {bind.uid for bind in plan.binds}
        failed += [f"{failure.what}: {failure.why}" for failure in plan.failures]
        audit(scenario.state)
    assert scenario.scheduler.idle, "what fails must not keep the scheduler busy"
    return bound, failed


EVERYBODY = {"a1", "a2", "b1", "b2", "alone"}


@pytest.mark.parametrize("point", sorted(OPINIONS))
def test_vote_of_a_plugin_that_raises_is_ignored(point: str) -> None:
    scenario = cluster(broken(point, load_policy(ALL)))
    bound, failed = cycles(scenario)
    assert bound == EVERYBODY
    assert all(text.startswith(f"plugin broken at {point}: LookupError") for text in failed)


@pytest.mark.parametrize("point", sorted(set(EXTENSION_POINTS) - OPINIONS - {"configure"}))
def test_veto_that_raises_still_protects_the_pod(point: str) -> None:
    scenario = cluster(broken(point, load_policy(ALL)))
    bound, failed = cycles(scenario)
    assert bound in (EVERYBODY, set())
    assert bool(failed) is (not bound)
    scenario.scheduler.use(load_policy(ALL))
    again, fresh = cycles(scenario)
    assert (bound | again, fresh) == (EVERYBODY, [])


class PoisonError(Exception):
    pass


def poisoned(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str, hits: Any) -> None:
    """Let a function raise in some of its calls, after its work."""
    whole = getattr(module, name)

    def fails(*arguments: Any, **more: Any) -> Any:
        result = whole(*arguments, **more)
        if hits(*arguments):
            raise PoisonError(f"in {name}")
        return result

    monkeypatch.setattr(module, name, fails)


def verdict_of(scenario: Scenario, name: str) -> Verdict | None:
    told = scenario.state.gangs[key(name)].last_verdict
    return told[0] if told is not None else None


@pytest.mark.parametrize(
    ("module", "name"),
    [(gang_group, "place_gangs"), (attempt, "_mark"), (gang_group, "bind_gangs")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_gang_whose_planning_raises_is_set_aside_whole(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    def hits(*arguments: Any) -> bool:
        return any("ns/a" in repr(each) or getattr(each, "key", None) == key("a") for each in _flat(arguments))

    poisoned(monkeypatch, module, name, hits)
    scenario = cluster(load_policy(ALL))
    bound, failed = cycles(scenario)
    assert bound == {"b1", "b2", "alone"}
    assert [text for text in failed if "gang ns/a: PoisonError" in text]
    verdict = verdict_of(scenario, "a")
    assert verdict is not None
    assert verdict.code == "PlanningFailed"
    assert "gang ns/a failed" in verdict.message
    # It is not tried again until something about it changes.
    scenario.node("n3", cpu=8)
    assert cycles(scenario)[0] == set()
    monkeypatch.undo()
    scenario.pod("a3", gang="a", cpu=1)
    assert {"a1", "a2"} <= cycles(scenario)[0]


def _flat(arguments: Any) -> list[Any]:
    found: list[Any] = []
    for each in arguments:
        if isinstance(each, list | tuple):
            found += _flat(each)
        else:
            found += [each, getattr(each, "gang", None), *getattr(each, "gangs", ())]
    return found


@pytest.mark.parametrize("bad", ["a1", "a2", "alone"])
def test_failure_after_the_decision_binds_no_part_of_a_gang(monkeypatch: pytest.MonkeyPatch, bad: str) -> None:
    whole = occupancy.binding_writes

    def fails(record: Any, now: float) -> Any:
        if record.pod.uid == bad:
            raise PoisonError("what it holds cannot be written down")
        return whole(record, now)

    monkeypatch.setattr("phalanx.scheduling.session.decisions.binding_writes", fails)
    scenario = cluster(load_policy(ALL))
    bound, _ = cycles(scenario)
    assert bound == EVERYBODY - ({"alone"} if bad == "alone" else {"a1", "a2"})
    assert scenario.state.nodes.used.sum() > 0


def test_failing_pod_does_not_block_other_pods_of_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = occupancy.binding_writes

    def fails(record: Any, now: float) -> Any:
        if record.pod.uid == "p7":
            raise PoisonError("no")
        return whole(record, now)

    monkeypatch.setattr("phalanx.scheduling.session.decisions.binding_writes", fails)
    scenario = Scenario(ALL).nodes(2, cpu=64)
    for number in range(20):
        scenario.pod(f"p{number}", cpu=1)
    assert cycles(scenario)[0] == {f"p{number}" for number in range(20)} - {"p7"}
