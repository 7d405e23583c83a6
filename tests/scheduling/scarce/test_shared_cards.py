"""Gangs whose members share cards of several models start whenever an assignment of the cards exists."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from phalanx.model.devices.cards import Card, CardShare, DeviceNeed, Family
from phalanx.model.events import NodeUpdated
from phalanx.model.node import Node
from phalanx.model.pod import PodClass
from phalanx.model.resources import requests_of

from ..scenario import Scenario
from .enumeration import can_place_all

MEMORY, NUMBER = "volcano.sh/vgpu-memory", "volcano.sh/vgpu-number"
KINDS = ("A100", "V100")
WHOLE = 100

# (model, free memory, free cores) of a card; a member's (models, memory, number of cards).
FreeCard = tuple[str, int]
Want = tuple[tuple[str, ...], int, int]


def policy(schedule: str) -> str:
    return f"""
actions: "enqueue, allocate, backfill"
tiers: [{{plugins: [{{name: priority}}, {{name: gang}}, {{name: predicates}}, {{name: deviceshare,
  arguments: {{deviceshare.VGPUEnable: true, deviceshare.SchedulePolicy: {schedule}}}}}]}}]
"""


def allocations(want: Want, free: tuple[tuple[FreeCard, ...], ...]) -> Iterator[tuple[tuple[FreeCard, ...], ...]]:
    for number, cards in enumerate(free):
        for remaining in _without(want, cards, 0, want[2]):
            yield (*free[:number], remaining, *free[number + 1 :])


def _without(want: Want, cards: tuple[FreeCard, ...], first: int, count: int) -> Iterator[tuple[FreeCard, ...]]:
    if not count:
        yield cards
        return
    models, memory, _ = want
    for place in range(first, len(cards)):
        model, free = cards[place]
        if model in models and free >= memory:
            used = (*cards[:place], (model, free - memory), *cards[place + 1 :])
            yield from _without(want, used, place + 1, count - 1)


@pytest.mark.parametrize("seed", range(150))
def test_gang_with_shared_cards_starts_if_and_only_if_its_cards_suffice(seed: int) -> None:
    chance = random.Random(seed)
    nodes = [[(chance.choice(KINDS), WHOLE) for _ in range(chance.randint(1, 3))] for _ in range(2)]
    wants: list[Want] = [
        (
            chance.choice((KINDS, KINDS, ("A100",), ("V100",))),
            chance.choice((40, 50, 60, 100)),
            chance.choice((1, 1, 2)),
        )
        for _ in range(chance.randint(2, 4))
    ]
    world = Scenario(policy(chance.choice(('""', "binpack", "spread"))))
    for number, free in enumerate(nodes, 1):
        cards = tuple(
            Card(Family.VGPU, f"n{number}-{place}", memory, 10, model, "hami-core")
            for place, (model, memory) in enumerate(free)
        )
        offer = {"cpu": 64000, "pods": 110, MEMORY: WHOLE * len(cards), NUMBER: 10 * len(cards)}
        node = Node(f"n{number}", allocatable=requests_of(offer), cards=cards)
        world.observe(f"node n{number}", NodeUpdated(node))
    world.gang("g", len(wants))
    names = [f"m{number}" for number in range(len(wants))]
    chance.shuffle(names)
    for name, (models, memory, count) in zip(names, wants, strict=True):
        need = DeviceNeed(Family.VGPU, (CardShare(count=count, memory=memory),), kinds=models)
        amounts: dict[str, object] = {MEMORY: memory * count, NUMBER: count}
        world.pod(name, gang="g", pod_class=PodClass(devices=need), **amounts)  # type: ignore[arg-type]
    world.run()
    possible = can_place_all(wants, tuple(map(tuple, nodes)), allocations)
    assert len(world.placed()) == (len(wants) if possible else 0), (nodes, dict(zip(names, wants, strict=True)))
