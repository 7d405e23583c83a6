"""Gangs whose members need local volumes and host ports start whenever an assignment of both exists."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import permutations

import pytest

from phalanx.model.events import AllocatorFact
from phalanx.model.pod import PodClass
from phalanx.model.selectors import HostPort, NodeSelectorTerm, Requirement
from phalanx.model.volumes import PodVolumes, UnboundClaim, Volume

from ..scenario import Scenario
from .enumeration import can_place_all

HOST = "kubernetes.io/hostname"
FAST = Requirement("disk", "In", ("fast",))

# (size, fast) of a volume; a member's claims (size, needs a fast volume) and host ports.
Disk = tuple[int, bool]
Want = tuple[tuple[Disk, ...], frozenset[int]]
# Free volumes and used ports by node.
Free = tuple[tuple[tuple[Disk, ...], frozenset[int]], ...]


def allocations(want: Want, free: Free) -> Iterator[Free]:
    claims, ports = want
    for number, (disks, used) in enumerate(free):
        if ports & used:
            continue
        for chosen in permutations(range(len(disks)), len(claims)):
            if all(
                disks[place][0] >= size and (disks[place][1] or not fast)
                for place, (size, fast) in zip(chosen, claims, strict=True)
            ):
                left = tuple(disk for place, disk in enumerate(disks) if place not in chosen)
                yield (*free[:number], (left, used | ports), *free[number + 1 :])


@pytest.mark.parametrize("seed", range(150))
def test_gang_with_volumes_and_ports_starts_if_and_only_if_both_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [
        [(chance.choice((5, 10)), chance.random() < 0.5) for _ in range(chance.randint(1, 3))] for _ in range(2)
    ]
    wants: list[Want] = []
    for _ in range(chance.randint(2, 4)):
        claims = tuple((chance.choice((5, 5, 10)), chance.random() < 0.4) for _ in range(chance.choice((0, 1, 1))))
        ports = frozenset(port for port in (80, 81) if chance.random() < 0.3)
        wants.append((claims, ports))
    world = Scenario()
    for number, disks in enumerate(nodes, 1):
        world.node(f"n{number}", labels={HOST: f"n{number}"})
        term = NodeSelectorTerm((Requirement(HOST, "In", (f"n{number}",)),))
        for place, (size, fast) in enumerate(disks):
            labels = (("disk", "fast"),) if fast else ()
            volume = Volume(f"v{number}-{place}", "local", size, labels=labels, affinity=(term,))
            world.observe(volume.name, AllocatorFact("volumes", volume))
    world.gang("g", len(wants))
    names = [f"m{number}" for number in range(len(wants))]
    chance.shuffle(names)
    for name, (claims, ports) in zip(names, wants, strict=True):
        needs = tuple(UnboundClaim("local", size, selector=(FAST,) if fast else ()) for size, fast in claims)
        pod_class = PodClass(volumes=needs, host_ports=tuple(HostPort(port) for port in sorted(ports)))
        volumes = PodVolumes(tuple(f"{name}-{place}" for place in range(len(needs))))
        world.pod(name, gang="g", cpu=1, pod_class=pod_class, more={"volumes": volumes})
    world.run()
    free = tuple((tuple(disks), frozenset[int]()) for disks in nodes)
    possible = can_place_all(wants, free, allocations)
    assert len(world.placed()) == (len(wants) if possible else 0), (nodes, dict(zip(names, wants, strict=True)))
