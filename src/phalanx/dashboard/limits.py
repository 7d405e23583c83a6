"""Rate limits of HTTP requests, so that no client can cause unlimited requests to the API server."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable

_MOST_ADDRESSES = 10_000


class RateLimits:
    """Token buckets that limit HTTP requests.

    `per_address` requests a second from one address, `in_all` from all; bursts of twice as many.
    """

    def __init__(
        self, per_address: float = 100.0, in_all: float = 500.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._per_address, self._in_all = per_address, in_all
        self._clock = clock
        self._all = _Bucket(2 * in_all, clock())
        self._addresses: OrderedDict[str, _Bucket] = OrderedDict()

    def allow(self, address: str) -> bool:
        now = self._clock()
        bucket = self._addresses.get(address)
        if bucket is None:
            bucket = self._addresses[address] = _Bucket(2 * self._per_address, now)
            if len(self._addresses) > _MOST_ADDRESSES:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        # A request beyond the limit of its address consumes no token of the common bucket.
        return bucket.take(now, self._per_address) and self._all.take(now, self._in_all)


class _Bucket:
    __slots__ = ("_left", "_most", "_when")

    def __init__(self, capacity: float, now: float) -> None:
        self._most = self._left = capacity
        self._when = now

    def take(self, now: float, rate: float) -> bool:
        self._left = min(self._most, self._left + (now - self._when) * rate)
        self._when = now
        if self._left < 1:
            return False
        self._left -= 1
        return True
