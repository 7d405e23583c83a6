"""One vectorised step returns exactly the rows of placing the pods one by one."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.resource_space import FloatArray
from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeRemoved, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.model.resources import requests_of
from phalanx.model.selectors import HostPort, NodeSelectorTerm, PreferredTerm, Requirement, Taint
from phalanx.scheduling.framework.load import Load
from phalanx.scheduling.framework.plugin import overrides
from phalanx.scheduling.framework.plugin_runtime import PluginRuntime
from phalanx.scheduling.placement.class_views import RowArray
from phalanx.scheduling.placement.domain_greedy import NOWHERE
from phalanx.scheduling.placement.placer import Placer, best_rows, build_placer, place_greedily
from phalanx.scheduling.policy.loader import load_policy

POLICIES = {
    "spread": "[{name: predicates}, {name: nodeorder}]",
    "pack": "[{name: predicates}, {name: binpack}]",
    "balanced only": "[{name: predicates}, {name: nodeorder, arguments: {leastrequested.weight: 0}}]",
    "most requested": "[{name: predicates},"
    " {name: nodeorder, arguments: {leastrequested.weight: 0, mostrequested.weight: 3}}]",
    "mixed": "[{name: predicates}, {name: nodeorder, arguments: {tainttoleration.weight: 7}},"
    " {name: binpack, arguments: {binpack.weight: 2, binpack.cpu: 3, binpack.resources: nvidia.com/gpu,"
    " binpack.resources.nvidia.com/gpu: 5}}]",
    "spread GPUs": "[{name: predicates}, {name: nodeorder, arguments: {gpupacking.weight: 0}}]",
    "pack GPUs only": "[{name: predicates}, {name: nodeorder, arguments: {gpupacking.weight: 2,"
    " leastrequested.weight: 0, balancedresource.weight: 0}}]",
    "strategy": "[{name: predicates}, {name: resource-strategy-fit, arguments: {resources:"
    " {cpu: {type: LeastAllocated, weight: 2}, nvidia.com/*: {type: MostAllocated, weight: 3}}}}]",
    "indifferent": "[{name: predicates}]",
    "ports ignored": "[{name: predicates, arguments: {predicate.NodePortsEnable: false}}, {name: nodeorder}]",
    "no filters": "[{name: nodeorder}]",
}


def plugin_runtime(name: str) -> PluginRuntime:
    return PluginRuntime(load_policy(f"actions: allocate\ntiers: [{{plugins: {POLICIES[name]}}}]"))


def one_by_one(state: ClusterState, pipe: PluginRuntime, cls: ClassRecord, count: int) -> list[int]:
    """Place copies one after the other, looking at every node each time; undo all placements at the end."""
    nodes = state.nodes
    rows: list[int] = []
    for _ in range(count):
        score = scores(nodes, pipe, cls)
        best = max(range(nodes.capacity), key=lambda row: (score[row], -row))
        if score[best] == NOWHERE:
            break
        rows.append(best)
        charge(nodes, cls, best, 1)
    for row in rows:
        charge(nodes, cls, row, -1)
    return rows


def scores(nodes: NodeTable, pipe: PluginRuntime, cls: ClassRecord) -> list[float]:
    mask = nodes.alive.copy()
    for plugin in pipe.plugins("filter"):
        mask &= plugin.filter(cls, nodes, slice(None))
    for allocator in (allocator for allocator in cls.allocators if allocator.name in pipe.node_allocators):
        mask &= allocator.copies(cls.spec, slice(None)) > 0
    total = np.zeros(nodes.capacity)
    for plugin in pipe.plugins("score"):
        total = total + plugin.score(cls, Load(cls, nodes, slice(None)))
    extra = np.zeros(nodes.capacity)
    for plugin in pipe.plugins("static_score"):
        part = plugin.static_score(cls, nodes, mask)
        extra = extra if part is None else extra + part
    wanted = dict(cls.spec.requests) | {"pods": 1}
    for row in np.flatnonzero(mask):
        for name, amount in wanted.items():
            if nodes.idle[nodes.space.column(name), row] < amount:
                mask[row] = False
    result: list[float] = np.where(mask, total + extra, NOWHERE).tolist()
    return result


def charge(nodes: NodeTable, cls: ClassRecord, row: int, sign: int) -> None:
    nodes.charge(row, cls.footprint.usage, cls.footprint.scored, sign)
    for allocator in cls.allocators:
        allocator.book(cls.spec.host_ports, row, sign)


def all_at_once(state: ClusterState, placer: Placer, cls: ClassRecord, count: int, keep: bool) -> list[int]:
    """Return the placer's rows, block by block; the placements stay on the arrays if `keep`."""
    found: list[int] = []
    while len(found) < count:
        rows = placer.place(cls, count - len(found))
        if not rows:
            break
        for row in rows:
            charge(state.nodes, cls, row, 1)
        found += rows
    if not keep:
        for row in found:
            charge(state.nodes, cls, row, -1)
    return found


