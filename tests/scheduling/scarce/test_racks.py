"""Gangs, subgroups and composites with racks start whenever racks can be chosen for all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from phalanx.dialects.families.native import NAMING
from phalanx.model.composite import Composite
from phalanx.model.events import CompositeUpdated
from phalanx.model.gang import GangKey, GroupRef, MatchPolicy
from phalanx.model.pod import PodClass
from phalanx.model.selectors import HostPort
from phalanx.model.topology import SubgroupRule, TopologyRule

from ..scenario import NAMESPACE, Scenario
from .enumeration import can_place_all

RACK = "rack"
IN_RACK = TopologyRule.by_label(RACK)
PART = "part"

# (rack, cpu, ports in use) of a node; (cpu, port or 0) of a member.
Node = tuple[str, int, frozenset[int]]
Want = tuple[int, int]


def racks(chance: random.Random) -> list[Node]:
    return [(rack, chance.randint(1, 4), frozenset()) for rack in ("a", "b") for _ in range(chance.randint(1, 2))]


def member(chance: random.Random) -> Want:
    return chance.choice((1, 1, 2, 3)), 80 if chance.random() < 0.2 else 0


def world_of(nodes: Sequence[Node]) -> Scenario:
    world = Scenario()
    for number, (rack, cpu, _) in enumerate(nodes, 1):
        world.node(f"n{number}", cpu=cpu, labels={RACK: rack})
    return world


def pod(world: Scenario, name: str, gang: str, want: Want, part: str = "") -> None:
    cpu, port = want
    ports = (HostPort(port),) if port else ()
    more = {"labels": ((PART, part),)} if part else {}
    world.pod(name, gang=gang, cpu=cpu, pod_class=PodClass(host_ports=ports), more=more)


def allocations(want: Want, nodes: tuple[Node, ...], within: str = "") -> Iterator[tuple[Node, ...]]:
    cpu, port = want
    for number, (rack, free, ports) in enumerate(nodes):
        if free >= cpu and port not in ports and within in ("", rack):
            used = ports | {port} if port else ports
            yield (*nodes[:number], (rack, free - cpu, used), *nodes[number + 1 :])


def groups_fit(groups: Sequence[Sequence[Want]], nodes: tuple[Node, ...]) -> bool:
    """Return whether each group fits into one rack, beside the others."""

    def options(entry: tuple[Want, str], free: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
        want, rack = entry
        return allocations(want, free, rack)

    for chosen in product("ab", repeat=len(groups)):
        members = [(want, rack) for group, rack in zip(groups, chosen, strict=True) for want in group]
        if can_place_all(members, nodes, options):
            return True
    return False


@pytest.mark.parametrize("seed", range(120))
def test_gang_with_subgroups_in_racks_starts_if_and_only_if_racks_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = racks(chance)
    size = chance.choice((1, 2))
    groups = [[member(chance) for _ in range(size)] for _ in range(2)]
    world = world_of(nodes)
    rule = SubgroupRule("parts", keys=(PART,), size=size, least=len(groups), topology=IN_RACK)
    world.gang("g", size * len(groups), subgroups=(rule,))
    for number, group in enumerate(groups):
        for place, want in enumerate(group):
            pod(world, f"m{number}-{place}", "g", want, str(number))
    world.run()
    possible = groups_fit(groups, tuple(nodes))
    assert len(world.placed()) == (size * len(groups) if possible else 0), (nodes, groups)


@pytest.mark.parametrize("seed", range(120))
def test_composite_with_groups_in_racks_starts_if_and_only_if_racks_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = racks(chance)
    groups = [[member(chance) for _ in range(chance.randint(1, 2))] for _ in range(chance.randint(2, 3))]
    least = chance.choice((len(groups), len(groups), len(groups) - 1))
    world = world_of(nodes)
    key = GangKey(NAMESPACE, "c")
    ref = GroupRef("scheduling.k8s.io", "v1alpha3", "CompositePodGroup", "compositepodgroups", NAMESPACE, "c", "c")
    world.observe("composite c", CompositeUpdated(Composite(key, ref, least)))
    for number, group in enumerate(groups):
        rules = {"rules": NAMING.rules, "match_policy": MatchPolicy.UNTIL_SCHEDULED}
        world.gang(f"g{number}", len(group), composite=key, topology=IN_RACK, **rules)
        for place, want in enumerate(group):
            pod(world, f"g{number}-{place}", f"g{number}", want)
    world.run()
    chosen = [
        groups,
        *([*groups[:skip], *groups[skip + 1 :]] for skip in range(len(groups)) if least < len(groups)),
    ]
    possible = any(groups_fit(some, tuple(nodes)) for some in chosen)
    assert bool(world.placed()) == possible, (nodes, groups, least)


@pytest.mark.parametrize("seed", range(120))
def test_gang_in_one_rack_starts_if_and_only_if_a_rack_suffices(seed: int) -> None:
    chance = random.Random(seed)
    nodes = racks(chance)
    wants = [member(chance) for _ in range(chance.randint(2, 4))]
    world = world_of(nodes)
    world.gang("g", len(wants), topology=IN_RACK)
    for number, want in enumerate(wants):
        pod(world, f"m{number}", "g", want)
    world.run()
    assert len(world.placed()) == (len(wants) if groups_fit([wants], tuple(nodes)) else 0), (nodes, wants)


@pytest.mark.parametrize("seed", range(60))
def test_gang_group_of_equal_pods_starts_if_and_only_if_racks_suffice(seed: int) -> None:
    """Gangs of equal pods compete for racks, although the order of their pods is irrelevant."""
    chance = random.Random(seed)
    rooms = {rack: chance.randint(3, 8) for rack in "abc"}
    sizes = [chance.randint(2, 5) for _ in range(chance.randint(3, 4))]
    names = [f"g{number}" for number in range(len(sizes))]
    world = world_of([(rack, cpu, frozenset()) for rack, cpu in rooms.items()])
    for name, size in zip(names, sizes, strict=True):
        world.gang(name, size, gang_group=names, topology=IN_RACK)
        for number in range(size):
            pod(world, f"{name}-{number}", name, (1, 0))
    world.run()
    possible = any(
        all(
            sum(size for size, where in zip(sizes, chosen, strict=True) if where == rack) <= rooms[rack]
            for rack in rooms
        )
        for chosen in product(rooms, repeat=len(sizes))
    )
    assert len(world.placed()) == (sum(sizes) if possible else 0), (rooms, sizes)
