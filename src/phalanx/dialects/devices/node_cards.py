"""GPUs of nodes that pods share: those that device plugins register, and those of Koordinator's Device objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from phalanx.dialects.core import NodeObject
from phalanx.dialects.kinds import WantedKind
from phalanx.dialects.reader import Document, is_whole
from phalanx.model.devices import device_words as words
from phalanx.model.devices.cards import FULL, Card, Family
from phalanx.model.resources import MAX_AMOUNT
from phalanx.model.text.decoding import parse_whole, quoted
from phalanx.model.text.quantity import QuantityError, parse_quantity

DEVICES = WantedKind("scheduling.koordinator.sh", "devices", "Device", ("v1alpha1",))

_ANY_NUMBER = 2**31
_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_HAMI = "hami-core"
_MIG = "mig"
_GPU = "gpu"
# A node with more cards than this is misreported.
_MOST_CARDS = 1024


def cards_at(node: NodeObject, allocatable: Mapping[str, int]) -> tuple[tuple[Card, ...], tuple[str, ...]]:
    """Return the GPUs that a node itself reports, and messages about unreadable ones; `allocatable` is the
    node's."""
    problems: list[str] = []
    cards: list[Card] = []
    text = node.metadata.annotations.get(words.VGPU_REGISTER, "")
    # A stopped device plugin, or one with broken cards, offers none of them.
    if text and all(allocatable.get(name) for name in (words.VGPU_NUMBER, words.VGPU_MEMORY, words.VGPU_CORES)):
        cards += _registered(text, cordoned_cards(node.metadata.annotations), problems)
    return (*cards, *_counted(node, problems)), tuple(problems)


def cordoned_cards(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the UUIDs of the GPUs that a node's annotation cordons, sorted."""
    listed = (part.strip() for part in annotations.get(words.DEVICE_CORDON, "").split(","))
    return tuple(sorted({part for part in listed if part}))


def percent_offered(cards: tuple[Card, ...]) -> int:
    """Return the total volcano.sh/vgpu-memory-percentage of a node's GPUs, which no kubelet reports."""
    return sum(FULL for card in cards if card.family is Family.VGPU and card.healthy)


def _registered(text: str, cordoned: Collection[str], problems: list[str]) -> list[Card]:
    """Parse a node's registered GPUs: `uuid,slots,memory in MiB,model,healthy[,mode]` each. A GPU in MIG mode is
    unusable, since its possible instances are not reported."""
    cards = []
    for part in text.split(":"):
        if "," not in part:
            continue
        fields = part.split(",")
        slots, memory = (
            (parse_whole(field, 0, MAX_AMOUNT) for field in fields[1:3]) if len(fields) >= 5 else (None, None)
        )
        if slots is None or memory is None:
            problems.append(f"annotation {words.VGPU_REGISTER}: {quoted(part)} is not a GPU")
            continue
        mode = _MIG if fields[5:6] == [_MIG] else _HAMI
        healthy = fields[4] in _TRUE and mode != _MIG
        card = Card(Family.VGPU, fields[0], memory, slots, fields[3], mode, healthy, fields[0] in cordoned)
        cards.append(card)
    return cards


def _counted(node: NodeObject, problems: list[str]) -> list[Card]:
    """Return a node's GPUs in Volcano's first GPU sharing: equal GPUs, numbered."""
    capacity = node.status.capacity
    if words.GPU_MEMORY not in capacity or words.GPU_NUMBER not in capacity:
        return []
    try:
        memory, number = parse_quantity(capacity[words.GPU_MEMORY]), parse_quantity(capacity[words.GPU_NUMBER])
    except QuantityError as error:
        problems.append(f"status.capacity: {error}")
        return []
    if not 0 < number <= _MOST_CARDS or memory < 0:
        return []
    broken = {part.strip() for part in node.metadata.annotations.get(words.GPU_UNHEALTHY, "").split(",")}
    return [
        Card(Family.GPU_SHARE, str(card), memory // number, _ANY_NUMBER, healthy=str(card) not in broken)
        for card in range(number)
    ]


def cards_of_device(document: Document) -> tuple[Card, ...]:
    """Return the GPUs that a Device object lists for its node; unreadable ones are skipped."""
    spec = document.get("spec")
    devices = spec.get("devices") if isinstance(spec, Mapping) else None
    if not isinstance(devices, list):
        return ()
    cards = [card for device in devices if (card := _gpu(device)) is not None]
    return tuple(sorted(cards, key=lambda card: int(card.id)))


def _gpu(device: Any) -> Card | None:
    if not isinstance(device, Mapping) or device.get("type") != _GPU:
        return None
    minor, resources = device.get("minor"), device.get("resources")
    if not is_whole(minor) or not isinstance(resources, Mapping):
        return None
    try:
        memory = parse_quantity(resources.get(words.KOORDINATOR_MEMORY, 0))
    except QuantityError:
        return None
    labels = device.get("labels")
    kind = str(labels.get("node.koordinator.sh/gpu-model", "")) if isinstance(labels, Mapping) else ""
    healthy = device.get("health") is True
    return Card(Family.KOORDINATOR, str(minor), max(0, memory), _ANY_NUMBER, kind, healthy=healthy)