class World:
    """A random cluster that changes all the time. Few distinct amounts, so that ties are the rule."""

    def __init__(self, seed: int, size: int) -> None:
        self.draw = random.Random(seed)
        self.state = ClusterState()
        self.size = size
        for number in range(size):
            self.state.apply(NodeUpdated(self.node(number)))

    def node(self, number: int) -> Node:
        draw = self.draw
        offered = {
            "pods": draw.choice([3, 110]),
            "cpu": draw.choice([0, 4000, 8000, 8000]),
            "memory": draw.choice([8, 16, 16]) * 2**30,
            "nvidia.com/gpu": draw.choice([0, 0, 2, 8, 16]),
        }
        labels = {"zone": draw.choice("abc")} if draw.random() < 0.8 else {}
        taints = [(), (), (Taint("soft", effect="PreferNoSchedule"),), (Taint("hard"),)]
        return Node(
            f"n{number}",
            allocatable=requests_of(offered),
            labels=tuple(labels.items()),
            taints=draw.choice(taints),
            unschedulable=draw.random() < 0.05,
        )

    def pod_class(self) -> PodClass:
        draw = self.draw
        amounts = {"cpu": draw.choice([0, 250, 1000, 3000]), "memory": draw.choice([0, 1, 3]) * 2**30}
        if draw.random() < 0.3:
            amounts["nvidia.com/gpu"] = draw.choice([1, 2, 8])
        preferred = (PreferredTerm(draw.choice([10, 50]), zone(draw.choice("abc"))),)
        return PodClass(
            requests=requests_of(amounts),
            node_selector=draw.choice([(), (), (("zone", "a"),)]),
            affinity=draw.choice([None, None, (zone("a"), zone("b"))]),
            preferred=draw.choice([(), (), preferred, (*preferred, PreferredTerm(7, zone("c")))]),
            host_ports=draw.choice([(), (), (), (HostPort(80),), (HostPort(81, ip="10.0.0.1"),)]),
            scored_cpu=amounts["cpu"] or 100,
            scored_memory=amounts["memory"] or 200 * 2**20,
        )

    def change(self) -> None:
        """Apply another event: nodes are added, changed and removed, pods of other schedulers appear and
        disappear.
        """
        draw = self.draw
        for _ in range(draw.choice([0, 1, 1, 2, 40])):
            number = draw.randrange(self.size + 10)
            happening = draw.random()
            if happening < 0.2:
                self.state.apply(NodeRemoved(f"n{number}"))
            elif happening < 0.6:
                self.state.apply(NodeUpdated(self.node(number)))
            elif happening < 0.9:
                uid, pod_class = f"other-{draw.randrange(30)}", self.pod_class()
                pod = Pod("ns", uid, uid, pod_class, pod_class.requests, "default-scheduler", node=f"n{number}")
                self.state.apply(PodUpdated(pod))
            else:
                self.state.apply(PodRemoved(f"other-{draw.randrange(30)}"))


def zone(name: str) -> NodeSelectorTerm:
    return NodeSelectorTerm((Requirement("zone", "In", (name,)),))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", range(4))
