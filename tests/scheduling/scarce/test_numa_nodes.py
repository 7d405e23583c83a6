"""Gangs whose members need whole CPUs of one NUMA node start whenever an order of their placement admits them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from phalanx.cluster.devices.numa import NUMA, deal
from phalanx.model.devices.numa import NumaPolicy, NumaTopology
from phalanx.model.events import AllocatorFact
from phalanx.model.pod import PodClass

from ..scenario import Scenario
from .enumeration import can_place_all

POLICY = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: numa-aware}]}]
"""
CPUS = (8, 8)
Free = tuple[tuple[NumaPolicy, tuple[int, ...]], ...]


def allocations(want: tuple[int, ...], free: Free) -> Iterator[Free]:
    for number, (policy, zones) in enumerate(free):
        used = deal(zones, CPUS, policy, want)
        if used is not None:
            left = tuple(zone - count for zone, count in zip(zones, used, strict=True))
            yield (*free[:number], (policy, left), *free[number + 1 :])


@pytest.mark.parametrize("seed", range(150))
def test_gang_on_numa_nodes_starts_if_and_only_if_its_cpus_suffice(seed: int) -> None:
    chance = random.Random(seed)
    policies = (NumaPolicy.SINGLE, NumaPolicy.RESTRICTED, NumaPolicy.BEST_EFFORT)
    free: Free = tuple((chance.choice(policies), (chance.randint(2, 8), chance.randint(2, 8))) for _ in range(2))
    wants = [(chance.randint(2, 7),) for _ in range(chance.randint(2, 5))]
    world = Scenario(POLICY)
    for number, (policy, zones) in enumerate(free, 1):
        world.node(f"n{number}")
        topology = NumaTopology(f"n{number}", policy, True, CPUS, zones)
        world.observe(f"zones {number}", AllocatorFact(NUMA, topology))
    world.gang("g", len(wants))
    names = [f"m{number}" for number in range(len(wants))]
    chance.shuffle(names)
    for name, cpus in zip(names, wants, strict=True):
        pod_class = PodClass(numa="as-the-node", cpus=cpus)
        world.pod(name, gang="g", cpu=sum(cpus), pod_class=pod_class)
    world.run()
    possible = can_place_all(wants, free, allocations)
    assert len(world.placed()) == (len(wants) if possible else 0), (free, dict(zip(names, wants, strict=True)))
