"""Invalid answers of third-party plugins at every extension point: they affect only the plugin."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import numpy as np
import pytest

from phalanx.cluster.classes import ClassRecord
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.framework.extension_points import EXTENSION_POINTS, Vote
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.framework.policy import ConfiguredPlugin, Policy
from phalanx.scheduling.ordering.failures import OPINIONS
from phalanx.scheduling.policy.loader import load_policy

from .scenario import Scenario, amounts

POLICY = """
actions: "enqueue, allocate, preempt, reclaim, shuffle, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: nodeorder}, {name: capacity}]}]
"""
Answer = Callable[..., object]


def raises(*asked: object) -> object:
    raise LookupError("a bug of a plugin")


def ends_the_process(*asked: object) -> object:
    raise SystemExit(1)


ANSWERS: dict[str, Answer] = {
    "none": lambda *asked: None,
    "object": lambda *asked: object(),
    "text": lambda *asked: "text",
    "nan": lambda *asked: math.nan,
    "infinity": lambda *asked: math.inf,
    "huge": lambda *asked: 1e300,
    "true": lambda *asked: True,
    "false": lambda *asked: False,
    "negative": lambda *asked: -1,
    "list": lambda *asked: [1, 2],
    "nan in a tuple": lambda *asked: (0, math.nan),
    "fractions": lambda *asked: {"cpu": 1.5},
    "wrong length": lambda *asked: np.zeros(1001),
    "wrong length, truths": lambda *asked: np.ones(1001, dtype=np.bool_),
    "nothing": lambda *asked: np.zeros((0, 3), dtype=np.int64),
    "not numbers": lambda *asked: np.full(_rows(asked), math.nan),
    "huge numbers": lambda *asked: np.full(_rows(asked), 1e300),
    "numbers as objects": lambda *asked: np.full(_rows(asked), None),
    "raises": raises,
    "ends the process": ends_the_process,
}
QUICK = {"object", "not numbers", "raises"}
_HASHABLE = {"none", "object", "text", "nan", "infinity", "huge", "true", "false", "negative", "nan in a tuple"}
_KEYS = {"text", "infinity", "huge", "true", "false", "negative"}
_TIMES = {"none", "huge", "negative"}
_NONE = {"none"}
# Answers that are valid at a point, and so no fault.
SOUND: dict[str, set[str]] = {
    **dict.fromkeys(("queue_order", "subqueue_order", "gang_order", "pod_order", "victim_order"), _KEYS),
    **dict.fromkeys(("time_key", "admission_key"), _HASHABLE),
    **dict.fromkeys(("recheck_at", "next_wake"), _TIMES),
    **dict.fromkeys(("configure", "admitted"), ANSWERS.keys() - {"raises", "ends the process"}),
    **dict.fromkeys(("task_buckets", "limit", "deserved", "nominal_quota", "blocked", "evict_veto"), _NONE),
    **dict.fromkeys(("deserved_with_request", "static_score", "why_not_admitted"), _NONE),
    "pre_filter": {"none", "text"},
    "pre_bind_check": {"true"},
    "score": {"negative"},
    "victims": {"nothing"},
}
# Points that are called only if another point of the same plugin has an effect, or in trees that are absent here.
RARE = {"declared_resources", "nominal_quota", "runtime_quota", "subqueue_order", "deserved_with_request"}
# Points that are called only where starts are reserved: test_reservation_votes.py.
RARE |= {"reserve_start", "backfill"}


def _rows(asked: tuple[Any, ...]) -> int:
    """Answer with one value per row, where rows are passed."""
    return len(asked[1].alive[asked[2]]) if len(asked) == 3 and hasattr(asked[1], "alive") else 7


def plugin(point: str, answer: Answer) -> tuple[Plugin, list[str]]:
    """Plugin that answers at one point, and records its calls."""
    asked: list[str] = []

    def method(self: Plugin, *about: Any) -> Any:
        asked.append(point)
        return answer(*about)

    methods: dict[str, Answer] = {point: method}
    if point in ("max_admissions", "admission_key", "why_not_admitted"):
        vote = Vote.REJECT if point == "why_not_admitted" else Vote.ABSTAIN
        methods["admit"] = lambda *asked: vote
    if point == "pre_bind_check":
        methods["filter"] = lambda *asked: np.ones(_rows(asked[1:]), dtype=np.bool_)
    kind = type("Foreign", (Plugin,), {"name": "foreign", "__init__": lambda self: None, **methods})
    return kind(), asked


def world() -> Scenario:
    """Two nodes, and a larger closed one; a queue that can reclaim, and a group that waits for admission."""
    return _world().observed_again()


@cache
def _world() -> Scenario:
    scenario = Scenario(POLICY).nodes(2, cpu=8).node("closed", cpu=64, unschedulable=True)
    scenario.queue("a", deserved={"cpu": 8}).queue("b", deserved={"cpu": 8}, capability={"cpu": 16})
    scenario.pods("lent", 13, queue="b", cpu=1, node="n1").pods("old", 2, queue="b", cpu=1, node="n2")
    scenario.gang("first", 2, queue="a").pods("first", 2, gang="first", queue="a", cpu=2, priority=9)
    scenario.gang("second", 2, queue="a").pods("second", 2, gang="second", queue="a", cpu=1)
    scenario.gang("later", 2, queue="a", min_resources=amounts(cpu=1), admission=True, admitted=False)
    scenario.gang("never", 2, queue="b", min_resources=amounts(cpu=99), admission=True, admitted=False)
    return scenario.pod("alone", queue="a", cpu=1).pod("other", cpu=1)


def outcome(policy: Policy) -> tuple[dict[str, str], set[str], list[str], list[str]]:
    """Return (nodes of bound pods, evicted pods, admitted groups, failures) under a policy."""
    scenario = world()
    scenario.scheduler.use(policy)
    bound, evicted, admitted, failed = dict[str, str](), set[str](), list[str](), list[str]()
    for _ in range(12):
        if scenario.scheduler.idle:
            break
        plan = scenario.cycle()
        bound |= {bind.uid: bind.node for bind in plan.binds}
        evicted |= {evict.uid for evict in plan.evictions}
        admitted += [str(each.gang) for each in plan.admissions]
        failed += [f"{failure.plugin}: {failure.what}: {failure.why}" for failure in plan.failures]
        scenario.depart(*(evict.uid for evict in plan.evictions))
    assert scenario.scheduler.idle, "what fails must not keep the scheduler busy"
    return bound, evicted, admitted, failed


def with_foreign(foreign: Plugin) -> Policy:
    policy = load_policy(POLICY)
    return msgspec.structs.replace(policy, plugins=(ConfiguredPlugin(foreign, 0), *policy.plugins))


@pytest.fixture(scope="module")
def undisturbed() -> tuple[dict[str, str], set[str], list[str]]:
    bound, evicted, admitted, failed = outcome(load_policy(POLICY))
    assert bound.keys() == {"first-0", "first-1", "second-0", "second-1", "alone"}
    assert evicted
    assert admitted == ["ns/later"]
    assert not failed
    return bound, evicted, admitted


@pytest.mark.parametrize("names", [QUICK, pytest.param(ANSWERS.keys() - QUICK, marks=pytest.mark.slow)])
@pytest.mark.parametrize("point", sorted({*EXTENSION_POINTS} - {"configure"}))
def test_invalid_answer_costs_the_plugin_its_vote_and_affects_nothing_else(
    point: str, names: set[str], undisturbed: tuple[dict[str, str], set[str], list[str]]
) -> None:
    ever = False
    for name in sorted(names - SOUND.get(point, set())):
        foreign, asked = plugin(point, ANSWERS[name])
        bound, evicted, admitted, failed = outcome(with_foreign(foreign))
        assert "closed" not in bound.values(), name
        assert bool(failed) is bool(asked), (name, failed)
        assert all(text.startswith("foreign: ") for text in failed), (name, failed)
        ever = ever or bool(asked)
        if point in OPINIONS:
            assert (bound, evicted, admitted) == undisturbed, name
            assert all(f"plugin foreign at {point}: " in text for text in failed), (name, failed)
        else:
            # A limit or a veto that fails lets no pod pass.
            assert evicted <= undisturbed[1], name
            assert bound.keys() <= undisturbed[0].keys(), name
    assert ever or point in RARE, "nobody asked"


def foreign_policy(**methods: Answer) -> Policy:
    kind = type("Foreign", (Plugin,), {"name": "foreign", "__init__": lambda self: None, **methods})
    return with_foreign(kind())


@pytest.mark.parametrize("shape", ["rows", "rows by one", "as load"])
def test_score_by_node_counts_for_every_number_of_copies(shape: str) -> None:
    def score(self: Plugin, pod_class: ClassRecord, load: Load) -> object:
        points = 1000.0 * np.arange(len(load.nodes.alive))[load.rows]
        if load.copies is None or shape == "rows":
            return points
        return points[:, None] if shape == "rows by one" else np.repeat(points[:, None], load.depth, axis=1)

    scenario = Scenario(POLICY).nodes(3, cpu=4)
    scenario.scheduler.use(foreign_policy(score=score))
    scenario.pods("pod", 6, cpu=1)
    plan = scenario.cycle()
    assert not plan.failures
    assert Counter(bind.node for bind in plan.binds) == {"n3": 4, "n2": 2}


def test_filter_without_an_explanation_is_named() -> None:
    scenario = Scenario(POLICY).nodes(2, cpu=4)
    scenario.scheduler.use(foreign_policy(filter=lambda *asked: np.zeros(_rows(asked[1:]), dtype=np.bool_)))
    scenario.pod("pod", cpu=1).cycle()
    assert "2 node(s) were ruled out by plugin foreign" in scenario.why_pod("pod").message


def test_plugin_that_cannot_be_configured_leaves_the_policy_in_force() -> None:
    scenario = Scenario(POLICY).node("n1", cpu=4)
    before = scenario.scheduler.policy
    with pytest.raises(PolicyError, match="plugin foreign at configure: LookupError: a bug of a plugin"):
        scenario.scheduler.use(foreign_policy(configure=raises))
    assert scenario.scheduler.policy is before
    assert scenario.pod("pod", cpu=1).run().where("pod") == "n1"


def test_plugin_can_request_at_most_one_cycle_a_second() -> None:
    scenario = Scenario(POLICY).node("n1", cpu=4)
    scenario.scheduler.use(foreign_policy(next_wake=lambda self, session: session.now + 1e-6))
    scenario.scheduler.cycle(5000.0)
    assert scenario.scheduler.next_recheck == 5001.0
