"""Quorums, gang groups, subgroups and composites whose members claim devices start if devices and racks exist."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest

from phalanx.dialects.families.native import NAMING
from phalanx.model.composite import Composite
from phalanx.model.events import CompositeUpdated
from phalanx.model.gang import GangKey, GroupRef, MatchPolicy
from phalanx.model.topology import SubgroupRule, TopologyRule

from ..scenario import NAMESPACE
from .enumeration import can_place_all
from .test_claimed_devices import SIZES, DeviceWorld, Want, allocations

RACK = "rack"
RACKS = ("a", "b")
IN_RACK = TopologyRule.by_label(RACK)
PART = "part"


def want(chance: random.Random) -> Want:
    return ((chance.choice((1, 1, 1, 2)), chance.choice((SIZES, ("big",), ("small",), ("big", "small")))),)


def drawn_nodes(chance: random.Random) -> list[list[str]]:
    return [[chance.choice(SIZES[:2]) for _ in range(chance.randint(1, 3))] for _ in range(3)]


def rack_of(number: int) -> str:
    """Return the rack of a node: two nodes are in the first rack, one is in the second."""
    return RACKS[number // 2]


def world_of(nodes: list[list[str]]) -> DeviceWorld:
    return DeviceWorld(nodes, [{RACK: rack_of(number)} for number in range(len(nodes))])


def groups_fit(groups: Sequence[Sequence[Want]], nodes: list[list[str]], in_racks: bool) -> bool:
    """Return whether all groups fit beside each other, each in one rack if so stated."""

    def options(
        entry: tuple[Want, str], free: tuple[tuple[str, ...], ...]
    ) -> Iterator[tuple[tuple[str, ...], ...]]:
        wanted, rack = entry
        for after in allocations(wanted, free):
            changed = next((number for number in range(len(free)) if after[number] != free[number]), 0)
            if not in_racks or rack_of(changed) == rack:
                yield after

    free = tuple(map(tuple, nodes))
    for chosen in product(RACKS, repeat=len(groups)) if in_racks else [("",) * len(groups)]:
        members = [(wanted, rack) for group, rack in zip(groups, chosen, strict=True) for wanted in group]
        if can_place_all(members, free, options):
            return True
    return False


@pytest.mark.parametrize("seed", range(80))
def test_quorum_starts_if_and_only_if_devices_suffice_for_some_of_its_members(seed: int) -> None:
    chance = random.Random(seed)
    nodes = drawn_nodes(chance)[:2]
    wants = [want(chance) for _ in range(chance.randint(3, 4))]
    quorum = len(wants) - 1
    world = world_of(nodes)
    world.gang("g", quorum)
    for number, wanted in enumerate(wants):
        world.member(f"m{number}", wanted)
    world.run()
    possible = any(groups_fit([some], nodes, in_racks=False) for some in combinations(wants, quorum))
    assert (len(world.placed()) >= quorum) == possible, (nodes, wants)


@pytest.mark.parametrize("in_racks", [False, True])
@pytest.mark.parametrize("seed", range(60))
def test_gang_group_starts_if_and_only_if_devices_suffice(seed: int, in_racks: bool) -> None:
    chance = random.Random(seed)
    nodes = drawn_nodes(chance)
    groups = [[want(chance) for _ in range(chance.randint(1, 2))] for _ in range(2)]
    names = [f"g{number}" for number in range(len(groups))]
    world = world_of(nodes)
    for name, group in zip(names, groups, strict=True):
        world.gang(name, len(group), gang_group=names, topology=IN_RACK if in_racks else None)
        for place, wanted in enumerate(group):
            world.member(f"{name}-{place}", wanted, name)
    world.run()
    possible = groups_fit(groups, nodes, in_racks)
    assert len(world.placed()) == (sum(map(len, groups)) if possible else 0), (nodes, groups)


@pytest.mark.parametrize("seed", range(80))
def test_subgroups_in_racks_start_if_and_only_if_devices_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = drawn_nodes(chance)
    size = chance.choice((1, 2))
    groups = [[want(chance) for _ in range(size)] for _ in range(2)]
    world = world_of(nodes)
    rule = SubgroupRule("parts", keys=(PART,), size=size, least=len(groups), topology=IN_RACK)
    world.gang("g", size * len(groups), subgroups=(rule,))
    for number, group in enumerate(groups):
        for place, wanted in enumerate(group):
            world.member(f"m{number}-{place}", wanted, labels=((PART, str(number)),))
    world.run()
    possible = groups_fit(groups, nodes, in_racks=True)
    assert len(world.placed()) == (size * len(groups) if possible else 0), (nodes, groups)


@pytest.mark.parametrize("seed", range(80))
def test_composite_in_racks_starts_if_and_only_if_devices_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = drawn_nodes(chance)
    groups = [[want(chance) for _ in range(chance.randint(1, 2))] for _ in range(2)]
    least = chance.choice((1, 2, 2))
    world = world_of(nodes)
    key = GangKey(NAMESPACE, "c")
    ref = GroupRef("scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups", NAMESPACE, "c", "c")
    world.observe("composite c", CompositeUpdated(Composite(key, ref, least)))
    for number, group in enumerate(groups):
        rules = {"rules": NAMING.rules, "match_policy": MatchPolicy.UNTIL_SCHEDULED}
        world.gang(f"g{number}", len(group), composite=key, topology=IN_RACK, **rules)
        for place, wanted in enumerate(group):
            world.member(f"g{number}-{place}", wanted, f"g{number}")
    world.run()
    possible = any(groups_fit(some, nodes, in_racks=True) for some in combinations(groups, least))
    assert bool(world.placed()) == possible, (nodes, groups, least)
