"""What a pod on its node counts for of the node's cards, as far as what is written on it can be believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from phalanx.model.devices.cards import FULL, Card, CardHold, CardShare, DeviceNeed

Shares = tuple[tuple[CardHold, ...], ...]


class Held(msgspec.Struct, eq=False):
    """The parts of cards that are booked for an observed pod.

    Whoever owns a pod may write on it. So `claimed`, which its annotations say, decides which of its node's cards
    count and nothing else: how much of each is what the pod asks for (`need`), no less and no more. What is left
    without a card that way goes where most is free; `doubt` says so ("" for a claim as it should be). A claim
    that has been found good once stays (`settled`), whatever becomes of the cards.
    """

    uid: str
    need: DeviceNeed
    claimed: tuple[str, ...]
    group: str = ""
    shares: Shares = ()
    doubt: str = ""
    settled: bool = False

    def assign(self, cards: Iterable[Card], free: Callable[[str], int]) -> None:
        """Decides anew, on a node with these cards; `free` is the memory of a card that nobody else has.

        Where the node tells of none, nothing can be said, and nothing changes.
        """
        there: dict[str, Card] = {}
        for card in cards:
            if card.family is self.need.family:
                there.setdefault(card.id, card)
        if self.settled or not there:
            return
        claims = list(self.claimed)
        believed: list[list[str]] = []
        for share in self.need.shares:
            mine: list[str] = []
            while claims and len(mine) < share.count:
                card_id = claims.pop(0)
                if card_id in there and card_id not in mine:
                    mine.append(card_id)
            believed.append(mine)
        self.settled = not claims and all(
            len(mine) == share.count for share, mine in zip(self.need.shares, believed, strict=True)
        )
        self.doubt = "" if self.settled else self._doubt(claims)
        taken: dict[str, int] = {}
        for share, mine in zip(self.need.shares, believed, strict=True):
            while len(mine) < min(share.count, len(there)):
                rest = [card_id for card_id in there if card_id not in mine]
                mine.append(max(rest, key=lambda card_id: free(card_id) - taken.get(card_id, 0)))
            for card_id in mine:
                taken[card_id] = taken.get(card_id, 0) + _memory(share, there[card_id])
        self.shares = tuple(
            tuple(CardHold(self.need.family, each, _memory(share, there[each]), share.cores) for each in mine)
            for share, mine in zip(self.need.shares, believed, strict=True)
        )

    def _doubt(self, left: list[str]) -> str:
        if left:
            return "its annotations claim more cards than it asks for"
        if self.claimed:
            return "its annotations name cards that its node does not have, or fewer than it asks for"
        return "its annotations name no cards"


def _memory(share: CardShare, card: Card) -> int:
    return card.memory * share.percent // FULL if share.percent else share.memory
