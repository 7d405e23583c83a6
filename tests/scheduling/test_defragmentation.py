"""Defragmentation plans: pods that fit elsewhere are moved to empty nodes or to make room for a gang."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.model.account import AccountKey, Tree
from phalanx.model.disruption import DisruptionBudget, Portion
from phalanx.model.events import DisruptionBudgetUpdated
from phalanx.model.gang import GangKey
from phalanx.model.pod import PodClass
from phalanx.model.selectors import Taint, Toleration
from phalanx.model.topology import TopologyRule
from phalanx.scheduling.defragmentation.relocation import (
    EmptyNodes,
    Relocation,
    RelocationLimits,
    RelocationObstacle,
    RoomFor,
)
from phalanx.scheduling.whatif.relocation_plan import plan
from phalanx.scheduling.whatif.relocation_proof import ClusterFacts

from ..extent import examples
from .scenario import NAMESPACE, Scenario

KEPT = {"controller": "owner"}


def facts(scenario: Scenario) -> ClusterFacts:
    return ClusterFacts(scenario.events, scenario.policy, float(scenario.now))


def empty(scenario: Scenario, count: int = 1, only: set[str] | None = None, **limits: object) -> Relocation:
    eligible = frozenset(only) if only is not None else None
    return plan(facts(scenario), EmptyNodes(count, eligible), RelocationLimits(**limits))  # type: ignore[arg-type]


def room(scenario: Scenario, gang: str, **limits: object) -> Relocation:
    return plan(facts(scenario), RoomFor(GangKey(NAMESPACE, gang), f"gang {gang}"), RelocationLimits(**limits))  # type: ignore[arg-type]


def moves(answer: Relocation) -> dict[str, tuple[str, str]]:
    return {move.name: (move.source, move.target) for move in answer.moves}


def on(
    scenario: Scenario, node: str, *names: str, cpu: int = 1, priority: int = 0, more: object = None
) -> Scenario:
    """Add running pods that their controller would create again."""
    for name in names:
        scenario.pod(name, node=node, cpu=cpu, priority=priority, more={**KEPT, **(more or {})})  # type: ignore[dict-item]
    return scenario


def three_nodes() -> Scenario:
    """Nodes of four CPUs each, of which one, two and three are used."""
    scenario = Scenario().nodes(3, cpu=4)
    on(scenario, "n1", "a1")
    on(scenario, "n2", "b1", "b2")
    return on(scenario, "n3", "c1", "c2", "c3")


class TestEmptyingNodes:
    def test_node_with_the_least_usage_is_emptied(self) -> None:
        answer = empty(three_nodes())
        assert answer.reached
        assert answer.freed == ["n1"]
        assert list(moves(answer)) == ["a1"]

    def test_targets_of_moves_are_chosen_by_the_schedulers_own_scores(self) -> None:
        answer = empty(three_nodes())
        assert moves(answer)["a1"] == ("n1", "n2")  # nodeorder prefers the emptier node

    def test_pods_of_two_nodes_are_moved_to_the_third(self) -> None:
        scenario = three_nodes().node("n3", cpu=8)
        answer = empty(scenario, 2)
        assert sorted(answer.freed) == ["n1", "n2"]
        assert {target for _, target in moves(answer).values()} == {"n3"}
        assert answer.held == answer.freed

    def test_empty_nodes_count_towards_the_goal(self) -> None:
        answer = empty(three_nodes().node("n4", cpu=4))
        assert (answer.reached, answer.free, answer.moves) == (True, ["n4"], [])
        assert empty(three_nodes().node("n4", cpu=4), 2).freed == ["n1"]

    def test_daemon_set_pods_do_not_keep_a_node_from_being_empty(self) -> None:
        scenario = three_nodes().pod("agent", node="n1", cpu=1, more={"fixture": True})
        assert list(moves(empty(scenario))) == ["a1"]
        assert empty(scenario.gone("a1")).free == ["n1"]

    def test_only_eligible_nodes_are_emptied(self) -> None:
        answer = empty(three_nodes(), only={"n2", "n3"})
        assert answer.freed == ["n2"]

    def test_cordoned_node_does_not_count_as_an_empty_node(self) -> None:
        assert empty(three_nodes().node("n1", cpu=4, unschedulable=True).node("n3", cpu=8)).freed == ["n2"]

    def test_no_plan_exists_where_the_pods_fit_nowhere_else(self) -> None:
        answer = empty(three_nodes(), 2)
        assert (answer.reached, answer.moves) == (False, [])
        assert answer.message == "only 1 of 2 nodes can be empty"
        assert RelocationObstacle("n2", "ns/b1", "fits on no other node") in answer.obstacles

    def test_pods_are_packed_so_that_they_fit(self) -> None:
        """Two large and two small pods; only one packing leaves a node empty."""
        scenario = Scenario().node("n1", cpu=4).node("n2", cpu=4).node("n3", cpu=5)
        on(scenario, "n1", "big", cpu=3)
        on(scenario, "n2", "tall", cpu=2)
        on(scenario, "n3", "low", cpu=2)
        answer = empty(scenario)
        assert answer.reached
        assert moves(answer) in ({"tall": ("n2", "n3")}, {"low": ("n3", "n2")}, {"big": ("n1", "n3")})

    def test_no_pod_is_moved_to_a_node_that_is_to_be_emptied(self) -> None:
        scenario = Scenario().nodes(6, cpu=4)
        for number in range(1, 7):
            on(scenario, f"n{number}", f"p{number}")
        answer = empty(scenario, 4)
        assert len(answer.freed) == 4
        assert not {target for _, target in moves(answer).values()} & set(answer.freed)

    def test_no_pod_is_moved_to_an_empty_node_that_counts(self) -> None:
        """Two nodes are empty and two half full: two can be empty in the end, whichever pods are moved."""
        scenario = Scenario().nodes(4, cpu=8)
        on(scenario, "n3", "a", "b", "c", "d", cpu=2)
        on(scenario, "n4", "e", "f", "g", "h", cpu=2)
        answer = empty(scenario, 3)
        assert not answer.reached
        assert answer.message == "only 2 of 3 nodes can be empty"

    def test_node_with_unmovable_pods_is_exchanged_for_a_cheaper_one(self) -> None:
        """The node with the fewest pods has pods that fit nowhere else; the plan uses another node."""
        scenario = Scenario().node("n1", cpu=8).node("n2", cpu=4).node("n3", cpu=4)
        on(scenario, "n1", "huge", cpu=7)
        on(scenario, "n2", "x1", "x2")
        on(scenario, "n3", "y1", "y2")
        answer = empty(scenario)
        assert (answer.reached, answer.freed) == (True, ["n2"])


class TestExcludedPods:
    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"controller": ""}, "has no controller that would recreate it"),
            ({"preemptable": False}, "is marked as not preemptable"),
            ({"critical": True}, "is critical to the cluster"),
        ],
    )
    def test_pods_that_cannot_be_evicted_are_not_moved(self, fields: dict[str, object], reason: str) -> None:
        scenario = Scenario().nodes(2, cpu=4)
        on(scenario, "n1", "stays", more=fields)
        on(scenario, "n2", "b1", "b2")
        answer = empty(scenario)
        assert answer.freed == ["n2"]
        on(scenario, "n2", "too", more=fields)
        answer = empty(scenario)
        assert not answer.reached
        assert [(entry.node, entry.pod) for entry in answer.obstacles] == [("n1", "ns/stays"), ("n2", "ns/too")]
        assert answer.obstacles[0].reason == reason

    def test_members_of_the_quorum_of_a_gang_are_not_moved(self) -> None:
        scenario = Scenario().nodes(2, cpu=4).gang("g", 2)
        for name, node in (("g-0", "n1"), ("g-1", "n2")):
            scenario.pod(name, gang="g", node=node, cpu=1, more=KEPT)
        answer = empty(scenario)
        assert not answer.reached
        assert answer.obstacles[0].reason == "is one of the 2 required members of its gang"

    def test_gang_is_moved_as_a_whole_where_the_policy_allows_it(self) -> None:
        scenario = Scenario().nodes(3, cpu=4).gang("g", 2)
        for name in ("g-0", "g-1"):
            scenario.pod(name, gang="g", node="n1", cpu=1, more=KEPT)
        on(scenario, "n2", *(f"b{n}" for n in range(3)))
        on(scenario, "n3", *(f"c{n}" for n in range(3)))
        answer = empty(scenario, whole_gangs=True)
        assert (answer.freed, answer.cost.gangs) == (["n1"], 1)
        assert all(move.whole and move.gang == "ns/g" for move in answer.moves)

    def test_surplus_members_move_singly(self) -> None:
        scenario = Scenario().nodes(2, cpu=4).gang("g", 2)
        for name, node in (("g-0", "n1"), ("g-1", "n2"), ("g-2", "n2")):
            scenario.pod(name, gang="g", node=node, cpu=1, more=KEPT)
        answer = empty(scenario)
        assert list(moves(answer)) == ["g-0"]
        assert not answer.moves[0].whole

    def test_moves_per_gang_stay_within_the_limit(self) -> None:
        scenario = Scenario().nodes(2, cpu=8).gang("g", 1)
        for number in range(3):
            scenario.pod(f"g-{number}", gang="g", node="n1", cpu=1, more=KEPT)
        on(scenario, "n2", *(f"b{n}" for n in range(5)))
        assert empty(scenario, only={"n1"}).reached
        answer = empty(scenario, only={"n1"}, per_gang=2)
        assert answer.obstacles[0].reason == "belongs to a gang with more than 2 members to move"

    def test_moves_of_pods_stay_within_the_limit(self) -> None:
        scenario = three_nodes()
        assert empty(scenario, only={"n3"}, evictions=3).reached
        answer = empty(scenario, only={"n3"}, evictions=2)
        assert answer.obstacles == [RelocationObstacle("n3", "", "more than 2 pods would have to move")]

    def test_no_disruption_budget_is_broken_by_a_plan(self) -> None:
        scenario = Scenario().nodes(2, cpu=4)
        on(scenario, "n1", "web-0", "web-1", more={"budgets": ("web",)})
        on(scenario, "n2", "b0", "b1", "b2")
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "web", allowed=1)))
        answer = empty(scenario, only={"n1"})
        assert "PodDisruptionBudget" in answer.obstacles[0].reason
        scenario.observe("budget", DisruptionBudgetUpdated(DisruptionBudget("ns", "web", allowed=2)))
        assert not empty(scenario, only={"n1"}).reached  # two do not fit beside the three
        assert empty(scenario.gone("b0"), only={"n1"}).reached

    def test_no_budget_of_a_gang_is_broken_by_a_plan(self) -> None:
        scenario = Scenario().nodes(2, cpu=8).gang("g", 1, max_unavailable=Portion(1))
        for number in range(2):
            scenario.pod(f"g-{number}", gang="g", node="n1", cpu=1, more=KEPT)
        on(scenario, "n2", "b0", "b1", "b2")
        assert "permits 1 missing member" in empty(scenario, only={"n1"}).obstacles[0].reason

    def test_pods_that_fit_no_other_node_are_not_moved(self) -> None:
        scenario = Scenario().node("n1", cpu=4, labels={"disk": "ssd"}).node("n2", cpu=4)
        bound = PodClass(node_selector=(("disk", "ssd"),))
        scenario.pod("bound", node="n1", cpu=1, pod_class=bound, more=KEPT)
        on(scenario, "n2", "b0", "b1")
        answer = empty(scenario, only={"n1"})
        assert answer.obstacles == [RelocationObstacle("n1", "ns/bound", "fits on no other node")]

    def test_pods_that_would_return_despite_taints_are_not_moved(self) -> None:
        scenario = Scenario().nodes(2, cpu=4)
        bold = PodClass(tolerations=(Toleration(operator="Exists"),))
        scenario.pod("bold", node="n1", cpu=1, pod_class=bold, more=KEPT)
        on(scenario, "n2", "b0", "b1", "b2")
        answer = empty(scenario, only={"n1"})
        assert not answer.reached
        assert "returns to its node" in answer.message


class TestProof:
    def test_plan_is_valid_only_if_the_scheduler_itself_carries_it_out(self) -> None:
        """Best fit would succeed, but the scheduler spreads: no plan is returned."""
        scenario = Scenario().node("n1", cpu=4).node("n2", cpu=3).node("n3", cpu=3)
        on(scenario, "n1", "one")
        on(scenario, "n1", "three", cpu=3)
        answer = empty(scenario, only={"n1"})
        assert answer.reached
        assert sorted(target for _, target in moves(answer).values()) == ["n2", "n3"]

    def test_plan_is_invalid_where_a_waiting_unit_of_higher_rank_gets_the_room(self) -> None:
        """The quota that the move frees would be used by other pods first."""
        queue = AccountKey(Tree.QUEUE, "small")
        scenario = Scenario().nodes(2, cpu=4).account(queue, capability={"cpu": 1})
        scenario.pod("runs", node="n1", cpu=1, queue="small", more=KEPT)
        scenario.pod("first", cpu=1, queue="small", priority=10)
        on(scenario, "n2", "b0")
        answer = empty(scenario, only={"n1"})
        assert not answer.reached
        assert answer.message.startswith("in a dry run pod ns/runs was not placed")

    def test_equal_clusters_get_equal_plans(self) -> None:
        scenario = three_nodes()
        assert msgspec.json.encode(empty(scenario)) == msgspec.json.encode(empty(scenario))

    def test_planning_does_not_change_the_cluster(self) -> None:
        scenario = three_nodes()
        version = scenario.state.version
        empty(scenario)
        assert scenario.state.version == version
        assert scenario.run().evicted == []


class TestRoomForAGang:
    def fragmented(self) -> Scenario:
        """Three nodes of four CPUs with one used on each: no node has four free."""
        scenario = Scenario().nodes(3, cpu=4)
        for number in (1, 2, 3):
            on(scenario, f"n{number}", f"p{number}")
        return scenario

    def test_pod_is_moved_to_free_a_whole_node(self) -> None:
        scenario = self.fragmented().job("big", 1, cpu=4)
        answer = room(scenario, "big")
        assert answer.reached
        assert len(answer.moves) == 1
        assert [placement.pod for placement in answer.placements] == ["ns/big-0"]
        assert answer.placements[0].node == answer.moves[0].source

    def test_pods_are_moved_for_a_gang_of_two(self) -> None:
        answer = room(self.fragmented().job("big", 2, cpu=4), "big")
        assert len(answer.moves) == 2
        assert len({placement.node for placement in answer.placements}) == 2

    def test_no_plan_exists_for_a_gang_of_three_that_fits_after_no_moves(self) -> None:
        answer = room(self.fragmented().job("big", 3, cpu=4), "big")
        assert not answer.reached
        assert answer.message == "no room can be made for the 3 pods that gang big needs"
        assert {entry.reason for entry in answer.obstacles} <= {
            "fits on no other node",
            "other pods would have moved there",
        }

    def test_members_use_free_room_before_pods_are_moved(self) -> None:
        scenario = self.fragmented().node("n4", cpu=4).job("big", 2, cpu=4)
        answer = room(scenario, "big")
        assert len(answer.moves) == 1
        assert "n4" in {placement.node for placement in answer.placements}
        assert answer.moves[0].target != "n4"

    def test_plan_moves_as_few_pods_as_possible(self) -> None:
        scenario = Scenario().node("many", cpu=4).node("one", cpu=4).node("spare", cpu=2)
        on(scenario, "many", "m1", "m2")
        on(scenario, "one", "o1", cpu=2)
        on(scenario, "spare", "s1", cpu=0)
        answer = room(scenario.job("big", 1, cpu=4), "big")
        assert list(moves(answer)) == ["o1"]

    def test_pods_of_lower_priority_are_moved_first(self) -> None:
        scenario = Scenario().node("n1", cpu=4).node("n2", cpu=1)
        on(scenario, "n1", "dear", priority=10)
        on(scenario, "n1", "cheap")
        answer = room(scenario.job("big", 1, cpu=3), "big")
        assert list(moves(answer)) == ["cheap"]

    def test_no_pod_is_moved_for_surplus_members(self) -> None:
        scenario = self.fragmented().job("big", 2, minimum=1, cpu=4)
        assert len(room(scenario, "big").moves) == 1

    def test_plan_makes_room_for_the_minimum_of_each_role(self) -> None:
        scenario = self.fragmented().gang("big", 1, roles=(("ps", 1),))
        scenario.pod("ps", gang="big", role="ps", cpu=4).pod("worker", gang="big", role="worker", cpu=1)
        answer = room(scenario, "big")
        assert "ns/ps" in {placement.pod for placement in answer.placements}
        assert len(answer.moves) == 1

    def test_pods_are_moved_for_a_single_pod(self) -> None:
        scenario = self.fragmented().pod("big", cpu=4)
        answer = plan(facts(scenario), RoomFor("big", "pod big"), RelocationLimits())
        assert (answer.reached, len(answer.moves)) == (True, 1)

    def test_unit_that_does_not_wait_needs_no_plan(self) -> None:
        scenario = self.fragmented().job("small", 1, cpu=1)
        answer = room(scenario, "small")
        assert (answer.reached, answer.moves) == (True, [])
        assert "does not wait" in answer.message

    def test_no_plan_exists_for_a_gang_that_a_quota_blocks(self) -> None:
        scenario = self.fragmented().queue("small", capability={"cpu": 2}).job("big", 1, cpu=4, queue="small")
        answer = room(scenario, "big")
        assert not answer.reached
        assert answer.message.startswith("in a dry run gang big was not placed: ")
        assert "queue small" in answer.message

    def test_plan_stays_within_the_budget_of_moves(self) -> None:
        scenario = self.fragmented().job("big", 2, cpu=4)
        assert not room(scenario, "big", evictions=1).reached
        assert room(scenario, "big", evictions=2).reached

    def test_gang_is_not_broken_for_another_gang(self) -> None:
        scenario = Scenario().nodes(2, cpu=4).job("rigid", 2, cpu=1, more=KEPT).run()
        assert scenario.spread() == {"n1": 1, "n2": 1}
        answer = room(scenario.job("big", 1, cpu=4), "big")
        assert not answer.reached
        assert "required members of its gang" in answer.obstacles[0].reason
        assert room(scenario, "big", whole_gangs=True).cost.gangs == 1

    def test_plan_respects_taints(self) -> None:
        scenario = self.fragmented().node("n4", cpu=4, taints=[Taint("gpu", "", "NoSchedule")])
        answer = room(scenario.job("big", 1, cpu=4), "big")
        assert (answer.reached, len(answer.moves)) == (True, 1)
        assert answer.moves[0].target != "n4"


NAMES = ("n1", "n2", "n3", "n4")


class TestDomains:
    RACK = TopologyRule.by_label("rack")

    def racks(self) -> Scenario:
        """Racks a (two nodes) and b (one node) of four CPUs each."""
        scenario = Scenario()
        for name in ("a1", "a2", "b1"):
            scenario.node(name, cpu=4, labels={"rack": name[0]})
        return scenario

    def test_plan_makes_room_within_one_domain(self) -> None:
        scenario = on(on(self.racks(), "a1", "x", cpu=2), "a2", "y", cpu=1)
        scenario.gang("job", 2, topology=self.RACK).pods("job", 2, gang="job", cpu=4).work()
        assert moves(room(scenario, "job")) == {"x": ("a1", "b1"), "y": ("a2", "b1")}

    def test_no_plan_exists_where_no_domain_fits_the_whole_gang(self) -> None:
        scenario = on(self.racks(), "a1", "x", cpu=2)
        scenario.gang("job", 3, topology=self.RACK).pods("job", 3, gang="job", cpu=4).work()
        assert not room(scenario, "job").reached

    def test_members_that_share_a_domain_are_not_moved_singly(self) -> None:
        scenario = self.racks().gang("near", 1, topology=self.RACK)
        scenario.pod("x", node="a1", gang="near", cpu=1, more=KEPT)
        answer = empty(scenario, 1, {"a1"})
        assert not answer.reached
        assert "must stay in one topology domain with its gang" in str(answer)


@st.composite
def clusters(draw: st.DrawFn) -> Scenario:
    """Up to four nodes with pods and gangs in a reachable state, some of them not movable."""
    scenario = Scenario()
    for name in NAMES[: draw(st.integers(2, 4))]:
        scenario.node(name, cpu=draw(st.integers(3, 6)), labels={"even": str(int(name[1]) % 2 == 0)})
    for number in range(draw(st.integers(1, 2))):
        scenario.gang(f"g{number}", draw(st.integers(1, 3)))
    for number in range(draw(st.integers(2, 12))):
        node, cpu = draw(st.sampled_from(NAMES)), draw(st.integers(1, 2))
        row = scenario.state.nodes.row(node)
        if row < 0 or scenario.state.nodes.idle[1, row] < cpu * 1000:
            continue
        gang = draw(st.sampled_from(["", "g0", "g1"]))
        known = GangKey(NAMESPACE, gang) in scenario.state.gangs
        picky = PodClass(node_selector=(("even", str(int(node[1]) % 2 == 0)),))
        scenario.pod(
            f"p{number}",
            node=node,
            cpu=cpu,
            gang=gang if known else "",
            priority=draw(st.sampled_from([0, 5])),
            pod_class=draw(st.sampled_from([None, None, picky])),
            more={
                "controller": "owner" if draw(st.integers(0, 15)) else "",
                "fixture": draw(st.integers(0, 15)) == 0,
            },
        )
    return scenario


@pytest.mark.thorough
@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.integers(1, 2), st.booleans())
def test_every_plan_can_be_carried_out(scenario: Scenario, more: int, whole: bool) -> None:
    count = len(empty(scenario, 1, evictions=0).free) + more
    answer = empty(scenario, count, whole_gangs=whole)
    if not answer.reached:
        assert answer.moves == []
        return
    state = scenario.state
    targets = {move.uid: move for move in answer.moves}
    assert len(targets) == len(answer.moves)
    for gang in state.gangs.values():
        assert gang.spec is not None
        here = [uid for uid, member in gang.members.items() if member.pod.node]
        left = [uid for uid in here if uid not in targets]
        if len(left) < len(here) and gang.spec.min_member > 1:
            assert len(left) >= gang.spec.min_member or (whole and not left)
    used = dict.fromkeys(NAMES, 0)
    for uid, record in state.pods.items():
        pod, move = record.pod, targets.get(uid)
        if move is not None:
            assert (pod.controlled, pod.fixture, move.source) == (True, False, pod.node)
            assert move.target not in answer.freed
            assert pod.pod_class.node_selector in ((), (("even", str(int(move.target[1]) % 2 == 0)),))
        elif pod.node in (*answer.freed, *answer.free):
            assert pod.fixture
        used[pod.node if move is None else move.target] += dict(pod.usage).get("cpu", 0)
    assert all(node is None or used[node.name] <= dict(node.allocatable)["cpu"] for node in state.nodes.nodes)
    assert len(answer.freed) + len(answer.free) >= count
