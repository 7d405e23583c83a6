"""Nodes that already have a pod's images, and nodes with the features that it needs."""

from __future__ import annotations

import numpy as np
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeRemoved, NodeUpdated
from phalanx.model.node import Node
from phalanx.model.pod import PodClass
from phalanx.scheduling.framework.arguments import Arguments
from phalanx.scheduling.framework.errors import PolicyError
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.plugins.nodes.nodeorder import NodeOrder
from phalanx.scheduling.plugins.nodes.predicates import Predicates

MIB = 2**20
CUDA = "cuda:12"
ONLY_IMAGES = {
    f"{name}.weight": 0
    for name in ("leastrequested", "nodeaffinity", "balancedresource", "tainttoleration", "podaffinity")
} | {"podtopologyspread.weight": 0}


def node(name: str, **images: int) -> Node:
    """Image sizes in MiB; `cuda` is short for cuda:12."""
    sizes = tuple(sorted((f"{image}:12", size * MIB) for image, size in images.items()))
    return Node(name, allocatable=(("cpu", 8000), ("pods", 110)), images=sizes)


class Cluster:
    def __init__(self, *nodes: Node) -> None:
        self.state = ClusterState()
        self.add(*nodes)
        plugin = NodeOrder(Arguments("nodeorder", ONLY_IMAGES))
        self.placer = Placer(self.state.nodes, [], [plugin], [plugin])

    def add(self, *nodes: Node) -> None:
        for each in nodes:
            self.state.apply(NodeUpdated(each))

    def points(self, *images: str) -> dict[str, float]:
        cls = self.state.classes.record(PodClass(requests=(("cpu", 1),), images=tuple(sorted(images))))
        self.state.nodes.widen()
        preference = self.placer.class_view(cls).preference
        rows = np.flatnonzero(self.state.nodes.alive)
        return {self.state.nodes.names[row]: 0.0 if preference is None else preference[row] for row in rows}


def test_node_with_the_image_scores_by_image_size_and_spread() -> None:
    cluster = Cluster(node("big", cuda=1000), node("small", cuda=123), node("none"), node("other", java=900))
    # Half the nodes have it, so it counts half: (500 - 23) of (1000 - 23) MiB, and (61.5 - 23) of the same range.
    assert cluster.points(CUDA) == {"big": 48, "small": 3, "none": 0, "other": 0}


def test_image_on_all_nodes_counts_whole_and_above_the_maximum_no_more() -> None:
    cluster = Cluster(node("a", cuda=3000), node("b", cuda=511))
    assert cluster.points(CUDA) == {"a": 100, "b": 49}


def test_image_below_the_minimum_size_does_not_count() -> None:
    assert Cluster(node("a", cuda=23), node("b")).points(CUDA) == {"a": 0, "b": 0}


def test_each_container_raises_the_maximum_image_size() -> None:
    cluster = Cluster(node("a", cuda=1000, java=1000))
    assert cluster.points(CUDA, "java:12") == {"a": 100}
    assert cluster.points(CUDA, "perl:12") == {"a": 49}
    assert cluster.points(CUDA, CUDA) == {"a": 100}


def test_pulled_image_counts_at_once() -> None:
    cluster = Cluster(node("a"), node("b"))
    assert cluster.points(CUDA) == {"a": 0, "b": 0}
    cluster.add(node("b", cuda=1000))
    assert cluster.points(CUDA) == {"a": 0, "b": 48}
    cluster.state.apply(NodeRemoved("b"))
    cluster.add(node("c"))
    assert cluster.points(CUDA) == {"a": 0, "c": 0}


def test_weight_of_image_locality_applies() -> None:
    with pytest.raises(PolicyError, match="imagelocality"):
        NodeOrder(Arguments("nodeorder", {"imagelocality.weight": "much"}))
    state = ClusterState()
    state.apply(NodeUpdated(node("a", cuda=1000)))
    cls = state.classes.record(PodClass(images=(CUDA,)))
    plugin = NodeOrder(Arguments("nodeorder", ONLY_IMAGES | {"imagelocality.weight": 3}))
    points = plugin.static_score(cls, state.nodes, state.nodes.alive)
    assert points is not None
    assert points[0] == 300


class TestDeclaredFeatures:
    def test_node_must_declare_all_features_that_the_pod_needs(self) -> None:
        state = ClusterState()
        for name, features in (("all", ("A", "B")), ("one", ("A",)), ("none", ())):
            state.apply(NodeUpdated(Node(name, features=features)))
        plugin = Predicates(Arguments("predicates", {}))
        placer = Placer(state.nodes, [plugin], [], [], plugin.node_allocators)
        cls = state.classes.record(PodClass(features=("A", "B")))
        assert [state.nodes.names[row] for row in np.flatnonzero(placer.class_view(cls).mask)] == ["all"]
        ((reason, out),) = [
            part for part in plugin.explain(cls, state.nodes, state.nodes.rows()) if "features" in part[0]
        ]
        assert reason == "node(s) didn't match Pod's required features"
        assert out.tolist() == [False, True, True]

    def test_features_of_an_upgraded_node_count_at_once(self) -> None:
        state = ClusterState()
        state.apply(NodeUpdated(Node("n", allocatable=(("pods", 9),))))
        plugin = Predicates(Arguments("predicates", {}))
        placer = Placer(state.nodes, [plugin], [], [], plugin.node_allocators)
        cls = state.classes.record(PodClass(features=("A",)))
        assert not placer.fits(cls)
        relief = state.capacity_version
        state.apply(NodeUpdated(Node("n", allocatable=(("pods", 9),), features=("A",))))
        assert placer.fits(cls)
        assert state.capacity_version > relief
