"""Moves of gangs that were placed in the same cycle, so that one more gang fits."""

from __future__ import annotations

from typing import Any

import pytest

from phalanx.model.events import HyperNodeUpdated
from phalanx.model.peers import NO_PEERS, Peers, PeerTerm, PodSelection, PreferredPeers, Spread
from phalanx.model.pod import PodClass
from phalanx.model.selectors import HostPort, NodeSelectorTerm, PreferredTerm, Requirement
from phalanx.model.topology import HyperNode, HyperNodeMember, TopologyRule
from phalanx.scheduling.units import repair

from ..scenario import NAMESPACE, Scenario

SPREADING = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: overcommit}, {name: predicates}, {name: nodeorder}]}]
"""
HOST = "kubernetes.io/hostname"
IN_ONE_TIER = TopologyRule(hypernodes=True, highest_tier=2)


def spread_and_large(**fields: Any) -> Scenario:
    """The first gang spreads over both nodes, and leaves no node with room for the pod of the second gang."""
    scenario = Scenario(SPREADING).nodes(2, cpu=4)
    scenario.job("spread", 2, cpu=1, priority=10, **fields)
    return scenario.job("large", 1, cpu=4)


def test_gang_moves_to_make_room_for_a_later_one_in_the_same_cycle() -> None:
    scenario = spread_and_large()
    plan = scenario.cycle()
    assert len(plan.binds) == 3
    nodes = {bind.name: bind.node for bind in plan.binds}
    assert nodes["spread-0"] == nodes["spread-1"] != nodes["large-0"]
    assert {uid: scenario.where(uid) for uid in nodes} == nodes


def test_gang_that_is_bound_does_not_move() -> None:
    scenario = Scenario(SPREADING).nodes(2, cpu=4).job("spread", 2, cpu=1, priority=10).run()
    before = scenario.spread("spread")
    scenario.job("large", 1, cpu=4).run()
    assert scenario.spread("spread") == before
    assert scenario.placed("large") == []


@pytest.mark.parametrize(("second_disk", "moves"), [("hdd", False), ("ssd", True)])
def test_gang_moves_only_between_nodes_that_it_prefers_equally(second_disk: str, moves: bool) -> None:
    term = NodeSelectorTerm((Requirement("disk", "In", ("ssd",)),))
    preferring = PodClass(preferred=(PreferredTerm(100, term),))
    scenario = Scenario(SPREADING)
    scenario.node("n1", cpu=4, labels={"disk": "ssd"}).node("n2", cpu=1, labels={"disk": second_disk})
    scenario.job("first", 1, cpu=1, priority=10, pod_class=preferring).job("large", 1, cpu=4).run()
    assert scenario.where("first-0") == ("n2" if moves else "n1")
    assert bool(scenario.placed("large")) == moves


LEADERS = PodSelection((Requirement("app", "In", ("leader",)),), (NAMESPACE,))
BESIDE = PeerTerm(LEADERS, HOST)


def leader_and_large(leader: Peers, follower: Peers) -> Scenario:
    """The leader has to leave the first node, so that the large gang fits beside the small follower."""
    scenario = Scenario(SPREADING)
    for name, cpu in (("n1", 41), ("n2", 20)):
        scenario.node(name, cpu=cpu, labels={HOST: name})
    app = {"labels": (("app", "leader"),)}
    scenario.job("leader", 1, cpu=10, priority=20, pod_class=PodClass(peers=leader), more=app)
    scenario.pod("follower", cpu=1, priority=10, pod_class=PodClass(peers=follower))
    return scenario.job("large", 1, cpu=40).run()


def test_gang_without_rules_about_other_pods_moves() -> None:
    assert leader_and_large(NO_PEERS, NO_PEERS).placed("large")


@pytest.mark.parametrize(
    "follower",
    [
        Peers(affinity=(BESIDE,)),
        Peers(preferred=(PreferredPeers(BESIDE, 100),)),
        Peers(spread=(Spread(LEADERS, HOST, required=False),)),
        Peers(spread=(Spread(LEADERS, HOST),)),
    ],
    ids=["affinity", "preferred", "soft-spread", "spread"],
)
def test_gang_does_not_move_if_another_pod_has_a_rule_about_it(follower: Peers) -> None:
    scenario = leader_and_large(NO_PEERS, follower)
    assert scenario.where("leader-0") == "n1"
    assert scenario.where("follower")
    assert scenario.placed("large") == []


@pytest.mark.parametrize(
    "leader",
    [Peers(preferred=(PreferredPeers(BESIDE, 100),)), Peers(spread=(Spread(LEADERS, HOST, required=False),))],
    ids=["preferred", "soft-spread"],
)
def test_gang_with_a_preference_about_other_pods_does_not_move(leader: Peers) -> None:
    assert leader_and_large(leader, NO_PEERS).placed("large") == []


@pytest.mark.parametrize(("other_cpu", "moves"), [(1, False), (2, True)])
def test_gang_does_not_move_to_a_wider_domain(other_cpu: int, moves: bool) -> None:
    """Another tier-1 domain with two cpu can hold the gang as a whole; one with one cpu cannot."""
    scenario = Scenario(SPREADING)
    for name, members in (("ra", ("^a",)), ("rb", ("^b",))):
        domain = HyperNode(name, 1, members=tuple(HyperNodeMember(pattern=pattern) for pattern in members))
        scenario.observe(f"hypernode {name}", HyperNodeUpdated(domain))
    spine = HyperNode("s", 2, members=(HyperNodeMember(True, "ra"), HyperNodeMember(True, "rb")))
    scenario.observe("hypernode s", HyperNodeUpdated(spine))
    scenario.node("a1", cpu=4).node("a2", cpu=1).node("b1", cpu=other_cpu)
    scenario.gang("near", 2, topology=IN_ONE_TIER).pods("near", 2, gang="near", cpu=1, priority=10)
    scenario.job("large", 1, cpu=4).run()
    racks = {scenario.where(f"near-{number}")[0] for number in range(2)}
    assert racks == ({"b"} if moves else {"a"})
    assert bool(scenario.placed("large")) == moves


def test_gang_of_higher_rank_stays_placed_if_no_moves_suffice() -> None:
    scenario = Scenario(SPREADING).nodes(2, cpu=4).job("spread", 2, cpu=3, priority=10).job("large", 1, cpu=4)
    scenario.run()
    assert len(scenario.placed("spread")) == 2
    assert scenario.placed("large") == []


def test_gang_with_host_ports_is_placed_with_moves_of_gangs_without_devices() -> None:
    scenario = Scenario(SPREADING).nodes(2, cpu=4).job("spread", 2, cpu=1, priority=10)
    scenario.job("large", 1, pod_class=PodClass(host_ports=(HostPort(80),)), cpu=4).run()
    assert len(scenario.placed()) == 3


def test_gang_with_host_ports_does_not_move() -> None:
    assert spread_and_large(pod_class=PodClass(host_ports=(HostPort(80),))).run().placed("large") == []


def test_cycle_in_which_everything_fits_searches_no_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> bool:
        raise AssertionError("moves were searched")

    monkeypatch.setattr("phalanx.scheduling.units.turn.place_with_moves", fail)
    scenario = Scenario(SPREADING).nodes(2, cpu=4).job("a", 2, cpu=1).job("b", 2, cpu=1).run()
    assert len(scenario.placed()) == 4


def test_cycle_searches_no_moves_beyond_its_work_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "_MOST_WORK", 0)
    assert spread_and_large().run().placed("large") == []


def test_moved_gang_keeps_the_charges_of_its_queue() -> None:
    policy = SPREADING.replace("{name: predicates}", "{name: predicates}, {name: capacity}")
    scenario = Scenario(policy).queue("q", capability={"cpu": 6}).nodes(2, cpu=4)
    scenario.job("spread", 2, cpu=1, priority=10, queue="q").job("large", 1, queue="q", cpu=4).run()
    assert len(scenario.placed()) == 3
    scenario.job("more", 1, cpu=1, queue="q").node("n3", cpu=4).run()
    assert scenario.placed("more") == []


def test_gang_that_borrows_is_placed_with_moves_in_its_later_turn() -> None:
    policy = """
actions: "enqueue, allocate, reclaim, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: overcommit}, {name: predicates}, {name: capacity},
  {name: nodeorder}]}]
"""
    scenario = Scenario(policy).queue("a", deserved={"cpu": 4}).queue("b", deserved={"cpu": 4}).nodes(2, cpu=4)
    scenario.job("spread", 2, cpu=1, priority=10, queue="a").job("large", 1, cpu=4, queue="a")
    scenario.job("other", 1, cpu=1, queue="b").run()
    assert len(scenario.placed()) == 4


def test_gang_without_gpus_moves_to_a_node_with_gpus_that_pods_avoid_by_default() -> None:
    scenario = Scenario(SPREADING).node("n1", cpu=4).node("n2", cpu=1, gpu=8)
    scenario.job("first", 1, cpu=1, priority=10).job("large", 1, cpu=4).run()
    assert scenario.where("first-0") == "n2"
    assert scenario.where("large-0") == "n1"
