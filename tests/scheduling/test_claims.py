"""Claimed room of waiting units: used or released, whatever happens in between."""

from __future__ import annotations

from phalanx.cluster.pods.nominations import Nomination
from phalanx.model.account import AccountState

from .scenario import Scenario

RECLAIMING = """
actions: "enqueue, allocate, reclaim"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: capacity}, {name: predicates}]}]
"""
STARVING = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
  - plugins: [{name: priority}, {name: gang, enableJobStarving: false}, {name: predicates}, {name: binpack}]
"""


def test_node_that_returns_is_not_charged_for_its_former_claims() -> None:
    scenario = Scenario().nodes(2, cpu=2).pod("a", cpu=1)
    scenario.state.pods.nominate(scenario.state.pods["a"], scenario.state.nodes.row("n1"), Nomination())
    scenario.no_node("n1").work()
    assert scenario.where("a") == "n2"
    scenario.node("n1", cpu=2).pods("b", 3, cpu=1).run()
    assert scenario.spread() == {"n1": 2, "n2": 2}


def promised(queue: str = "default") -> Scenario:
    """One full node whose pod is evicted for another."""
    scenario = Scenario().queue("q").node("n1", cpu=1).pod("low", cpu=1, queue=queue).run()
    scenario.pod("high", cpu=1, priority=10, queue=queue).work()
    assert scenario.held() == {"high": "n1"}
    return scenario


def test_room_claimed_for_a_pod_that_becomes_unreadable_is_released() -> None:
    scenario = promised().becomes("high", problem="odd").run()
    assert scenario.held() == {}
    assert scenario.pod("other", cpu=1).run().where("other") == "n1"


def test_room_claimed_for_a_queue_that_closes_is_released() -> None:
    scenario = promised("q").queue("q", state=AccountState.CLOSED).run()
    assert scenario.held() == {}
    assert scenario.pod("other", cpu=1).run().where("other") == "n1"


def test_room_claimed_for_a_gang_without_a_declaration_is_released() -> None:
    scenario = Scenario().node("n1", cpu=2).job("low", 2, cpu=1).run().job("high", 2, cpu=1, priority=10).work()
    assert len(scenario.held()) == 2
    scenario.no_gang("high").work()
    assert scenario.held() == {}
    assert [entry.node for entry in scenario.plans[-1].nominations] == ["", ""]
    assert len(scenario.run().pods("other", 2, cpu=1).run().placed("other")) == 2


def test_useless_room_of_a_surplus_member_is_released_after_a_restart() -> None:
    scenario = Scenario().node("n1", cpu=2).gang("g", 1).pod("g-0", gang="g", node="n1", cpu=1)
    scenario.pod("full", node="n1", cpu=1).pod("g-1", gang="g", cpu=1, nominated="n1").run()
    assert scenario.held() == {}
    assert scenario.gone("full").run().where("g-1") == "n1"


def test_surplus_member_whose_victims_do_not_terminate_is_not_retried_endlessly() -> None:
    scenario = Scenario(STARVING).nodes(2, cpu=2).job("g", 1, cpu=1, priority=10).run()
    scenario.pods("low", 3, cpu=1).run().pod("g-1", gang="g", cpu=1, priority=10).work()
    (stuck,) = scenario.evicted
    scenario.becomes(stuck, terminating=True, leaves=scenario.now + 30)
    scenario.now += 200
    scenario.scheduler.activate_due(scenario.now)
    assert len(scenario.work().evicted) == 2
    assert scenario.run().where("g-1")


def test_strict_fifo_queue_serves_its_claims_in_order() -> None:
    scenario = Scenario().queue("q", fifo=True).node("n1", cpu=2).pods("low", 2, cpu=1, queue="q").run()
    scenario.gang("first", 2, created=scenario.now, queue="q").pod("first-0", gang="first", cpu=1, priority=10)
    scenario.now += 1
    scenario.job("second", 2, cpu=1, priority=10, queue="q").work()
    assert sorted(scenario.held()) == ["second-0", "second-1"]
    scenario.pod("first-1", gang="first", cpu=1, priority=10).run()
    assert scenario.placed() == ["second-0", "second-1"]


def test_room_preempted_in_a_circle_belongs_to_the_last_preemptor() -> None:
    """If several units can each preempt the next one in a circle, none would ever get the room."""
    scenario = Scenario().node("n1", cpu=1).pod("low", cpu=1).run()
    held = [tuple(scenario.pod(f"p{n}", cpu=1, priority=n).work().held()) for n in range(1, 7)]
    assert held == [("p1",), ("p2",), ("p3",), ("p4",), ("p4",), ("p4",)]
    scenario.depart().work()
    assert scenario.where("p4") == "n1"
    assert scenario.run().placed() == ["p6"]


def test_nominated_gang_starts_when_other_pods_leave_its_nodes_before_its_victims() -> None:
    scenario = Scenario().node("n1", cpu=4).pod("other", cpu=2, priority=50).pods("low", 2, cpu=1).run()
    scenario.job("high", 2, cpu=1, priority=10).work()
    assert scenario.held() == {"high-0": "n1", "high-1": "n1"}
    scenario.finishes("other").work()
    assert scenario.placed("high") == ["high-0", "high-1"]


def test_nominated_pod_that_fills_its_queue_starts_on_a_new_node() -> None:
    world = Scenario(RECLAIMING).queue("r", deserved={"cpu": 0})
    world.queue("q", deserved={"cpu": 2}, capability={"cpu": 2}).node("n1", cpu=2)
    world.pod("low", node="n1", cpu=2, queue="r").pod("high", cpu=2, queue="q").work()
    assert world.held() == {"high": "n1"}
    world.node("n2", cpu=2).work()
    assert world.placed("high") == ["high"]