def test_vectorised_rows_equal_the_rows_of_the_one_by_one_loop(policy: str, seed: int) -> None:
    world = World(seed, size=world_size(seed))
    pipe = plugin_runtime(policy)
    placer = build_placer(pipe, world.state.nodes)
    classes = [world.pod_class() for _ in range(6)]
    for _ in range(12):
        world.change()
        cls = world.state.classes.record(world.draw.choice(classes))
        world.state.nodes.widen()
        count = world.draw.choice([1, 1, 2, 3, 7, 9, 30])
        expected = one_by_one(world.state, pipe, cls, count)
        assert all_at_once(world.state, placer, cls, count, keep=world.draw.random() < 0.5) == expected


def world_size(seed: int) -> int:
    """Small, and (65 rows) just past the first growth of the table."""
    return [5, 17, 63, 66][seed % 4]


@pytest.mark.parametrize("policy", ["spread", "pack", "mixed"])
@pytest.mark.parametrize("count", [255, 256, 257, 300])
def test_runs_longer_than_a_block_are_placed_as_one_by_one(policy: str, count: int) -> None:
    world = World(seed=count, size=40)
    pipe = plugin_runtime(policy)
    cls = world.state.classes.record(PodClass(requests=(("cpu", 20),), scored_cpu=20, scored_memory=100))
    expected = one_by_one(world.state, pipe, cls, count)
    assert len(expected) == count, "the cluster is too small for the test"
    assert all_at_once(world.state, build_placer(pipe, world.state.nodes), cls, count, keep=True) == expected


@pytest.mark.parametrize("levels", [2, 5, 1000])
@pytest.mark.parametrize("fitting", [0.02, 0.5, 1.0])
def test_best_rows_are_the_first_ones_by_score_and_row(levels: int, fitting: float) -> None:
    draw = np.random.default_rng(levels)
    for size in (1, 9, 40, 333, 3000):
        score = np.where(draw.random(size) < fitting, draw.integers(levels, size=size).astype(float), NOWHERE)
        for count in (1, 8, 9, 30, 256):
            fits = [row for row in range(size) if score[row] > NOWHERE]
            expected = sorted(sorted(fits, key=lambda row: (-score[row], row))[:count])
            assert best_rows(score, count).tolist() == expected


@pytest.mark.parametrize("slope", [-3, 0, 2])
def test_copies_are_chosen_one_by_one_whether_scores_rise_or_fall(slope: int) -> None:
    draw = random.Random(slope)
    for _ in range(200):
        rows = sorted(draw.sample(range(99), draw.randint(1, 12)))
        limits = [draw.choice([1, 2, 3, 17]) for _ in rows]
        steps = [[float(draw.randint(0, 9) + slope * copy) for copy in range(17)] for _ in rows]
        count, counts, expected = draw.randint(1, 40), [0] * len(rows), list[int]()
        while len(expected) < min(count, sum(limits)):
            open_places = [place for place in range(len(rows)) if counts[place] < limits[place]]
            best = max(open_places, key=lambda place: (steps[place][counts[place]], -place))
            counts[best] += 1
            expected.append(rows[best])
        look_ahead = partial(_first_columns, np.array(steps))
        assert place_greedily(np.array(rows), np.array(limits), look_ahead, count) == expected


def _first_columns(scores: FloatArray, rows: RowArray, depth: int) -> FloatArray:
    return scores[:, :depth]


@pytest.mark.parametrize("seed", range(6))
def test_room_is_the_number_of_copies_that_fit(seed: int) -> None:
    world = World(seed, size=world_size(seed))
    pipe = plugin_runtime("mixed")
    placer = build_placer(pipe, world.state.nodes)
    classes = [PodClass(requests=(("cpu", 1000),)), PodClass(host_ports=(HostPort(80),)), world.pod_class()]
    for _ in range(15):
        world.change()
        cls = world.state.classes.record(world.draw.choice(classes))
        world.state.nodes.widen()
        room = placer.total_copies(cls)
        assert placer.fits(cls) == (room > 0)
        assert len(all_at_once(world.state, placer, cls, 10_000, keep=False)) == room
        assert placer.total_copies(cls) == room


