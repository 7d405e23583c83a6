"""Policies of single queues: order, evictions and start reservations, inherited by sub-queues."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from phalanx.cli.main import cli
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy

from .scenario import Scenario
from .test_reserve import busy, start_of
from .test_reserve import policy as reserving


def with_queues(queues: str, policy: str = DEFAULT_POLICY) -> str:
    return f"{policy}phalanx:\n  queues: {queues}\n"


def lender(queues: str) -> Scenario:
    """Queue `rich` has borrowed all of the node; queue `poor` and its child `late` deserve a part of it."""
    world = Scenario(with_queues(queues)).node("n", gpu=4).queue("rich").queue("poor").queue("late", parent="poor")
    return world.pods("held", 4, queue="rich", gpu=1, node="n")


def test_unit_evicts_unless_the_policy_of_its_queue_forbids_it() -> None:
    for queues, evicted in (("{}", 2), ("{late: {preempt: false}}", 0), ("{rich: {preempt: false}}", 2)):
        world = lender(queues).job("g", 2, queue="late", gpu=1).run()
        assert len(world.evicted) == evicted, queues


def test_sub_queue_inherits_and_can_state_its_own_value() -> None:
    assert not lender("{poor: {preempt: false}}").job("g", 2, queue="late", gpu=1).run().evicted
    both = "{poor: {preempt: false}, late: {preempt: true}}"
    assert len(lender(both).job("g", 2, queue="late", gpu=1).run().evicted) == 2


def test_priority_preempts_nothing_from_a_queue_without_evictions() -> None:
    for queues, evicted in (("{}", 1), ("{a: {preempt: false}}", 0)):
        world = Scenario(with_queues(queues)).node("n", gpu=1).queue("a")
        world.pods("low", 1, queue="a", gpu=1, node="n", priority=0).pods("high", 1, queue="a", gpu=1, priority=9)
        assert len(world.run().evicted) == evicted, queues


@pytest.mark.parametrize(
    ("queues", "strategy", "placed"),
    [
        ("{}", "traverse", 1),
        ("{}", "fifo", 0),
        ("{a: {order: fifo}}", "traverse", 0),
        ("{root: {order: fifo}}", "traverse", 0),
        ("{a: {order: traverse}}", "fifo", 1),
    ],
)
def test_order_of_the_policy_replaces_the_strategy_of_the_queue(queues: str, strategy: str, placed: int) -> None:
    world = Scenario(with_queues(queues)).node("n", gpu=2).queue("a", fifo=strategy == "fifo")
    world.job("big", 3, queue="a", gpu=1).pods("small", 1, queue="a", gpu=1).run()
    assert len(world.placed("small")) == placed


@pytest.mark.parametrize(
    ("queues", "message"),
    [
        ("{a: {order: shortest}}", "phalanx.queues.a.order: 'shortest' is unknown; expected traverse or fifo"),
        ("{a: {preempt: never}}", "phalanx.queues.a.preempt: 'never' is not true or false"),
        ("{a: {prempt: true}}", "phalanx.queues.a.prempt: unknown key; did you mean 'preempt'?"),
        ("{a: fifo}", "phalanx.queues.a: expected a mapping with order, preempt, reserve"),
        ("[a]", "phalanx.queues: expected a mapping of queue names"),
    ],
)
def test_wrong_field_is_named(queues: str, message: str) -> None:
    with pytest.raises(PolicyError) as caught:
        load_policy(with_queues(queues))
    assert message in str(caught.value)


@pytest.mark.feature("start-reservations")
@pytest.mark.parametrize(("queues", "start"), [("{}", 100), ("{root: {reserve: false}, b: {reserve: true}}", None)])
def test_unit_of_a_queue_without_reservations_has_no_promised_start(queues: str, start: int | None) -> None:
    world = busy(Scenario(with_queues(queues, reserving(depth=0))).node("n1", cpu=4), "short", "n1", 100, cpu=4)
    world.queue("a").job("train", 2, queue="a", cpu=2).run()
    assert start_of(world, "train") == start


def test_policy_show_lists_the_policies_of_queues(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(with_queues("{a: {order: fifo, preempt: false}}"), "utf-8")
    result = CliRunner().invoke(cli, ["policy", "show", "--config", str(file)])
    assert [line.split(maxsplit=1) for line in result.output.splitlines() if line.startswith("queue ")] == [
        ["queue", "a: order fifo, preempt false"]
    ]
    assert (
        '"queues": {\n' in CliRunner().invoke(cli, ["policy", "show", "--config", str(file), "-o", "json"]).output
    )
