"""What queues deserve, for those who ask now and then: worked out beside planning, and only where it may differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from phalanx.cluster.account_copies import AccountCopies
from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.ordering.entitlements import ToldShares
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.session.copied_accounts import CopiedAccounts
from phalanx.scheduling.session.session import Session

Share = Callable[[AccountRecord], Mapping[str, int]]

# What plugins of third parties say is good for so many seconds, and for so many times what it took to ask them.
_GOOD_FOR, _GOOD_FOR_TIMES, _GOOD_FOR_AT_MOST = 1.0, 20.0, 15.0


class DeservedShares:
    """What the policy gives each queue, as `phalanx queue list` shows it.

    With ten thousand queues that takes a quarter of a second. Our own plugins work it out from a copy of the
    accounts, when the first share is asked for, in whatever thread. Others may look at anything: they are asked at
    once, and for some seconds not again. `now` is in seconds since the epoch, `clock` in monotonic ones.
    """

    def __init__(
        self,
        scheduler: Callable[[], Scheduler],
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scheduler = scheduler
        self._now = now
        self._clock = clock
        self._basis: tuple[object, int] | None = None
        self._share: Share = nothing
        self._good_until = 0.0

    def as_of(self, copies: AccountCopies) -> Share | None:
        """What the accounts that were copied deserve; None where the policy does not say. To be called by whoever
        changes the cluster, before it does; the answer may be asked by one thread."""
        scheduler = self._scheduler()
        plugin_runtime = scheduler.plugin_runtime
        plugins = plugin_runtime.plugins("deserved")
        if not plugins:
            return None
        basis = plugin_runtime, copies.demand_version
        if basis == self._basis:
            return self._share
        if all(plugin.deserved_from_accounts for plugin in plugins):
            view = CopiedAccounts(scheduler.new_session(self._now()), copies)
            share: Share = _Later(lambda: ToldShares(view, plugin_runtime)).of
        elif self._basis is not None and self._basis[0] is plugin_runtime and self._clock() < self._good_until:
            return self._share
        else:
            begun = self._clock()
            share = _told_now(scheduler.new_session(self._now()))
            now = self._clock()
            good_for = min(_GOOD_FOR_AT_MOST, max(_GOOD_FOR, _GOOD_FOR_TIMES * (now - begun)))
            self._good_until = now + good_for
        self._basis, self._share = basis, share
        return share


def nothing(queue: AccountRecord) -> Mapping[str, int]:
    return {}


class _Later:
    """Begins with the first question."""

    def __init__(self, begin: Callable[[], ToldShares]) -> None:
        self._begin = begin
        self._shares: ToldShares | None = None

    def of(self, queue: AccountRecord) -> Mapping[str, int]:
        if self._shares is None:
            self._shares = self._begin()
        return self._shares.of("deserved", queue)


def _told_now(session: Session) -> Share:
    shares = ToldShares(session, session.plugin_runtime)
    told: dict[AccountKey, Mapping[str, int]] = {
        key: shares.of("deserved", record)
        for key, record in session.ledger.accounts.items()
        if key.tree is Tree.QUEUE
    }
    return lambda queue: told.get(queue.key, {})
