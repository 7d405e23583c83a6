"""Choice of the smallest domain against every possible one: random clusters small enough to try all assignments."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.model.pod import PodClass
from phalanx.model.topology import TopologyRule

from ..extent import examples
from .test_topology import HOST, RACK, ZONE, Network


def cluster(draw: random.Random) -> tuple[Network, dict[str, tuple[str, str, int, int]]]:
    """Draw a world, and (zone, rack, idle CPUs, idle GPUs) by node."""
    world, nodes = Network(), {}
    for number in range(draw.randint(2, 7)):
        zone, rack = draw.choice("yz"), draw.choice("ab")
        name, cpu, gpu = f"n{number}", draw.randint(1, 5), draw.choice([0, 0, 1, 2])
        labels = {ZONE: zone, RACK: f"{zone}-{rack}", HOST: name}
        world.node(name, cpu=cpu, gpu=gpu, labels=labels)
        nodes[name] = (zone, f"{zone}-{rack}", cpu, gpu)
    return world, nodes


def fits(nodes: list[tuple[int, int]], members: list[tuple[int, int]]) -> bool:
    """Return whether an assignment of all members to the nodes exists."""
    for choice in itertools.product(range(len(nodes)), repeat=len(members)):
        left = [list(node) for node in nodes]
        for place, (cpu, gpu) in zip(choice, members, strict=True):
            left[place][0] -= cpu
            left[place][1] -= gpu
        if all(amount >= 0 for node in left for amount in node):
            return True
    return False


def domains(nodes: dict[str, tuple[str, str, int, int]], widest: int) -> list[list[set[str]]]:
    """Return the levels, the narrowest first, up to the widest allowed: 1 is a rack, 2 a zone, 3 the cluster."""
    racks = {rack: {n for n, each in nodes.items() if each[1] == rack} for _, rack, _, _ in nodes.values()}
    zones = {zone: {n for n, each in nodes.items() if each[0] == zone} for zone, _, _, _ in nodes.values()}
    levels = [[{name} for name in nodes], list(racks.values()), list(zones.values()), [set(nodes)]]
    return levels[: widest + 1]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(examples(150)))
def test_gang_of_unlike_members_is_placed_on_the_lowest_level_with_a_fitting_domain(seed: int) -> None:
    draw = random.Random(seed)
    world, nodes = cluster(draw)
    kinds = [(draw.randint(1, 3), draw.choice([0, 0, 1])) for _ in range(2)]
    members = [draw.choice(kinds) for _ in range(draw.randint(1, 4))]
    widest = draw.choice([1, 2, 3])
    rule = {1: TopologyRule.by_label(RACK), 2: TopologyRule.by_label(ZONE), 3: TopologyRule(preferred=RACK)}[widest]
    world.gang("job", len(members), topology=rule)
    for number, (cpu, gpu) in enumerate(members):
        world.pod(f"job-{number}", gang="job", cpu=cpu, gpu=gpu, pod_class=PodClass())
    world.run()

    def taken_by(names: set[str]) -> bool:
        return fits([nodes[name][2:] for name in sorted(names)], members)

    possible = next((level for level in domains(nodes, widest) if any(map(taken_by, level))), None)
    used = {world.where(name) for name in world.placed("job")}
    if possible is None:
        assert used == set()
    else:
        assert len(world.placed("job")) == len(members)
        assert any(used <= names for names in possible if taken_by(names)), (used, possible)


@pytest.mark.thorough
@settings(max_examples=examples(80), deadline=None)
@given(
    rooms=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), min_size=1, max_size=5),
    members=st.integers(1, 8),
)
def test_of_fitting_racks_the_one_with_the_least_room_is_chosen(rooms: list[list[int]], members: int) -> None:
    world = Network()
    for number, nodes in enumerate(rooms):
        for place, cpu in enumerate(nodes):
            world.node(f"r{number}-{place}", cpu=cpu, labels={RACK: f"r{number}"})
    world.close("job", members, cpu=1).run()
    fitting = [(sum(nodes), number) for number, nodes in enumerate(rooms) if sum(nodes) >= members]
    used = {world.where(name).split("-")[0] for name in world.placed("job")}
    assert used == ({f"r{min(fitting)[1]}"} if fitting else set())
