"""Annotations with a pod's shared GPUs that its binding writes, in the formats of the device plugins.

Keys and formats are those of volcano-vgpu-device-plugin for vGPU, of volcano-sh/devices for the first GPU sharing,
and of koordlet for Koordinator (apis/extension/device_share.go).
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.model.devices.cards import FULL, CardHold, DeviceNeed, Family
from phalanx.model.devices.device_words import (
    BIND_PHASE,
    BIND_TIME,
    DEVICE_ALLOCATED,
    GPU_INDEX,
    KOORDINATOR_CORE,
    KOORDINATOR_MEMORY,
    KOORDINATOR_RATIO,
    PREDICATE_TIME,
    VGPU_IDS,
    VGPU_NODE,
    VGPU_TIME,
    VGPU_TO_ALLOCATE,
)

_VENDOR = "NVIDIA"
_NANOSECONDS = 10**9

Shares = tuple[tuple[CardHold, ...], ...]


def annotations_of(
    need: DeviceNeed, shares: Shares, node: str, totals: Mapping[str, int], now: float
) -> tuple[tuple[str, str], ...]:
    """Return the annotations that give a pod its shared GPUs; `totals` is the memory of each GPU of the node, by
    id."""
    match need.family:
        case Family.VGPU:
            return _vgpu(shares, node, int(now))
        case Family.GPU_SHARE:
            return _gpu_share(shares, now)
        case Family.KOORDINATOR:
            return _koordinator(need, shares, totals)


def _vgpu(shares: Shares, node: str, now: int) -> tuple[tuple[str, str], ...]:
    """Return a pod's vGPU annotations: `;` separates containers, `:` ends GPUs; the plugin clears
    `devices-to-allocate`."""
    cards = ";".join("".join(map(_vgpu_card, share)) for share in shares)
    return (
        (VGPU_NODE, node),
        (VGPU_TIME, str(now)),
        (VGPU_IDS, cards),
        (VGPU_TO_ALLOCATE, cards),
        (BIND_PHASE, "allocating"),
        (BIND_TIME, str(now)),
    )


def _vgpu_card(hold: CardHold) -> str:
    return f"{hold.card},{_VENDOR},{hold.memory},{hold.cores}:"


def _gpu_share(shares: Shares, now: float) -> tuple[tuple[str, str], ...]:
    cards = ",".join(hold.card for share in shares for hold in share)
    return (PREDICATE_TIME, str(int(now * _NANOSECONDS))), (GPU_INDEX, cards)


def _koordinator(need: DeviceNeed, shares: Shares, totals: Mapping[str, int]) -> tuple[tuple[str, str], ...]:
    """Return Koordinator's annotation with a pod's GPUs, with the memory in bytes and as a percentage of the
    GPU."""
    percents = [share.percent for share in need.shares]
    cards = []
    for percent, share in zip(percents, shares, strict=True):
        for hold in share:
            total = max(1, totals.get(hold.card, 0))
            resources = {KOORDINATOR_CORE: str(hold.cores)} if hold.cores else {}
            resources[KOORDINATOR_MEMORY] = str(hold.memory)
            resources[KOORDINATOR_RATIO] = str(percent or hold.memory * FULL // total)
            cards.append({"minor": int(hold.card), "resources": resources})
    return ((DEVICE_ALLOCATED, msgspec.json.encode({"gpu": cards}).decode()),)
