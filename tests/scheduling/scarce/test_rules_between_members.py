"""Gangs whose members have affinity or anti-affinity to each other start whenever nodes exist for all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from phalanx.model.peers import Peers, PeerTerm, PodSelection
from phalanx.model.pod import PodClass
from phalanx.model.selectors import Requirement

from ..scenario import NAMESPACE, Scenario
from .enumeration import can_place_all

HOST = "kubernetes.io/hostname"
APPS = ("a", "b", "c")

# (app, cpu, apps that it repels, app that it needs beside it or "") of a member.
Want = tuple[str, int, frozenset[str], str]
# Free cpu and members of each node.
Free = tuple[tuple[int, tuple[Want, ...]], ...]


def term(app: str) -> PeerTerm:
    return PeerTerm(PodSelection((Requirement("app", "In", (app,)),), (NAMESPACE,)), HOST)


def allocations(want: Want, nodes: Free) -> Iterator[Free]:
    app, cpu, repelled, near = want
    anywhere = {member[0] for _, members in nodes for member in members}
    for number, (free, members) in enumerate(nodes):
        apps = {member[0] for member in members}
        if free < cpu or apps & repelled or any(app in member[2] for member in members):
            continue
        begins = near == app and app not in anywhere
        if near and near not in apps and not begins:
            continue
        yield (*nodes[:number], (free - cpu, (*members, want)), *nodes[number + 1 :])


@pytest.mark.parametrize("seed", range(200))
def test_gang_with_rules_between_members_starts_if_and_only_if_nodes_suffice(seed: int) -> None:
    chance = random.Random(seed)
    cpus = [chance.randint(1, 4) for _ in range(3)]
    kinds = []
    for app in APPS[: chance.randint(2, 3)]:
        repelled = frozenset(other for other in APPS if chance.random() < 0.3)
        near = chance.choice(APPS) if chance.random() < 0.25 else ""
        kinds.append((app, chance.randint(1, 2), repelled, near))
    wants: list[Want] = [chance.choice(kinds) for _ in range(chance.randint(2, 4))]
    world = Scenario()
    for number, cpu in enumerate(cpus, 1):
        world.node(f"n{number}", cpu=cpu, labels={HOST: f"n{number}"})
    world.gang("g", len(wants))
    names = [f"m{number}" for number in range(len(wants))]
    chance.shuffle(names)
    for name, (app, cpu, repelled, near) in zip(names, wants, strict=True):
        peers = Peers((term(near),) if near else (), tuple(term(other) for other in sorted(repelled)))
        pod_class = PodClass(peers=peers)
        world.pod(name, gang="g", cpu=cpu, pod_class=pod_class, more={"labels": (("app", app),)})
    world.run()
    empty: Free = tuple((cpu, ()) for cpu in cpus)
    possible = can_place_all(wants, empty, allocations)
    assert len(world.placed()) == (len(wants) if possible else 0), (cpus, dict(zip(names, wants, strict=True)))
