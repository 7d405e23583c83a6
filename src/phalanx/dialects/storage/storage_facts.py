"""What the books of storage have been told already: objects change often in ways that say nothing new."""

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
    """The last fact about each thing, for as long as there is something to say about it."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, str], object] = {}

    def new(self, facts: Iterable[AllocatorFact]) -> list[ClusterEvent]:
        """Those of the facts that are news."""
        return [fact for fact in facts if self._is_new(fact)]

    def _is_new(self, told: AllocatorFact) -> bool:
        kind, name, empty = _about(told.fact)
        key = (told.allocator, kind, name)
        if empty:
            return self._told.pop(key, None) is not None
        if self._told.get(key) == told.fact:
            return False
        self._told[key] = told.fact
        return True


def _about(fact: object) -> tuple[str, str, bool]:
    """(kind of thing, its name, whether there is no such thing any more)."""
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
