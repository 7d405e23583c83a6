"""Back-off of a node whose kubelet rejected a pod, longer each time."""

from __future__ import annotations

import pytest

from phalanx.scheduling.framework.node_backoff import FIRST_REST, FORGOTTEN_AFTER, LONGEST_REST, NodeBackoff
from tests.scheduling.features import rejecting_nodes

from .scenario import Scenario

pytestmark = pytest.mark.feature("rejecting-nodes")

NOW = 1_800_000_000.0


def later(world: Scenario, moment: float) -> None:
    world.now = int(moment)
    world.scheduler.activate_due(world.now)
    world.run()


def test_node_is_skipped_after_a_rejection_and_used_again_by_itself() -> None:
    world = Scenario().node("best", cpu=9, memory="9Gi").node("next", cpu=4, memory="4Gi")
    world.pod("a", cpu=1).run()
    assert world.where("a") == "best"
    until = rejecting_nodes(world.scheduler).rejected("best", world.now)
    assert not world.scheduler.idle
    world.pod("b", cpu=1).run()
    assert world.where("b") == "next"
    assert world.scheduler.next_recheck == until
    world.pod("c", cpu=1)
    later(world, until)
    assert world.where("c") == "best"


def test_pod_that_waits_for_its_only_node_has_a_reason_and_is_placed_after_the_back_off() -> None:
    world = Scenario().node("only", cpu=1)
    until = rejecting_nodes(world.scheduler).rejected("only", world.now)
    world.pod("a", cpu=1).run()
    assert "1 node(s) rejected a pod recently" in world.why_pod("a").message
    later(world, until)
    assert world.where("a") == "only"


def test_changed_policy_does_not_end_the_back_off_of_a_node() -> None:
    world = Scenario().node("only", cpu=1)
    rejecting_nodes(world.scheduler).rejected("only", world.now)
    world.scheduler.use(world.scheduler.policy)
    assert world.pod("a", cpu=1).run().where("a") == ""


def test_back_off_of_a_node_doubles_each_time_up_to_a_limit() -> None:
    rests, now, pauses = NodeBackoff(), NOW, []
    for _ in range(7):
        until = rests.refused("n", now)
        pauses.append(until - now)
        now = until
    assert pauses[:3] == [FIRST_REST, 2 * FIRST_REST, 4 * FIRST_REST]
    assert pauses[-1] == LONGEST_REST


def test_pods_already_on_their_way_count_as_one_rejection() -> None:
    rests = NodeBackoff()
    assert {rests.refused("n", NOW + second) for second in range(8)} == {NOW + FIRST_REST}
    assert rests.refused("n", NOW + FIRST_REST) == NOW + 3 * FIRST_REST


def test_old_rejections_are_forgotten() -> None:
    rests = NodeBackoff()
    rests.refused("n", NOW)
    later = NOW + FORGOTTEN_AFTER
    assert rests.backed_off(later) == ()
    assert rests.refused("n", later) == later + FIRST_REST
