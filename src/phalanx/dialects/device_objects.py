"""Koordinator's Device objects: the cards of the node that has the same name."""

from __future__ import annotations

from phalanx.dialects.facets import Facet, News, nothing
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.node_cards import DEVICES, cards_of_device
from phalanx.dialects.reader import Document
from phalanx.model.devices import Card, Family, NodeCards
from phalanx.model.events import StockFact

_STOCK = "shared-devices"


class DeviceObjects(Facet):
    """Tells the stock of cards what changes about each node's."""

    kinds = (DEVICES,)

    def __init__(self) -> None:
        self._cards: dict[str, tuple[Card, ...]] = {}

    def take(self, kind: ServedKind, document: Document) -> News:
        return self._replace(str(document["metadata"]["name"]), cards_of_device(document))

    def removed(self, kind: ServedKind, namespace: str, name: str) -> News:
        return self._replace(name, ())

    def unserved(self, kind: ServedKind) -> News:
        events = [event for name in sorted(self._cards) for event in self._replace(name, ())[0]]
        return events, set()

    def _replace(self, node: str, cards: tuple[Card, ...]) -> News:
        if self._cards.get(node, ()) == cards:
            return nothing()
        if cards:
            self._cards[node] = cards
        else:
            del self._cards[node]
        return [StockFact(_STOCK, NodeCards(node, Family.KOORDINATOR, cards))], set()
