"""Deserved shares of queues for metrics: computed outside planning, and only after a change."""

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

# Seconds for which the answers of third-party plugins are cached: a minimum, a multiple of their cost, a maximum.
_GOOD_FOR, _GOOD_FOR_TIMES, _GOOD_FOR_AT_MOST = 1.0, 20.0, 15.0


class DeservedShares:
    """Deserved shares that the policy gives each queue, as `phalanx queue list` shows them.

    The computation takes 0.25 s for 10,000 queues. Built-in plugins compute from a copy of the accounts, in the
    thread that reads the first share. Third-party plugins can read any state: they are called at once, and their
    answers are cached for seconds. `now` is in seconds since the epoch, `clock` in monotonic ones.
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
        """Return the deserved shares of the copied queues; None if the policy computes none.

        Must be called by the thread that changes the cluster, before it does; one thread at a time calls the
        result.
        """
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
            share = _computed_now(scheduler.new_session(self._now()))
            now = self._clock()
            good_for = min(_GOOD_FOR_AT_MOST, max(_GOOD_FOR, _GOOD_FOR_TIMES * (now - begun)))
            self._good_until = now + good_for
        self._basis, self._share = basis, share
        return share


def nothing(queue: AccountRecord) -> Mapping[str, int]:
    return {}


class _Later:
    """Deserved shares that are computed at the first call."""

    def __init__(self, begin: Callable[[], ToldShares]) -> None:
        self._begin = begin
        self._shares: ToldShares | None = None

    def of(self, queue: AccountRecord) -> Mapping[str, int]:
        if self._shares is None:
            self._shares = self._begin()
        return self._shares.of("deserved", queue)


def _computed_now(session: Session) -> Share:
    shares = ToldShares(session, session.plugin_runtime)
    deserved: dict[AccountKey, Mapping[str, int]] = {
        key: shares.of("deserved", record)
        for key, record in session.ledger.accounts.items()
        if key.tree is Tree.QUEUE
    }
    return lambda queue: deserved.get(queue.key, {})
