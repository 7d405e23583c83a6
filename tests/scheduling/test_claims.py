"""Room that is held for somebody is used by him or given up, whatever happens in between."""

from __future__ import annotations

from phalanx.cluster.pods.nominations import Nomination
from phalanx.model.account import AccountState

from .scenario import Scenario

STARVING = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
  - plugins: [{name: priority}, {name: gang, enableJobStarving: false}, {name: predicates}, {name: binpack}]
"""


def test_a_node_that_comes_back_is_not_charged_for_whom_it_was_once_kept() -> None:
    scenario = Scenario().nodes(2, cpu=2).pod("a", cpu=1)
    scenario.state.pods.nominate(scenario.state.pods["a"], scenario.state.nodes.row("n1"), Nomination())
    scenario.no_node("n1").work()
    assert scenario.where("a") == "n2"
    scenario.node("n1", cpu=2).pods("b", 3, cpu=1).run()
    assert scenario.spread() == {"n1": 2, "n2": 2}


def promised(queue: str = "default") -> Scenario:
    """One full node whose pod is told to leave for another."""
    scenario = Scenario().queue("q").node("n1", cpu=1).pod("low", cpu=1, queue=queue).run()
    scenario.pod("high", cpu=1, priority=10, queue=queue).work()
    assert scenario.held() == {"high": "n1"}
    return scenario


def test_what_is_held_for_a_pod_that_cannot_be_read_any_more_is_free() -> None:
    scenario = promised().becomes("high", problem="odd").run()
    assert scenario.held() == {}
    assert scenario.pod("other", cpu=1).run().where("other") == "n1"


def test_what_is_held_for_a_queue_that_closes_is_free() -> None:
    scenario = promised("q").queue("q", state=AccountState.CLOSED).run()
    assert scenario.held() == {}
    assert scenario.pod("other", cpu=1).run().where("other") == "n1"


def test_what_is_held_for_a_gang_that_is_not_declared_any_more_is_free() -> None:
    scenario = Scenario().node("n1", cpu=2).job("low", 2, cpu=1).run().job("high", 2, cpu=1, priority=10).work()
    assert len(scenario.held()) == 2
    scenario.no_gang("high").work()
    assert scenario.held() == {}
    assert [entry.node for entry in scenario.plans[-1].nominations] == ["", ""]
    assert len(scenario.run().pods("other", 2, cpu=1).run().placed("other")) == 2


def test_what_was_held_for_a_surplus_member_before_a_restart_is_given_up_where_it_is_of_no_use() -> None:
    scenario = Scenario().node("n1", cpu=2).gang("g", 1).pod("g-0", gang="g", node="n1", cpu=1)
    scenario.pod("full", node="n1", cpu=1).pod("g-1", gang="g", cpu=1, nominated="n1").run()
    assert scenario.held() == {}
    assert scenario.gone("full").run().where("g-1") == "n1"


def test_a_surplus_member_whose_victims_do_not_leave_is_not_asked_about_without_end() -> None:
    scenario = Scenario(STARVING).nodes(2, cpu=2).job("g", 1, cpu=1, priority=10).run()
    scenario.pods("low", 3, cpu=1).run().pod("g-1", gang="g", cpu=1, priority=10).work()
    (stuck,) = scenario.evicted
    scenario.becomes(stuck, terminating=True, leaves=scenario.now + 30)
    scenario.now += 200
    scenario.scheduler.activate_due(scenario.now)
    assert len(scenario.work().evicted) == 2
    assert scenario.run().where("g-1")


def test_a_queue_that_keeps_its_order_keeps_its_promises_first() -> None:
    scenario = Scenario().queue("q", fifo=True).node("n1", cpu=2).pods("low", 2, cpu=1, queue="q").run()
    scenario.gang("first", 2, created=scenario.now, queue="q").pod("first-0", gang="first", cpu=1, priority=10)
    scenario.now += 1
    scenario.job("second", 2, cpu=1, priority=10, queue="q").work()
    assert sorted(scenario.held()) == ["second-0", "second-1"]
    scenario.pod("first-1", gang="first", cpu=1, priority=10).run()
    assert scenario.placed() == ["second-0", "second-1"]


def test_room_that_has_been_through_many_hands_is_left_to_the_last() -> None:
    """Of several who may each take from the next, in a circle, nobody would ever get it."""
    scenario = Scenario().node("n1", cpu=1).pod("low", cpu=1).run()
    held = [tuple(scenario.pod(f"p{n}", cpu=1, priority=n).work().held()) for n in range(1, 7)]
    assert held == [("p1",), ("p2",), ("p3",), ("p4",), ("p4",), ("p4",)]
    scenario.depart().work()
    assert scenario.where("p4") == "n1"
    assert scenario.run().placed() == ["p6"]
