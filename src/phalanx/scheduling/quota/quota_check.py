"""What accounts allow: the limits on a charge path, and how much room they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import Footprint
from phalanx.cluster.ledger import Ledger
from phalanx.scheduling.quota.limits import UNLIMITED, AccountLimit, Limit
from phalanx.scheduling.refusals.over_quota import OverQuota


class ReservedQuota(Protocol):
    """What accounts allow beside what is kept for others that start later."""

    def room(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
        """How many times the amounts fit."""
        ...

    def excess(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> tuple[AccountLimit, str, int] | None:
        """(limit, resource, how much of it is in use or kept) where they do not fit once."""
        ...


class QuotaCheck:
    """Answers for one cycle. Limits stand for the cycle; what is used is always as of now, tentative charges of
    an open transaction included."""

    def __init__(self, ledger: Ledger, limits_of: Callable[[AccountRecord], Iterable[Limit]]) -> None:
        self._ledger = ledger
        self._limits_of = limits_of
        self._account_limits: dict[ChargePath, list[AccountLimit]] = {}
        # Set while somebody has its turn beside what is kept for others.
        self.reserved_quota: ReservedQuota | None = None

    def account_limits(self, charge_path: ChargePath) -> list[AccountLimit]:
        """Every limit on the charge path, leaf first."""
        found = self._account_limits.get(charge_path)
        if found is None:
            self._ledger.refresh_sums()
            found = self._account_limits[charge_path] = list(self._find(charge_path))
        return found

    def room(self, charge_path: ChargePath | None, footprint: Footprint) -> int:
        """How many more pods with this footprint the charge path's accounts allow.

        (Upstream compares some resources that the pod does not ask for as well; docs/rules/coscheduling.md, 3.1.)
        """
        return self.room_for(charge_path, footprint.amounts) if charge_path is not None else UNLIMITED

    def room_for(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
        """How many times the amounts are allowed on top of what is held."""
        account_limits = self.account_limits(charge_path)
        if not account_limits:
            return UNLIMITED
        self._ledger.refresh_sums()
        most = min(account_limit.room(amounts) for account_limit in account_limits)
        if self.reserved_quota is not None and most:
            most = min(most, self.reserved_quota.room(charge_path, amounts))
        return most

    def over_quota(
        self,
        charge_path: ChargePath | None,
        footprint: Footprint,
        count: int = 1,
        placed: int = 0,
        need: int = 1,
        culprit: int = 0,
    ) -> OverQuota | None:
        """Which limit does not allow `count` more pods; the first on the path. None if all do.

        What would raise it is only said where no other limit stands in the way as well.
        """
        if charge_path is None:
            return None
        self._ledger.refresh_sums()
        found: list[OverQuota] = []
        followers: list[OverQuota] = []
        for account_limit in self.account_limits(charge_path):
            plugin_limit = account_limit.limit
            for name, amount in footprint.amounts.items():
                wanted = amount * count
                if wanted <= 0 or name not in plugin_limit.limits:
                    continue
                if account_limit.refuses(name, wanted):
                    limit, used, _ = account_limit.state(name)
                    follows = used + wanted - limit <= plugin_limit.follows.get(name, -1)
                    at_max = limit >= plugin_limit.max.get(name, UNLIMITED)
                    (followers if follows else found).append(
                        OverQuota(
                            account_limit.account,
                            "max" if at_max else plugin_limit.word,
                            name,
                            max(0, limit),
                            used,
                            wanted,
                            "raise its max" if at_max else plugin_limit.change,
                            account_limit.hint(name),
                            plugin_limit.computed and not at_max,
                            placed,
                            need,
                            culprit=culprit,
                        )
                    )
        found = found or followers
        if not found:
            return self._over_kept(charge_path, footprint, placed, need, culprit)
        # What somebody has stated explains more than what was computed from it.
        first = min(found, key=lambda excess: 0 if excess.change else 1 if excess.hint else 2)
        return first if len(found) == 1 else msgspec.structs.replace(first, change="")

    def _over_kept(
        self, charge_path: ChargePath, footprint: Footprint, placed: int, need: int, culprit: int
    ) -> OverQuota | None:
        """Which limit does not allow one more pod beside what is kept for others."""
        excess = (
            self.reserved_quota.excess(charge_path, footprint.amounts) if self.reserved_quota is not None else None
        )
        if excess is None:
            return None
        account_limit, name, held = excess
        limit, used, _ = account_limit.state(name)
        return OverQuota(
            account_limit.account,
            account_limit.limit.word,
            name,
            max(0, limit),
            used,
            footprint.amounts[name],
            computed=account_limit.limit.computed,
            placed=placed,
            need=need,
            culprit=culprit,
            kept=held - used,
        )

    def overdrawn(self, charge_paths: Mapping[ChargePath, Mapping[str, int]]) -> Iterator[AccountRecord]:
        """The accounts that hold more now than they may of what their charge paths ask for."""
        for charge_path, wanted in charge_paths.items():
            for account_limit in self.account_limits(charge_path):
                for name in wanted.keys() & account_limit.limit.limits.keys():
                    limit, used, _ = account_limit.state(name)
                    if used > limit:
                        yield account_limit.account

    def _find(self, charge_path: ChargePath) -> Iterator[AccountLimit]:
        below: list[AccountRecord] = []
        for account in charge_path.path:
            if below and below[-1].parent is not account:
                below = []
            for plugin_limit in self._limits_of(account):
                if plugin_limit.limits:
                    yield AccountLimit(account, plugin_limit, tuple(below))
            below.append(account)
