"""Quota that collections use: withheld amounts are charged to the accounts of their gangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.scheduling.collecting.collection import Collection
from phalanx.scheduling.quota.limits import UNLIMITED, AccountLimit
from phalanx.scheduling.quota.quota_check import QuotaCheck, ReservedQuota


class CollectedQuota:
    """Quota beside the withheld amounts of collections, and beside the windows of `beneath`."""

    def __init__(
        self,
        quotas: QuotaCheck,
        collections: Iterable[Collection],
        names: list[str],
        beneath: ReservedQuota | None,
    ) -> None:
        self._quotas = quotas
        self._beneath = beneath
        self._withheld: dict[AccountRecord, dict[str, int]] = {}
        for collection in collections:
            for charge_path, amounts in collection.charges(names):
                for account in charge_path.path:
                    add_amounts(self._withheld.setdefault(account, {}), amounts, 1)

    def room(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
        """Return the number of times that the amounts fit."""
        most = self._beneath.room(charge_path, amounts) if self._beneath is not None else UNLIMITED
        for account_limit, name, withheld in self._limits(charge_path, amounts):
            limit, used, reserved = account_limit.state(name)
            amount = amounts[name]
            most = min(most, max((limit - used - withheld) // amount, reserved // amount, 0))
        return most

    def excess(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> tuple[AccountLimit, str, int] | None:
        """Return (limit, resource, usage with withheld amounts) of a limit that the amounts exceed; None if they
        fit."""
        for account_limit, name, withheld in self._limits(charge_path, amounts):
            limit, used, reserved = account_limit.state(name)
            if used + withheld + amounts[name] > limit and amounts[name] > reserved:
                return account_limit, name, used + withheld
        return self._beneath.excess(charge_path, amounts) if self._beneath is not None else None

    def _limits(
        self, charge_path: ChargePath, amounts: Mapping[str, int]
    ) -> Iterable[tuple[AccountLimit, str, int]]:
        for account_limit in self._quotas.account_limits(charge_path):
            withheld = self._withheld.get(account_limit.account)
            for name in withheld or ():
                if amounts.get(name, 0) > 0 and name in account_limit.limit.limits:
                    assert withheld is not None
                    yield account_limit, name, withheld[name]
