"""Pods with inter-pod rules: a run of them gets the same nodes as its pods one by one."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.peers import Peers, PeerTerm, PodSelection, PreferredPeers, Spread
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.model.selectors import Requirement, Toleration
from phalanx.scheduling.framework.plugin_runtime import PluginRuntime
from phalanx.scheduling.placement.placer import Placer, build_placer
from phalanx.scheduling.policy.loader import load_policy

ZONE, RACK, HOST = "zone", "rack", "kubernetes.io/hostname"
KEYS = (ZONE, RACK, HOST)
POLICIES = (
    "{name: nodeorder}",
    "{name: binpack}",
    "{name: nodeorder, arguments: {podaffinity.weight: 7}}, {name: binpack}",
)


def meaning(app: str) -> PodSelection:
    return PodSelection((Requirement("app", "In", (app,)),), ("ns",))


@st.composite
def statements(draw: st.DrawFn) -> Peers:
    """Inter-pod rules over few labels, so that they match existing pods."""

    def term() -> PeerTerm:
        return PeerTerm(meaning(draw(st.sampled_from(["a", "b"]))), draw(st.sampled_from(KEYS)))

    spread = tuple(
        Spread(
            meaning(draw(st.sampled_from(["a", "a", "b"]))),
            key,
            max_skew=draw(st.integers(1, 3)),
            min_domains=draw(st.sampled_from([1, 1, 4])),
            required=required,
            lenient=not required and draw(st.booleans()),
            affinity=draw(st.booleans()),
            taints=draw(st.booleans()),
        )
        for key in draw(st.lists(st.sampled_from(KEYS), max_size=2, unique=True))
        for required in [draw(st.booleans())]
    )
    return Peers(
        affinity=tuple(term() for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2])))),
        anti=tuple(term() for _ in range(draw(st.sampled_from([0, 0, 1])))),
        preferred=tuple(
            PreferredPeers(term(), draw(st.sampled_from([-100, -3, 1, 50]))) for _ in range(draw(st.integers(0, 2)))
        ),
        spread=spread,
    )


class World:
    def __init__(self, seed: int, peers: Peers, others: list[Peers]) -> None:
        self.draw = draw = random.Random(seed)
        self.state = ClusterState()
        for number in range(draw.randint(2, 24)):
            self.state.apply(NodeUpdated(self._node(number)))
        for number in range(draw.randint(0, 12)):
            self._add(f"old{number}", draw.choice("abc"), draw.choice(others), f"n{draw.randint(0, 24)}")
        for number in range(40):
            self._add(f"new{number}", "a", peers, "")

    def _node(self, number: int) -> Node:
        draw = self.draw
        labels = {HOST: f"n{number}"} if draw.random() < 0.95 else {}
        if draw.random() < 0.9:
            labels[ZONE] = draw.choice("xyz")
        if draw.random() < 0.9:
            labels[RACK] = f"r{draw.randint(0, 5)}"
        if draw.random() < 0.5:
            labels["disk"] = "fast"
        offered = {"cpu": draw.choice([1000, 2000, 4000]), "memory": 8, "pods": draw.choice([2, 110])}
        return Node(f"n{number}", allocatable=requests_of(offered), labels=tuple(sorted(labels.items())))

    def _add(self, name: str, app: str, peers: Peers, node: str) -> None:
        draw = self.draw
        selector = (("disk", "fast"),) if name.startswith("new") and self.picky else ()
        cls = PodClass(
            requests=requests_of({"cpu": 500}),
            scored_cpu=500,
            scored_memory=1,
            peers=peers,
            node_selector=selector,
            tolerations=(Toleration("", "Exists"),),
        )
        self.state.apply(
            PodUpdated(
                Pod(
                    "ns",
                    name,
                    name,
                    cls,
                    labels=(("app", app),),
                    scheduler="phalanx",
                    node=node,
                    phase=PodPhase.RUNNING if node else PodPhase.PENDING,
                    terminating=bool(node) and draw.random() < 0.2,
                )
            )
        )

    @property
    def picky(self) -> bool:
        return len(self.state.nodes) % 3 == 0

    def waiting(self) -> list[PodRecord]:
        return [self.state.pods[f"new{number}"] for number in range(40)]


def placed(state: ClusterState, placer: Placer, waiting: list[PodRecord], most: int) -> list[int]:
    """Return the nodes of the pods if at most this number is placed at a time; undo the placement."""
    transaction = state.transaction()
    rows: list[int] = []
    cls = waiting[0].pod_class
    while len(rows) < len(waiting):
        found = placer.place(cls, min(most, len(waiting) - len(rows)))
        if not found:
            break
        transaction.place(cls, waiting[len(rows) : len(rows) + len(found)], found)
        rows += found
    transaction.rollback()
    return rows


def counts(state: ClusterState, cls: ClassRecord) -> list[list[int]]:
    return [each.counts.tolist() for each in cls.affinity_state(state.nodes.affinity).counters()]


@pytest.mark.slow
@given(seed=st.integers(0, 2**32), peers=statements(), other=statements(), policy=st.sampled_from(POLICIES))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_run_of_pods_is_placed_as_its_pods_would_be_one_by_one(
    seed: int, peers: Peers, other: Peers, policy: str
) -> None:
    world = World(seed, peers, [Peers(), peers, other])
    plugin_runtime = PluginRuntime(
        load_policy(f"actions: allocate\ntiers: [{{plugins: [{{name: predicates}}, {policy}]}}]")
    )
    waiting = world.waiting()
    one_by_one = placed(world.state, build_placer(plugin_runtime, world.state.nodes), waiting, 1)
    placer = build_placer(plugin_runtime, world.state.nodes)
    room, before = (
        placer.total_copies(waiting[0].pod_class),
        counts(world.state, waiting[0].pod_class) if peers != Peers() else [],
    )
    assert placed(world.state, placer, waiting, 40) == one_by_one
    assert len(one_by_one) <= room
    if before:
        assert counts(world.state, waiting[0].pod_class) == before
