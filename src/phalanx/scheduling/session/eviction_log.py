"""Who lost how many pods when: how fast accounts may lose pods is counted over cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import AccountKey, EvictionRate
from phalanx.model.text.duration import format_duration

_DAY = 24 * 3600.0


class EvictionLog:
    """When how many pods of an account were evicted, over cycles. Times are in seconds since the epoch, windows in
    seconds. An eviction counts for a whole window from its time on."""

    def __init__(self) -> None:
        self._noted: dict[AccountKey, deque[tuple[float, int]]] = {}
        # What is older than the longest window that was asked about is forgotten.
        self._windows: dict[AccountKey, float] = {}

    @property
    def noted(self) -> int:
        """How many notes are kept."""
        return sum(map(len, self._noted.values()))

    def evicted(self, record: PodRecord, now: float) -> None:
        """Notes that a pod is told to leave, with every account that cares."""
        for account, rate in rates(record):
            self._windows[account.key] = max(rate.window, self._windows.get(account.key, 0))
            self.note(account.key, now, 1)

    def note(self, account: AccountKey, now: float, pods: int) -> None:
        noted = self._noted.setdefault(account, deque())
        horizon = now - self._windows.get(account, _DAY)
        while noted and noted[0][0] <= horizon:
            noted.popleft()
        noted.append((now, pods))

    def count(self, account: AccountKey, now: float, window: float) -> int:
        """How many pods went within the window that ends now."""
        self._windows[account] = max(window, self._windows.get(account, 0))
        return sum(pods for when, pods in self._noted.get(account, ()) if when > now - window)

    def free_at(self, account: AccountKey, now: float, rate: EvictionRate, pods: int = 1) -> float:
        """The earliest time, `now` or later, at which so many more pods may go."""
        gone = self.count(account, now, rate.window)
        for when, number in self._noted.get(account, ()):
            if when <= now - rate.window:
                continue
            if not gone or gone + pods <= rate.pods:
                break
            gone -= number
            now = max(now, when + rate.window)
        return now


def rates(record: PodRecord) -> Iterator[tuple[AccountRecord, EvictionRate]]:
    """The accounts that the pod is charged to and that may lose so many pods only."""
    for account in record.charge_path.path if record.charge_path is not None else ():
        if account.spec is not None and account.spec.eviction_rate is not None:
            yield account, account.spec.eviction_rate


def pace(account: AccountRecord, rate: EvictionRate) -> str:
    """The rate as a sentence."""
    return f"{account.label} may lose no more than {rate.pods} pods within {format_duration(rate.window)}"