def test_class_with_host_ports_is_placed_after_the_table_of_nodes_has_grown() -> None:
    state, pipe = ClusterState(), plugin_runtime("spread")
    placer, capacity = build_placer(pipe, state.nodes), state.nodes.capacity
    offered = requests_of({"pods": 110, "cpu": 4000})
    cls = state.classes.record(PodClass(requests=(("cpu", 1000),), host_ports=(HostPort(80),)))
    for number in range(capacity + 1):
        assert placer.total_copies(cls) == number
        state.apply(NodeUpdated(Node(f"n{number}", allocatable=offered)))
    assert len(all_at_once(state, placer, cls, capacity + 2, keep=False)) == capacity + 1


def test_dropped_view_is_built_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.scheduling.placement.class_views._FEWEST_VIEWS", 2)
    monkeypatch.setattr("phalanx.scheduling.placement.class_views._VIEW_BYTES", 0)
    world = World(3, size=30)
    pipe = plugin_runtime("mixed")
    placer = build_placer(pipe, world.state.nodes)
    classes = [world.pod_class() for _ in range(5)]
    for _ in range(20):
        world.change()
        cls = world.state.classes.record(world.draw.choice(classes))
        world.state.nodes.widen()
        expected = one_by_one(world.state, pipe, cls, 3)
        assert all_at_once(world.state, placer, cls, 3, keep=True) == expected


def test_relabelled_node_can_shift_the_preferences_of_other_nodes() -> None:
    """Preferences are normalised to the best node: when that node loses its label, the next best counts in full."""
    state = ClusterState()
    zones = {7: "best"} | dict.fromkeys(range(20, 25), "good")
    for number in range(200):
        labels = (("zone", zones[number]),) if number in zones else ()
        state.apply(NodeUpdated(Node(f"n{number}", allocatable=(("cpu", 4000), ("pods", 9)), labels=labels)))
        if zones.get(number) == "good":
            half = PodClass(requests=(("cpu", 2000),), scored_cpu=2000)
            state.apply(PodUpdated(Pod("ns", f"busy-{number}", f"busy-{number}", half, node=f"n{number}")))
    wishes = (PreferredTerm(100, zone("best")), PreferredTerm(1, zone("good")))
    cls = state.classes.record(PodClass(requests=(("cpu", 1000),), preferred=wishes, scored_cpu=1000))
    placer = build_placer(plugin_runtime("spread"), state.nodes)
    assert placer.place(cls, 3) == [7, 7, 7]
    state.apply(NodeUpdated(Node("n7", allocatable=(("cpu", 4000), ("pods", 9)))))
    assert placer.place(cls, 6) == [20, 21, 22, 23, 24, 20]


def test_empty_cluster_places_nothing() -> None:
    state = ClusterState()
    placer = build_placer(plugin_runtime("spread"), state.nodes)
    cls = state.classes.record(PodClass(requests=(("cpu", 1),)))
    assert placer.place(cls, 1) == []
    assert placer.place(cls, 5) == []
    assert placer.total_copies(cls) == 0


# the parts of the scores, node by node, in the terms of their sources


def expected_nodeorder(nodes: NodeTable, cls: ClassRecord, row: int) -> float:
    """LeastAllocated x 1 + BalancedAllocation x 1 (docs/rules/kubernetes_native.md, B8), not truncated."""
    pod, node = cls.spec, nodes.nodes[row]
    assert node is not None
    offered = dict(node.allocatable)
    scored = {"cpu": pod.scored_cpu, "memory": pod.scored_memory}
    asked = dict(pod.requests)
    place = {"cpu": 0, "memory": 1}
    least = 0.0
    before, after = [], []
    for name, position in place.items():
        whole = offered.get(name, 0)
        used = int(nodes.used[nodes.space.column(name), row])
        score_used = int(nodes.scored[position, row]) + scored[name]
        least += (100.0 * (whole - score_used) / whole if whole else 100.0) / 2
        before.append(used / whole if whole else 0.0)
        after.append((used + asked.get(name, 0)) / whole if whole else 0.0)
    spread = [abs(parts[0] - parts[1]) / 2 for parts in (before, after)]
    balanced = 50 + (50 + (1 - spread[1]) * 100 - (1 - spread[0]) * 100) / 2 if pod.requests else 0.0
    return least + balanced


