"""Retries of API requests: the backoff between attempts, and the requests that are safe to repeat."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from phalanx.kube.errors import ApiError, ConnectionLost, Unreachable

__all__ = ["Backoff", "RetryPolicy"]

R = TypeVar("R")

#: Methods without side effects, which are always safe to repeat.
_SAFE = frozenset({"GET", "HEAD"})
#: Statuses of a temporary failure.
_PASSING = frozenset({500, 502, 503, 504})


@dataclass
class Backoff:
    """Growing pauses between the attempts of one loop: ``base`` doubles up to ``cap`` seconds, each pause is drawn
    from its upper half.

    A loop that has recovered starts again from ``base`` (its owner calls ``reset``). A server's
    Retry-After is a lower bound of the pause, and is capped as well, so that a nonsensical header
    cannot block the loop.
    """

    base: float = 0.8
    factor: float = 2.0
    cap: float = 30.0
    random: Callable[[], float] = random.random
    failures: int = 0

    def next(self, retry_after: float | None = None) -> float:
        pause = min(self.cap, self.base * self.factor ** min(self.failures, 32))
        self.failures += 1
        pause *= 0.5 + 0.5 * self.random()
        if retry_after is not None:
            pause = max(pause, min(retry_after, 4 * self.cap) * (1 + 0.1 * self.random()))
        return pause

    def reset(self) -> None:
        self.failures = 0


@dataclass(frozen=True)
class RetryPolicy:
    """Policy for the retries of one API request.

    ``attempts`` counts the first one. ``guarded`` in the methods below means that a repeat has no further effect:
    the request carries a uid or a resourceVersion, or sets absolute values (a merge patch).
    """

    attempts: int = 5
    base: float = 0.1
    factor: float = 2.0
    cap: float = 10.0
    random: Callable[[], float] = field(default=random.random, repr=False)
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False)

    def retryable(self, error: BaseException, method: str, *, guarded: bool = False) -> bool:
        """Return whether a failed request can be sent again safely and usefully.

        After 429 or without a connection: always, as nothing has happened. After a lost response or a 5xx the
        write can have happened: only reads and guarded writes. Every other response is final.
        """
        if isinstance(error, Unreachable):
            return True
        harmless = method in _SAFE or guarded
        if isinstance(error, ConnectionLost):
            return harmless
        if isinstance(error, ApiError):
            return error.status == 429 or (error.status in _PASSING and harmless)
        return False

    def backoff(self) -> Backoff:
        return Backoff(self.base, self.factor, self.cap, self.random)

    async def run(self, send: Callable[[], Awaitable[R]], method: str, *, guarded: bool = False) -> R:
        """Call ``send`` until it succeeds, fails with a final error, or was called ``attempts`` times."""
        backoff = self.backoff()
        for attempts_left in range(self.attempts - 1, -1, -1):
            try:
                return await send()
            except (ApiError, ConnectionLost) as error:
                if attempts_left == 0 or not self.retryable(error, method, guarded=guarded):
                    raise
                await self.sleep(backoff.next(error.retry_after if isinstance(error, ApiError) else None))
        raise ValueError("a RetryPolicy needs at least one attempt")
