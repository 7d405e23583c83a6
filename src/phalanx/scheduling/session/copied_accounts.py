"""Copy of the queues and quotas at one moment, for computations in another thread while planning continues."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

from phalanx.cluster.account_copies import AccountCopies
from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey
from phalanx.scheduling.session.session import Session

T = TypeVar("T")


class CopiedAccounts:
    """The session's `AccountView` on copied queues and quotas. It does not change until the copies are
    refreshed."""

    def __init__(self, session: Session, copies: AccountCopies) -> None:
        self.now = session.now
        self.usage_decay = decay = session.usage_decay
        self.ledger = copies
        shifts = bool(decay.shift and decay.half_life is not None)
        self.history = CopiedUsage(session, copies if shifts else None)
        self._totals = session.totals()
        self._offered, self._usable = session.offered(), session.usable()
        self._memo: dict[Hashable, Any] = {}

    def memo(self, key: Hashable, compute: Callable[[], T]) -> T:
        if key not in self._memo:
            self._memo[key] = compute()
        value: T = self._memo[key]
        return value

    def totals(self) -> dict[str, tuple[int, int]]:
        return self._totals

    def offered(self) -> Mapping[str, int]:
        return self._offered

    def usable(self) -> Mapping[str, int]:
        return self._usable


class CopiedUsage:
    """Past usage of copied queues and quotas; empty where it does not change any share."""

    def __init__(self, session: Session, copies: AccountCopies | None) -> None:
        self._averages: dict[AccountKey, Mapping[str, float]] = {}
        if copies is not None:
            accounts = session.ledger.accounts
            self._averages = {
                key: dict(session.history.decayed(accounts[key], session.now)) for key in copies.accounts
            }

    def decayed(self, record: AccountRecord, now: float) -> Mapping[str, float]:
        return self._averages.get(record.key, {})
