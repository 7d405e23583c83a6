"""Shared GPUs of an observed pod: its share of the node's GPUs, as far as its annotations are trustworthy."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from phalanx.model.devices.cards import FULL, Card, CardHold, CardShare, DeviceNeed

Shares = tuple[tuple[CardHold, ...], ...]


class Held(msgspec.Struct, eq=False):
    """Parts of shared GPUs that are recorded for an observed pod.

    The owner of a pod can edit its annotations. So `claimed` (from the annotations) only selects cards of the node:
    the amount of each is the pod's request (`need`). Shares without a valid card are assigned to the card with the
    most free memory; `doubt` describes this ("" for a valid claim). A claim that was valid once remains so
    (`settled`), whatever happens to the cards.
    """

    uid: str
    need: DeviceNeed
    claimed: tuple[str, ...]
    group: str = ""
    shares: Shares = ()
    doubt: str = ""
    settled: bool = False

    def assign(self, cards: Iterable[Card], free: Callable[[str], int]) -> None:
        """Assign the pod's shares to the GPUs of the node; `free` returns the memory of a GPU that is not used by
        others.

        Without known cards of the family, nothing changes.
        """
        cards_by_id: dict[str, Card] = {}
        for card in cards:
            if card.family is self.need.family:
                cards_by_id.setdefault(card.id, card)
        if self.settled or not cards_by_id:
            return
        claims = list(self.claimed)
        accepted: list[list[str]] = []
        for share in self.need.shares:
            own: list[str] = []
            while claims and len(own) < share.count:
                card_id = claims.pop(0)
                if card_id in cards_by_id and card_id not in own:
                    own.append(card_id)
            accepted.append(own)
        self.settled = not claims and all(
            len(own) == share.count for share, own in zip(self.need.shares, accepted, strict=True)
        )
        self.doubt = "" if self.settled else self._doubt(claims)
        assigned: dict[str, int] = {}
        for share, own in zip(self.need.shares, accepted, strict=True):
            while len(own) < min(share.count, len(cards_by_id)):
                other_cards = [card_id for card_id in cards_by_id if card_id not in own]
                own.append(max(other_cards, key=lambda card_id: free(card_id) - assigned.get(card_id, 0)))
            for card_id in own:
                assigned[card_id] = assigned.get(card_id, 0) + _memory(share, cards_by_id[card_id])
        self.shares = tuple(
            tuple(
                CardHold(self.need.family, card_id, _memory(share, cards_by_id[card_id]), share.cores)
                for card_id in own
            )
            for share, own in zip(self.need.shares, accepted, strict=True)
        )

    def _doubt(self, unused_claims: list[str]) -> str:
        if unused_claims:
            return "its annotations claim more cards than it requests"
        if self.claimed:
            return "its annotations name cards that its node does not have, or fewer than it requests"
        return "its annotations name no cards"


def _memory(share: CardShare, card: Card) -> int:
    return card.memory * share.percent // FULL if share.percent else share.memory
