"""Checks of account limits on a charge path, and the room that they leave."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import Footprint
from phalanx.cluster.ledger import Ledger
from phalanx.scheduling.quota.limits import UNLIMITED, AccountLimit, Limit
from phalanx.scheduling.refusals.over_quota import OverQuota

# Number of accounts without limits that are known: namespaces and users come and go.
_MOST_UNLIMITED = 4096


class ReservedQuota(Protocol):
    """Quota beside the reserved windows of units that start later."""

    def room(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
        """Return the number of times that the amounts fit."""
        ...

    def excess(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> tuple[AccountLimit, str, int] | None:
        """Return (limit, resource, usage with reserved amounts) of a limit that the amounts exceed; None if they
        fit."""
        ...


class UnlimitedAccounts:
    """Accounts that no plugin limits until a declaration of a queue or quota changes, across cycles."""

    def __init__(self) -> None:
        self._accounts: set[AccountRecord] = set()
        self._rebuilds = -1

    def add(self, account: AccountRecord, rebuilds: int) -> None:
        """Add an account; `rebuilds` is the ledger's number of rebuilds of the declared accounts."""
        if rebuilds != self._rebuilds or len(self._accounts) >= _MOST_UNLIMITED:
            self._accounts.clear()
            self._rebuilds = rebuilds
        self._accounts.add(account)

    def contain_all(self, accounts: Iterable[AccountRecord], rebuilds: int) -> bool:
        """Return whether no plugin limits any of the accounts."""
        return rebuilds == self._rebuilds and self._accounts.issuperset(accounts)


class QuotaCheck:
    """Quota checks of one cycle.

    Limits are fixed from the first decision of the cycle on; usage is current and includes open transactions.
    """

    def __init__(
        self,
        ledger: Ledger,
        limits_of: Callable[[AccountRecord], Sequence[Limit]],
        *,
        unlimited: UnlimitedAccounts | None = None,
        nodes_come: bool = False,
    ) -> None:
        """Initialize for the limits of one cycle; `limits_of` adds accounts to the `unlimited` ones."""
        self._ledger = ledger
        self._unlimited = unlimited if unlimited is not None else UnlimitedAccounts()
        # Whether an autoscaler creates nodes, which raise the limits that follow from the size of the cluster.
        self.nodes_come = nodes_come
        self._limits_of = limits_of
        self._account_limits: dict[ChargePath, list[AccountLimit]] = {}
        # Limits of each account on a queried charge path: charge paths share most of their accounts.
        self._own_limits: dict[AccountRecord, Sequence[Limit]] = {}
        # Limits without those that lend, by charge path with such a limit.
        self._limits_of_borrowers: dict[ChargePath, list[AccountLimit]] = {}
        self._lending = False
        # Set during a turn under a plan of start reservations.
        self.reserved_quota: ReservedQuota | None = None

    def account_limits(self, charge_path: ChargePath) -> list[AccountLimit]:
        """Return all limits on the charge path, leaf first."""
        account_limits = self._account_limits.get(charge_path)
        if account_limits is None:
            self._ledger.refresh_sums()
            present_path = self._ledger.present_path(charge_path)
            if self._unlimited.contain_all(present_path.path, self._ledger.rebuilds):
                account_limits = self._account_limits[charge_path] = []
                return account_limits
            account_limits = self._account_limits[charge_path] = list(self._find(present_path))
            for account_limit in account_limits:
                if account_limit.limit.lends:
                    self._limits_of_borrowers[charge_path] = [
                        msgspec.structs.replace(each, strict=True)
                        for each in account_limits
                        if not each.limit.lends
                    ]
                    break
        return self._limits_of_borrowers.get(charge_path, account_limits) if self._lending else account_limits

    def forget_limits(self) -> None:
        """Compute all limits again at their next use: requests have changed before the first decision."""
        self._account_limits.clear()
        self._own_limits.clear()
        self._limits_of_borrowers.clear()

    @property
    def any_lends(self) -> bool:
        """Whether a limit that lends was found so far."""
        return bool(self._limits_of_borrowers)

    def lends(self, charge_path: ChargePath) -> bool:
        """Return whether a limit on the charge path lends."""
        if charge_path not in self._account_limits:
            self.account_limits(charge_path)
        return charge_path in self._limits_of_borrowers

    def lending_accounts(self, charge_path: ChargePath) -> list[AccountRecord]:
        """Return the accounts on the charge path with a limit that lends."""
        return [each.account for each in self.account_limits(charge_path) if each.limit.lends]

    @contextmanager
    def lending(self) -> Iterator[None]:
        """Ignore the limits that lend."""
        self._lending = True
        try:
            yield
        finally:
            self._lending = False

    def room(self, charge_path: ChargePath | None, footprint: Footprint) -> int:
        """Return the number of further pods with this footprint that the charge path allows.

        Upstream also compares some resources that the pod does not request (docs/rules/coscheduling.md, 3.1).
        """
        return self.room_for(charge_path, footprint.amounts) if charge_path is not None else UNLIMITED

    def room_for(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
        """Return the number of times that the amounts are allowed on top of present usage."""
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
        """Return the first limit on the path that refuses `count` more pods; None if there is none.

        The change that would raise it is included only if no other limit refuses them.
        """
        account_limits = self.account_limits(charge_path) if charge_path is not None else []
        if charge_path is None or not account_limits:
            return None
        self._ledger.refresh_sums()
        refusing: list[OverQuota] = []
        followers: list[OverQuota] = []
        for account_limit in account_limits:
            plugin_limit = account_limit.limit
            for name, amount in footprint.amounts.items():
                wanted = amount * count
                if wanted <= 0 or name not in plugin_limit.limits:
                    continue
                if account_limit.refuses(name, wanted):
                    limit, used, _ = account_limit.state(name)
                    follows = used + wanted - limit <= plugin_limit.follows.get(name, -1)
                    at_max = limit >= plugin_limit.max.get(name, UNLIMITED)
                    (followers if follows else refusing).append(
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
                            nodes_help=self.nodes_come and account_limit.grows_with_nodes(name),
                        )
                    )
        refusing = refusing or followers
        if not refusing:
            return self._over_reserved(charge_path, footprint, placed, need, culprit)
        # A declared limit explains more than a limit that is computed from it.
        first = min(refusing, key=lambda excess: 0 if excess.change else 1 if excess.hint else 2)
        return first if len(refusing) == 1 else msgspec.structs.replace(first, change="")

    def _over_reserved(
        self, charge_path: ChargePath, footprint: Footprint, placed: int, need: int, culprit: int
    ) -> OverQuota | None:
        """Return the limit that refuses one more pod beside reserved windows; None if there is none."""
        if self.reserved_quota is None or not self.account_limits(charge_path):
            return None
        excess = self.reserved_quota.excess(charge_path, footprint.amounts)
        if excess is None:
            return None
        account_limit, name, usage = excess
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
            kept=usage - used,
        )

    def overdrawn(self, charge_paths: Mapping[ChargePath, Mapping[str, int]]) -> Iterator[AccountRecord]:
        """Yield the accounts on the charge paths that exceed a limit in a requested resource."""
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
            own_limits = self._own_limits.get(account)
            if own_limits is None:
                own_limits = self._own_limits[account] = self._limits_of(account)
            for plugin_limit in own_limits:
                if plugin_limit.limits:
                    yield AccountLimit(account, plugin_limit, tuple(below))
            below.append(account)
