"""What accounts allow: the ceilings on a payer's paths, and how much room they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import Footprint
from phalanx.cluster.ledger import Ledger
from phalanx.scheduling.quota.limits import UNLIMITED, Bar, Limit, OverQuota


class KeptRoom(Protocol):
    """What accounts allow beside what is kept for others that start later."""

    def room(self, payer: ChargePath, amounts: Mapping[str, int]) -> int:
        """How many times the amounts fit."""
        ...

    def excess(self, payer: ChargePath, amounts: Mapping[str, int]) -> tuple[Bar, str, int] | None:
        """(ceiling, resource, how much of it is in use or kept) where they do not fit once."""
        ...


class QuotaCheck:
    """Answers for one cycle. Ceilings stand for the cycle; what is used is always as of now, tentative charges of
    an open transaction included."""

    def __init__(self, ledger: Ledger, ceilings_of: Callable[[AccountRecord], Iterable[Limit]]) -> None:
        self._ledger = ledger
        self._ceilings_of = ceilings_of
        self._bars: dict[ChargePath, list[Bar]] = {}
        # Set while somebody has its turn beside what is kept for others.
        self.kept_room: KeptRoom | None = None

    def bars(self, payer: ChargePath) -> list[Bar]:
        """Every ceiling on the payer's path, leaf first."""
        found = self._bars.get(payer)
        if found is None:
            self._ledger.settle()
            found = self._bars[payer] = list(self._find(payer))
        return found

    def room(self, payer: ChargePath | None, footprint: Footprint) -> int:
        """How many more pods with this footprint the payer's accounts allow.

        (Upstream compares some resources that the pod does not ask for as well; docs/rules/coscheduling.md, 3.1.)
        """
        return self.room_for(payer, footprint.amounts) if payer is not None else UNLIMITED

    def room_for(self, payer: ChargePath, amounts: Mapping[str, int]) -> int:
        """How many times the amounts are allowed on top of what is held."""
        bars = self.bars(payer)
        if not bars:
            return UNLIMITED
        self._ledger.settle()
        most = min(bar.room(amounts) for bar in bars)
        if self.kept_room is not None and most:
            most = min(most, self.kept_room.room(payer, amounts))
        return most

    def over_quota(
        self,
        payer: ChargePath | None,
        footprint: Footprint,
        count: int = 1,
        placed: int = 0,
        need: int = 1,
        culprit: int = 0,
    ) -> OverQuota | None:
        """Which ceiling does not allow `count` more pods; the first on the path. None if all do.

        What would raise it is only said where no other ceiling stands in the way as well.
        """
        if payer is None:
            return None
        self._ledger.settle()
        found: list[OverQuota] = []
        for bar in self.bars(payer):
            ceiling = bar.ceiling
            for name, amount in footprint.amounts.items():
                wanted = amount * count
                if wanted <= 0 or name not in ceiling.limits:
                    continue
                if bar.refuses(name, wanted):
                    limit, used, _ = bar.state(name)
                    found.append(
                        OverQuota(
                            bar.account,
                            ceiling.word,
                            name,
                            max(0, limit),
                            used,
                            wanted,
                            ceiling.change,
                            bar.hint(name),
                            ceiling.computed,
                            placed,
                            need,
                            culprit,
                        )
                    )
        if not found:
            return self._over_kept(payer, footprint, placed, need, culprit)
        # What somebody has stated explains more than what was computed from it.
        first = min(found, key=lambda excess: 0 if excess.change else 1 if excess.hint else 2)
        return first if len(found) == 1 else msgspec.structs.replace(first, change="")

    def _over_kept(
        self, payer: ChargePath, footprint: Footprint, placed: int, need: int, culprit: int
    ) -> OverQuota | None:
        """Which ceiling does not allow one more pod beside what is kept for others."""
        excess = self.kept_room.excess(payer, footprint.amounts) if self.kept_room is not None else None
        if excess is None:
            return None
        bar, name, held = excess
        limit, used, _ = bar.state(name)
        return OverQuota(
            bar.account,
            bar.ceiling.word,
            name,
            max(0, limit),
            used,
            footprint.amounts[name],
            computed=bar.ceiling.computed,
            placed=placed,
            need=need,
            culprit=culprit,
            kept=held - used,
        )

    def overdrawn(self, payers: Mapping[ChargePath, Mapping[str, int]]) -> Iterator[AccountRecord]:
        """The accounts that hold more now than they may of what their payers ask for."""
        for payer, wanted in payers.items():
            for bar in self.bars(payer):
                for name in wanted.keys() & bar.ceiling.limits.keys():
                    limit, used, _ = bar.state(name)
                    if used > limit:
                        yield bar.account

    def _find(self, payer: ChargePath) -> Iterator[Bar]:
        below: list[AccountRecord] = []
        for account in payer.path:
            if below and below[-1].parent is not account:
                below = []
            for ceiling in self._ceilings_of(account):
                if ceiling.limits:
                    yield Bar(account, ceiling, tuple(below))
            below.append(account)