def expected_with_gpus(nodes: NodeTable, cls: ClassRecord, row: int) -> float:
    """Return 100 / (1 + idle cards / 8) for pods with GPUs, with up to 1.6 cards more for missing idle CPU."""
    node = nodes.nodes[row]
    assert node is not None
    offered, requests = dict(node.allocatable), dict(cls.spec.requests)
    gpus, cpu = offered.get("nvidia.com/gpu", 0), offered.get("cpu", 0)
    if "nvidia.com/gpu" not in requests:
        return expected_nodeorder(nodes, cls, row)
    after = {
        name: int(nodes.used[nodes.space.column(name), row]) + requests.get(name, 0)
        for name in ("cpu", "nvidia.com/gpu")
    }
    used, busy = after["nvidia.com/gpu"] / gpus if gpus else 0.0, after["cpu"] / cpu if cpu else 0.0
    idle = (1 - used) * gpus + 1.6 * max(busy - used, 0.0)
    return 100 / (1 + max(idle, 0.0) / 8)


def expected_binpack(nodes: NodeTable, cls: ClassRecord, row: int) -> float:
    """Return 100 x sum of weight x (used + request) / allocatable over the requested resources, by the sum of
    weights.
    """
    node = nodes.nodes[row]
    assert node is not None
    offered, total, weights = dict(node.allocatable), 0.0, 0
    for name, amount in cls.spec.requests:
        weight = {"cpu": 3, "memory": 1, "nvidia.com/gpu": 5}.get(name, 0)
        weights += weight
        if weight and offered.get(name):
            total += weight * (int(nodes.used[nodes.space.column(name), row]) + amount) / offered[name]
    return 2 * 100 * total / weights if weights else 0.0


@pytest.mark.parametrize("seed", range(3))
def test_pods_without_gpus_lose_points_for_the_gpus_of_a_node_as_it_changes(seed: int) -> None:
    world = World(seed, size=40)
    policies = ["[{name: nodeorder}]", "[{name: nodeorder, arguments: {gpupacking.weight: 0}}]"]
    pipes = [
        PluginRuntime(load_policy(f"actions: allocate\ntiers: [{{plugins: {plugins}}}]")) for plugins in policies
    ]
    nodes, placers = world.state.nodes, [build_placer(pipe, world.state.nodes) for pipe in pipes]
    cls = world.state.classes.record(PodClass(requests=(("cpu", 250),), scored_cpu=250, scored_memory=100))
    for _ in range(20):
        world.change()
        nodes.widen()
        with_gpus, without = (placer.class_view(cls).base for placer in placers)
        for row in np.flatnonzero(without > NOWHERE).tolist():
            node = nodes.nodes[row]
            assert node is not None
            gpus = dict(node.allocatable).get("nvidia.com/gpu", 0)
            assert without[row] - with_gpus[row] == pytest.approx(90 * (gpus > 0) + 100 * min(gpus / 8, 1.0))


@pytest.mark.parametrize(
    ("plugins", "formula"),
    [
        ("[{name: nodeorder, arguments: {gpupacking.weight: 0}}]", expected_nodeorder),
        ("[{name: nodeorder}]", expected_with_gpus),
        (
            "[{name: binpack, arguments: {binpack.weight: 2, binpack.cpu: 3, binpack.resources: nvidia.com/gpu,"
            " binpack.resources.nvidia.com/gpu: 5}}]",
            expected_binpack,
        ),
    ],
)
@pytest.mark.parametrize("seed", range(3))
def test_scores_follow_their_formula(
    plugins: str, formula: Callable[[NodeTable, ClassRecord, int], float], seed: int
) -> None:
    world = World(seed, size=40)
    for _ in range(10):
        world.change()
    (plugin,) = PluginRuntime(load_policy(f"actions: allocate\ntiers: [{{plugins: {plugins}}}]")).plugins("score")
    assert overrides(plugin, "score")
    for _ in range(10):
        cls = world.state.classes.record(world.pod_class())
        world.state.nodes.widen()
        rows = world.state.nodes.rows()
        found = np.broadcast_to(plugin.score(cls, Load(cls, world.state.nodes, rows)), rows.shape)
        expected = [formula(world.state.nodes, cls, row) for row in rows.tolist()]
        assert found.tolist() == pytest.approx(expected)
