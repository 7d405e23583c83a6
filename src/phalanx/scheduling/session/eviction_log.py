"""Log of evictions per account, for eviction rates across cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import AccountKey, EvictionRate
from phalanx.model.text.duration import format_duration

_DAY = 24 * 3600.0


class NotedEvictions(msgspec.Struct, frozen=True, order=True):
    """Evicted pods of an account at a moment, which count until another one; seconds since the epoch."""

    account: AccountKey
    when: float
    pods: int
    until: float


class EvictionLog:
    """Numbers of evicted pods per account and time, across cycles.

    Times are in seconds since the epoch, windows in seconds. An eviction counts for one whole window. `version`
    counts the entries.
    """

    def __init__(self) -> None:
        self.version = 0
        self._noted: dict[AccountKey, deque[tuple[float, int]]] = {}
        # Entries older than the longest requested window are removed.
        self._windows: dict[AccountKey, float] = {}

    @property
    def noted(self) -> int:
        """Number of entries."""
        return sum(map(len, self._noted.values()))

    def evicted(self, record: PodRecord, now: float) -> None:
        """Record an eviction for every account of the pod with an eviction rate."""
        for account, rate in rates(record):
            self._windows[account.key] = max(rate.window, self._windows.get(account.key, 0))
            self.note(account.key, now, 1)

    def note(self, account: AccountKey, now: float, pods: int) -> None:
        noted = self._noted.setdefault(account, deque())
        horizon = now - self._windows.get(account, _DAY)
        while noted and noted[0][0] <= horizon:
            noted.popleft()
        noted.append((now, pods))
        self.version += 1

    def count(self, account: AccountKey, now: float, window: float) -> int:
        """Return the number of evictions within the window that ends now."""
        self._windows[account] = max(window, self._windows.get(account, 0))
        return sum(pods for when, pods in self._noted.get(account, ()) if when > now - window)

    def export(self) -> list[NotedEvictions]:
        """Return all entries, for another process."""
        sums: dict[tuple[AccountKey, float], int] = {}
        for account, noted in self._noted.items():
            for when, pods in noted:
                sums[account, when] = sums.get((account, when), 0) + pods
        return [
            NotedEvictions(account, when, pods, when + self._windows.get(account, _DAY))
            for (account, when), pods in sorted(sums.items())
        ]

    def restore(self, entries: Iterable[NotedEvictions]) -> None:
        """Add the entries that another process has exported, before any own one."""
        for entry in sorted(entries, key=lambda entry: entry.when):
            window = max(entry.until - entry.when, self._windows.get(entry.account, 0))
            self._windows[entry.account] = window
            self.note(entry.account, entry.when, entry.pods)

    def free_at(self, account: AccountKey, now: float, rate: EvictionRate, pods: int = 1) -> float:
        """Return the earliest time, `now` or later, at which `pods` more evictions are allowed."""
        evicted = self.count(account, now, rate.window)
        for when, number in self._noted.get(account, ()):
            if when <= now - rate.window:
                continue
            if not evicted or evicted + pods <= rate.pods:
                break
            evicted -= number
            now = max(now, when + rate.window)
        return now


def rates(record: PodRecord) -> Iterator[tuple[AccountRecord, EvictionRate]]:
    """Yield the accounts on the pod's charge path with an eviction rate."""
    for account in record.charge_path.path if record.charge_path is not None else ():
        if account.spec is not None and account.spec.eviction_rate is not None:
            yield account, account.spec.eviction_rate


def pace(account: AccountRecord, rate: EvictionRate) -> str:
    """Return the rate as a sentence."""
    return f"{account.label} allows at most {rate.pods} evictions within {format_duration(rate.window)}"
