"""Gangs whose members claim partitions of devices start whenever the counters suffice for all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import combinations

import pytest

from phalanx.model.devices.claims import (
    Claim,
    ClaimNeed,
    ClaimSpec,
    Device,
    DeviceAsk,
    DeviceAttribute,
    DeviceClass,
    DeviceRequest,
    DeviceSlice,
    NodeAccess,
)
from phalanx.model.events import AllocatorFact
from phalanx.model.pod import PodClass

from ..scenario import NAMESPACE, Scenario
from .enumeration import can_place_all

DRIVER = "gpu.example.com"
# The partitions of one card of four slices: (slices, model) of each.
PARTITIONS = ((4, "full"), (2, "half"), (2, "half"), (1, "quarter"), (1, "quarter"), (1, "quarter"))
SLICES = 4

# (count, smallest size) of a member's claim; the free slices and partitions of each node.
Want = tuple[int, int]
Free = tuple[tuple[int, tuple[int, ...]], ...]


def allocations(want: Want, free: Free) -> Iterator[Free]:
    count, least = want
    for number, (slices, partitions) in enumerate(free):
        for chosen in combinations(range(len(partitions)), count):
            sizes = [partitions[place] for place in chosen]
            if all(size >= least for size in sizes) and sum(sizes) <= slices:
                left = tuple(size for place, size in enumerate(partitions) if place not in chosen)
                yield (*free[:number], (slices - sum(sizes), left), *free[number + 1 :])


def world_of(nodes: int, largest_first: bool) -> Scenario:
    world = Scenario()
    world.observe("class", AllocatorFact("claims", DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))))
    order = PARTITIONS if largest_first else PARTITIONS[::-1]
    for number in range(1, nodes + 1):
        name = f"n{number}"
        world.node(name)
        devices = tuple(
            Device(
                f"d{place}",
                (("size", DeviceAttribute("int", size)), ("model", DeviceAttribute("string", model))),
                counters=(("card", "slices", str(size)),),
            )
            for place, (size, model) in enumerate(order)
        )
        counters = (("card", "slices", str(SLICES)),)
        slice_ = DeviceSlice(name, DRIVER, name, 1, 1, NodeAccess(node=name), devices, counters)
        world.observe(f"slice {name}", AllocatorFact("claims", slice_))
    return world


def claim(world: Scenario, name: str, want: Want) -> None:
    count, least = want
    selectors = (f'device.attributes["{DRIVER}"].size >= {least}',) if least > 1 else ()
    spec = ClaimSpec((DeviceRequest("r", (DeviceAsk("r", "gpu", selectors, count),)),))
    fact = Claim(NAMESPACE, f"claim-{name}", f"claim-{name}", spec, owner=name)
    world.observe(fact.name, AllocatorFact("claims", fact))
    world.pod(name, gang="g", cpu=1, pod_class=PodClass(claims=(ClaimNeed(spec),)), more={"claims": (fact.name,)})


def test_equal_members_share_a_card_whose_largest_partition_comes_first() -> None:
    world = world_of(1, largest_first=True).gang("g", 2)
    for name in ("p", "q"):
        claim(world, name, (1, 1))
    assert sorted(world.run().placed()) == ["p", "q"]


def test_gang_that_waited_for_a_card_starts_when_the_card_is_free() -> None:
    world = world_of(1, largest_first=True).gang("g", 2)
    claim(world, "first", (1, 4))
    world.becomes("first", gang="").run()
    assert world.placed() == ["first"]
    for name in ("p", "q"):
        claim(world, name, (1, 1))
    assert world.run().placed() == ["first"]
    world.gone("first").run()
    assert sorted(world.placed()) == ["p", "q"]


@pytest.mark.parametrize("seed", range(100))
def test_gang_with_partitions_starts_if_and_only_if_the_counters_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = chance.choice((1, 2))
    wants = [(chance.choice((1, 1, 2)), chance.choice((1, 1, 2, 4))) for _ in range(chance.randint(2, 4))]
    world = world_of(nodes, chance.random() < 0.5).gang("g", len(wants))
    for number, want in enumerate(wants):
        claim(world, f"m{number}", want)
    world.run()
    free: Free = ((SLICES, tuple(size for size, _ in PARTITIONS)),) * nodes
    possible = can_place_all(wants, free, allocations)
    assert len(world.placed()) == (len(wants) if possible else 0), (nodes, wants)
