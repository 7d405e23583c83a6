"""Published state of storage objects: they often change without a difference that matters to the scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.model.events import AllocatorFact, ClusterEvent
from phalanx.model.volumes import (
    ClaimAttachment,
    NodeAttachments,
    NodeStorage,
    StorageCapacity,
    StorageCapacityGone,
    StorageClass,
    StorageClassGone,
    StorageDriver,
    Volume,
    VolumeGone,
)


class StorageFacts:
    """Last published state of each storage object, as long as it has content."""

    def __init__(self) -> None:
        self._published: dict[tuple[str, str, str], object] = {}

    def new(self, facts: Iterable[AllocatorFact]) -> list[ClusterEvent]:
        """Return those of the objects' states that differ from the published ones, as events."""
        return [fact for fact in facts if self._is_new(fact)]

    def _is_new(self, fact: AllocatorFact) -> bool:
        kind, name, empty = _about(fact.fact)
        key = (fact.allocator, kind, name)
        if empty:
            return self._published.pop(key, None) is not None
        if self._published.get(key) == fact.fact:
            return False
        self._published[key] = fact.fact
        return True


def _about(fact: object) -> tuple[str, str, bool]:
    """Return (kind of storage object, its name, whether its state is empty)."""
    match fact:
        case Volume(name) | VolumeGone(name):
            return "volume", name, isinstance(fact, VolumeGone)
        case StorageClass(name) | StorageClassGone(name):
            return "class", name, isinstance(fact, StorageClassGone)
        case StorageCapacity(key) | StorageCapacityGone(key):
            return "capacity", key, isinstance(fact, StorageCapacityGone)
        case StorageDriver(name):
            return "driver", name, fact == StorageDriver(name)
        case NodeStorage(node):
            return "node", node, fact == NodeStorage(node)
        case ClaimAttachment(claim):
            return "claim", claim, fact == ClaimAttachment(claim)
        case NodeAttachments(node):
            return "attachments", node, fact == NodeAttachments(node)
    raise TypeError(f"{fact!r} is no fact about storage")
