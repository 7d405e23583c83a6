"""GPUs and similar cards that pods share, and the shares that pods request and use."""

from __future__ import annotations

import enum

import msgspec

FULL = 100
"""All cores of a card, in percent; memory percentages use the same scale."""


class Family(enum.StrEnum):
    """API family of a shared GPU and of its requests; a GPU serves only requests of its own family."""

    VGPU = "vgpu"  # Volcano's vGPU (HAMi-core): volcano.sh/vgpu-*
    GPU_SHARE = "gpu-share"  # Volcano's first GPU sharing: volcano.sh/gpu-memory, volcano.sh/gpu-number
    KOORDINATOR = "koordinator"  # koordinator.sh/gpu*, with a Device object per node


class Card(msgspec.Struct, frozen=True):
    """Shared GPU (or similar card) of a node.

    `id` is the name for pods: a UUID, or the card's index on the node. `memory` is in units of its family (MiB or
    bytes), `slots` is the maximum number of containers that share it, `kind` is its model, `mode` its
    partitioning ("" if its family has only one mode). A `cordoned` card serves no new pods.
    """

    family: Family
    id: str
    memory: int
    slots: int
    kind: str = ""
    mode: str = ""
    healthy: bool = True
    cordoned: bool = False


class CardShare(msgspec.Struct, frozen=True, cache_hash=True):
    """Request of one container (or of a pod as a whole) for a share of each of `count` different GPUs.

    `memory` is an amount per card, unless `percent` of the card's memory is set. `cores` are percent per card.
    """

    count: int = 1
    memory: int = 0
    percent: int = 0
    cores: int = 0


class DeviceNeed(msgspec.Struct, frozen=True, cache_hash=True):
    """Request of a pod for shared GPUs of its node; the `shares` are in the order of its containers.

    A card matches if its model contains one of `kinds` (if any) and none of `other_kinds`, its id is one of `ids`
    (if any) and none of `other_ids`, and its mode is `mode` (unless ""). With `group` no card serves two pods of
    that group. `problem` is the reason why no card can serve the request. A `lenient` request is ignored on nodes
    without cards of the family: another component allocates cards there.
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
    """Share of one GPU that a pod uses."""

    family: Family
    card: str
    memory: int
    cores: int


class NodeCards(msgspec.Struct, frozen=True):
    """Shared GPUs of a node, from an object besides the Node; empty after the deletion of this object."""

    node: str
    family: Family
    cards: tuple[Card, ...] = ()
