"""Cards (GPUs and the like) that pods share, and the parts of them that pods ask for and hold."""

from __future__ import annotations

import enum

import msgspec

FULL = 100
"""All of a card's cores, in percent; memory shares in percent count the same way."""


class Family(enum.StrEnum):
    """Whose words a card is described and asked for in; cards of one family do not serve another."""

    VGPU = "vgpu"  # Volcano's vGPU (HAMi-core): volcano.sh/vgpu-*
    GPU_SHARE = "gpu-share"  # Volcano's first GPU sharing: volcano.sh/gpu-memory, volcano.sh/gpu-number
    KOORDINATOR = "koordinator"  # koordinator.sh/gpu*, with a Device object per node


class Card(msgspec.Struct, frozen=True):
    """One card of a node. `id` is what pods are told: a UUID, or its number on the node. `memory` is in units of
    its family (MiB or bytes), `slots` is how many pods' containers may share it, `kind` its model, `mode` how it is
    divided ("" where its family knows one way only)."""

    family: Family
    id: str
    memory: int
    slots: int
    kind: str = ""
    mode: str = ""
    healthy: bool = True


class CardShare(msgspec.Struct, frozen=True, cache_hash=True):
    """What one container (or a pod as a whole) asks for: a part of each of `count` different cards.

    `memory` is an amount per card, unless `percent` of the card's memory is stated. `cores` are percent per card.
    """

    count: int = 1
    memory: int = 0
    percent: int = 0
    cores: int = 0


class DeviceNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod asks of the cards of its node; the `shares` are in the order of its containers.

    A card serves it if its model contains one of `kinds` (where there are any) and none of `other_kinds`, its id is
    one of `ids` (where there are any) and none of `other_ids`, and its mode is `mode` (unless ""). With `group` no
    card serves two pods of that group. `problem` says why no card can serve it. A `lenient` need is none on nodes
    without cards of the family: somebody else hands them out there.
    """

    family: Family
    shares: tuple[CardShare, ...] = ()
    kinds: tuple[str, ...] = ()
    other_kinds: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    other_ids: tuple[str, ...] = ()
    mode: str = ""
    group: str = ""
    problem: str = ""
    lenient: bool = False


class CardHold(msgspec.Struct, frozen=True, cache_hash=True):
    """What a pod holds of one card."""

    family: Family
    card: str
    memory: int
    cores: int


class NodeCards(msgspec.Struct, frozen=True):
    """The cards that an object beside the node describes; none where it is gone."""

    node: str
    family: Family
    cards: tuple[Card, ...] = ()
