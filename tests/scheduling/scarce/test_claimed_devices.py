"""Gangs whose members claim different devices start whenever an assignment of the devices exists."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

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
SIZES = ("big", "small", "tiny")

# The (count, accepted sizes) of each request of a member.
Want = tuple[tuple[int, tuple[str, ...]], ...]


class DeviceWorld(Scenario):
    """Nodes with devices of a size, and a gang whose members claim devices by size."""

    def __init__(self, nodes: list[list[str]], labels: Sequence[dict[str, str]] = ()) -> None:
        super().__init__()
        selector = f'device.driver == "{DRIVER}"'
        self.observe("class", AllocatorFact("claims", DeviceClass("gpu", (selector,))))
        for number, sizes in enumerate(nodes, 1):
            name = f"n{number}"
            self.node(name, labels=labels[number - 1] if labels else {})
            devices = tuple(
                Device(f"d{place}", (("size", DeviceAttribute("string", size)),))
                for place, size in enumerate(sizes)
            )
            slice_ = DeviceSlice(name, DRIVER, name, 1, 1, NodeAccess(node=name), devices)
            self.observe(f"slice {name}", AllocatorFact("claims", slice_))

    def member(
        self, name: str, want: Want, gang: str = "g", labels: tuple[tuple[str, str], ...] = ()
    ) -> DeviceWorld:
        requests = tuple(
            DeviceRequest(f"r{place}", (DeviceAsk(f"r{place}", "gpu", selector_of(sizes), count),))
            for place, (count, sizes) in enumerate(want)
        )
        spec = ClaimSpec(requests)
        claim = f"claim-{name}"
        self.observe(claim, AllocatorFact("claims", Claim(NAMESPACE, claim, claim, spec, owner=name)))
        need = PodClass(claims=(ClaimNeed(spec),))
        self.pod(name, gang=gang, cpu=1, pod_class=need, more={"claims": (claim,), "labels": labels})
        return self


def selector_of(sizes: tuple[str, ...]) -> tuple[str, ...]:
    if sizes == SIZES:
        return ()
    return (" || ".join(f'device.attributes["{DRIVER}"].size == "{size}"' for size in sizes),)


def allocations(want: Want, free: tuple[tuple[str, ...], ...]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield the free devices by node after a member with `want` is placed on any node with any devices."""
    for number, sizes in enumerate(free):
        for remaining in _without(want, sizes):
            yield (*free[:number], remaining, *free[number + 1 :])


def _without(want: Want, sizes: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if not want:
        yield sizes
        return
    (count, accepted), *further = want
    places = [place for place, size in enumerate(sizes) if size in accepted]
    for chosen in combinations(places, count):
        rest = tuple(size for place, size in enumerate(sizes) if place not in chosen)
        yield from _without(tuple(further), rest)


ANY: Want = ((1, SIZES),)
BIG: Want = ((1, ("big",)),)


@pytest.mark.parametrize("order", list(permutations(("p", "q"))))
def test_gang_starts_whatever_the_names_of_its_members_are(order: tuple[str, str]) -> None:
    world = DeviceWorld([["big", "small"]])
    world.gang("g", 2)
    world.member(order[0], ANY).member(order[1], BIG).run()
    assert sorted(world.placed()) == ["p", "q"]


@pytest.mark.parametrize("seed", range(150))
def test_gang_with_claims_starts_if_and_only_if_its_devices_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [[chance.choice(SIZES) for _ in range(chance.randint(1, 3))] for _ in range(2)]
    wants: list[Want] = []
    for _ in range(chance.randint(2, 4)):
        sizes = chance.choice((SIZES, SIZES, ("big",), ("small",), ("big", "small"), ("small", "tiny")))
        first = (chance.choice((1, 1, 1, 2)), sizes)
        wants.append((first, (1, chance.choice((SIZES, ("big",))))) if chance.random() < 0.2 else (first,))
    world = DeviceWorld(nodes)
    world.gang("g", len(wants))
    names = [f"m{number}" for number in range(len(wants))]
    chance.shuffle(names)
    for name, want in zip(names, wants, strict=True):
        world.member(name, want)
    world.run()
    possible = can_place_all(wants, tuple(map(tuple, nodes)), allocations)
    assert len(world.placed()) == (len(wants) if possible else 0), (nodes, dict(zip(names, wants, strict=True)))
