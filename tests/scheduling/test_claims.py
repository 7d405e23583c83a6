"""Room that is held for somebody is used by him or given up, whatever happens in between."""

from __future__ import annotations

from phalanx.cluster.claims import Claim

from .scenario import Scenario


def test_a_node_that_comes_back_is_not_charged_for_whom_it_was_once_kept() -> None:
    scenario = Scenario().nodes(2, cpu=2).pod("a", cpu=1)
    scenario.state.claim(scenario.state.pods["a"], scenario.state.nodes.row("n1"), Claim())
    scenario.no_node("n1").work()
    assert scenario.where("a") == "n2"
    scenario.node("n1", cpu=2).pods("b", 3, cpu=1).run()
    assert scenario.spread() == {"n1": 2, "n2": 2}
