"""Koordinator's Device objects: the GPUs of the node of the same name."""

from __future__ import annotations

import msgspec

from phalanx.dialects.devices.node_cards import DEVICES, cards_of_device
from phalanx.dialects.enricher import ObjectChanges, PodEnricher, no_changes
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import Document
from phalanx.model.devices.cards import FULL, Card, CardShare, DeviceNeed, Family, NodeCards
from phalanx.model.events import AllocatorFact
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass

_ALLOCATOR = "shared-devices"
# Resource names for which Koordinator allocates whole cards of its Device objects too.
_WHOLE = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
# Limit for pairs of a class and its counterpart; a cache with more entries is cleared.
_CACHE_SIZE = 10_000


class DeviceObjects(PodEnricher):
    """Passes changes of nodes' GPUs in Device objects to their allocator. While there are any, pods with whole GPUs
    are allocated from these GPUs too, so that no GPU is both shared and used as a whole."""

    kinds = (DEVICES,)

    def __init__(self) -> None:
        self._cards: dict[str, tuple[Card, ...]] = {}
        # Whether pods of a class request whole cards.
        self._uses_cards: dict[PodClass, bool] = {}
        self._twins: dict[PodClass, PodClass] = {}

    @property
    def idle(self) -> bool:
        return not self._cards

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        pod_class = spec.pod_class
        if not self._cards or not self._requests_cards(pod_class):
            return spec
        twin = self._twins.get(pod_class)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[pod_class] = msgspec.structs.replace(pod_class, devices=_whole(pod_class))
        return msgspec.structs.replace(spec, pod_class=twin)

    def _requests_cards(self, pod_class: PodClass) -> bool:
        uses_cards = self._uses_cards.get(pod_class)
        if uses_cards is None:
            if len(self._uses_cards) >= _CACHE_SIZE:
                self._uses_cards.clear()
            uses_cards = pod_class.devices is None and any(name in _WHOLE for name, _ in pod_class.requests)
            self._uses_cards[pod_class] = uses_cards
        return uses_cards

    def _is_affected(self, pod: Pod) -> bool:
        """Return whether the existence of Device objects affects the pod: it requests whole GPUs."""
        return self._requests_cards(pod.pod_class)

    def updated(self, kind: ServedKind, document: Document) -> ObjectChanges:
        return self._replace(str(document["metadata"]["name"]), cards_of_device(document))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> ObjectChanges:
        return self._replace(name, ())

    def unserved(self, kind: ServedKind) -> ObjectChanges:
        had_cards = bool(self._cards)
        changes = [self._replace(name, ()) for name in sorted(self._cards)]
        return [event for events, _ in changes for event in events], self._is_affected if had_cards else frozenset()

    def _replace(self, node: str, cards: tuple[Card, ...]) -> ObjectChanges:
        if self._cards.get(node, ()) == cards:
            return no_changes()
        before = bool(self._cards)
        if cards:
            self._cards[node] = cards
        else:
            del self._cards[node]
        facts = [AllocatorFact(_ALLOCATOR, NodeCards(node, Family.KOORDINATOR, cards))]
        return facts, self._is_affected if before != bool(self._cards) else frozenset()


def _whole(pod_class: PodClass) -> DeviceNeed:
    count = sum(amount for name, amount in pod_class.requests if name in _WHOLE)
    return DeviceNeed(Family.KOORDINATOR, (CardShare(count, percent=FULL, cores=FULL),), lenient=True)
