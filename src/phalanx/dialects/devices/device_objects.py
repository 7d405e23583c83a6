"""Koordinator's Device objects: the cards of the node that has the same name."""

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
# Koordinator gives out whole cards for these names too, of those that its Device objects describe.
_WHOLE = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
# Pairs of a class and its twin; beyond this many the cache starts anew.
_CACHE_SIZE = 10_000


class DeviceObjects(PodEnricher):
    """Tells the allocator of cards what changes about each node's; and as long as there are any, lets pods that ask
    for whole GPUs have theirs from there, so that nobody gets a part of a card that somebody has whole."""

    kinds = (DEVICES,)

    def __init__(self) -> None:
        self._cards: dict[str, tuple[Card, ...]] = {}
        # Whether pods of a class ask for whole cards.
        self._asks: dict[PodClass, bool] = {}
        self._twins: dict[PodClass, PodClass] = {}

    @property
    def idle(self) -> bool:
        return not self._cards

    def enriched(self, spec: Pod, gang: Gang | None) -> Pod:
        pod_class = spec.pod_class
        if not self._cards or not self._asks_for_cards(pod_class):
            return spec
        twin = self._twins.get(pod_class)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[pod_class] = msgspec.structs.replace(pod_class, devices=_whole(pod_class))
        return msgspec.structs.replace(spec, pod_class=twin)

    def _asks_for_cards(self, pod_class: PodClass) -> bool:
        asks = self._asks.get(pod_class)
        if asks is None:
            if len(self._asks) >= _CACHE_SIZE:
                self._asks.clear()
            asks = pod_class.devices is None and any(name in _WHOLE for name, _ in pod_class.requests)
            self._asks[pod_class] = asks
        return asks

    def _anew(self, pod: Pod) -> bool:
        """Whether it makes a difference to a pod that there are cards."""
        return self._asks_for_cards(pod.pod_class)

    def updated(self, kind: ServedKind, document: Document) -> ObjectChanges:
        return self._replace(str(document["metadata"]["name"]), cards_of_device(document))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> ObjectChanges:
        return self._replace(name, ())

    def unserved(self, kind: ServedKind) -> ObjectChanges:
        turned = bool(self._cards)
        news = [self._replace(name, ()) for name in sorted(self._cards)]
        return [event for events, _ in news for event in events], self._anew if turned else frozenset()

    def _replace(self, node: str, cards: tuple[Card, ...]) -> ObjectChanges:
        if self._cards.get(node, ()) == cards:
            return no_changes()
        before = bool(self._cards)
        if cards:
            self._cards[node] = cards
        else:
            del self._cards[node]
        facts = [AllocatorFact(_ALLOCATOR, NodeCards(node, Family.KOORDINATOR, cards))]
        return facts, self._anew if before != bool(self._cards) else frozenset()


def _whole(pod_class: PodClass) -> DeviceNeed:
    count = sum(amount for name, amount in pod_class.requests if name in _WHOLE)
    return DeviceNeed(Family.KOORDINATOR, (CardShare(count, percent=FULL, cores=FULL),), lenient=True)
