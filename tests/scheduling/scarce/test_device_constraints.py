"""Gangs whose members claim devices of one zone, or share a claim, start whenever an assignment exists."""

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
    DeviceConstraint,
    DeviceRequest,
    DeviceSlice,
    NodeAccess,
)
from phalanx.model.events import AllocatorFact
from phalanx.model.pod import PodClass

from ..scenario import NAMESPACE, Scenario
from .enumeration import can_place_all

DRIVER = "gpu.example.com"
SHARED = "shared"

# (size, zone) of a device; (number of devices, size or "" for any, all in one zone, uses the shared claim).
Chip = tuple[str, str]
Want = tuple[int, str, bool, bool]
# Free devices of each node, and the node of the shared claim's device (-1: none yet).
State = tuple[tuple[tuple[Chip, ...], ...], int]


def allocations(want: Want, state: State) -> Iterator[State]:
    count, size, one_zone, shares = want
    nodes, home = state
    for number, free in enumerate(nodes):
        if shares and home not in (-1, number):
            continue
        for rest in _shared_taken(free) if shares and home == -1 else [free]:
            for chosen in combinations(range(len(rest)), count):
                chips = [rest[place] for place in chosen]
                if any(size not in ("", chip[0]) for chip in chips):
                    continue
                if one_zone and len({chip[1] for chip in chips}) > 1:
                    continue
                left = tuple(chip for place, chip in enumerate(rest) if place not in chosen)
                yield (*nodes[:number], left, *nodes[number + 1 :]), number if shares else home


def _shared_taken(free: tuple[Chip, ...]) -> Iterator[tuple[Chip, ...]]:
    """Yield the remaining devices after the shared claim got any one of them."""
    for place in range(len(free)):
        yield (*free[:place], *free[place + 1 :])


def spec_of(want: Want) -> ClaimSpec:
    count, size, one_zone, _ = want
    selectors = (f'device.attributes["{DRIVER}"].size == "{size}"',) if size else ()
    constraints = (DeviceConstraint(match=f"{DRIVER}/zone"),) if one_zone else ()
    return ClaimSpec((DeviceRequest("r", (DeviceAsk("r", "gpu", selectors, count),)),), constraints)


@pytest.mark.parametrize("seed", range(150))
def test_gang_with_device_constraints_starts_if_and_only_if_devices_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [
        [(chance.choice(("big", "small")), chance.choice("xy")) for _ in range(chance.randint(2, 4))]
        for _ in range(2)
    ]
    wants: list[Want] = []
    for _ in range(chance.randint(2, 4)):
        count = chance.choice((1, 1, 2))
        wants.append((count, chance.choice(("", "", "big")), chance.random() < 0.5, chance.random() < 0.3))
    world = Scenario()
    world.observe("class", AllocatorFact("claims", DeviceClass("gpu", (f'device.driver == "{DRIVER}"',))))
    for number, chips in enumerate(nodes, 1):
        name = f"n{number}"
        world.node(name)
        devices = tuple(
            Device(
                f"d{place}",
                (("size", DeviceAttribute("string", size)), ("zone", DeviceAttribute("string", zone))),
            )
            for place, (size, zone) in enumerate(chips)
        )
        slice_ = DeviceSlice(name, DRIVER, name, 1, 1, NodeAccess(node=name), devices)
        world.observe(f"slice {name}", AllocatorFact("claims", slice_))
    any_device = spec_of((1, "", False, False))
    world.observe(SHARED, AllocatorFact("claims", Claim(NAMESPACE, SHARED, SHARED, any_device)))
    world.gang("g", len(wants))
    names = [f"m{number}" for number in range(len(wants))]
    chance.shuffle(names)
    for name, want in zip(names, wants, strict=True):
        spec, claim = spec_of(want), f"claim-{name}"
        world.observe(claim, AllocatorFact("claims", Claim(NAMESPACE, claim, claim, spec, owner=name)))
        needs, claims = [ClaimNeed(spec)], [claim]
        if want[3]:
            needs.append(ClaimNeed(any_device, f"{NAMESPACE}/{SHARED}"))
            claims.append(SHARED)
        world.pod(name, gang="g", cpu=1, pod_class=PodClass(claims=tuple(needs)), more={"claims": tuple(claims)})
    world.run()
    possible = can_place_all(wants, (tuple(map(tuple, nodes)), -1), allocations)
    assert len(world.placed()) == (len(wants) if possible else 0), (nodes, dict(zip(names, wants, strict=True)))
