"""When to try again, and when not: back-off, and which repeats are safe."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from phalanx.kube.errors import ApiError, ConnectionLost, Unreachable

__all__ = ["Backoff", "RetryPolicy"]

R = TypeVar("R")

#: Methods whose repeat changes nothing that the first did not.
_SAFE = frozenset({"GET", "HEAD"})
#: Answers that say "not now" rather than "no".
_PASSING = frozenset({500, 502, 503, 504})


@dataclass
class Backoff:
    """Growing pauses for one loop: ``base`` doubling to ``cap`` seconds, each drawn from its upper half.

    A loop that has been healthy starts again from ``base`` (the caller says so with ``reset``). A server's
    Retry-After is a floor for the pause, never a ceiling, and is capped as well, so that a nonsensical header
    cannot park us.
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
    """Repeats of one request.

    ``attempts`` counts the first one. ``guarded`` in the methods below means: the request carries a uid or a
    resourceVersion, or sets what it sets absolutely (a merge patch), so that sending it twice can only meet
    the object that was meant and leave it as once would have.
    """

    attempts: int = 5
    base: float = 0.1
    factor: float = 2.0
    cap: float = 10.0
    random: Callable[[], float] = field(default=random.random, repr=False)
    sleep: Callable[[float], Awaitable[object]] = field(default=asyncio.sleep, repr=False)

    def retryable(self, error: BaseException, method: str, *, guarded: bool = False) -> bool:
        """Whether sending the same request again is safe and may help.

        429, and a connection that never was: always, nothing had happened. Lost answers and 5xx, where the
        write may have happened: only reads and guarded writes. Every other answer is final.
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
        """Call ``send`` until it succeeds, fails for good, or has been called ``attempts`` times."""
        backoff = self.backoff()
        for left in range(self.attempts - 1, -1, -1):
            try:
                return await send()
            except (ApiError, ConnectionLost) as error:
                if left == 0 or not self.retryable(error, method, guarded=guarded):
                    raise
                await self.sleep(backoff.next(error.retry_after if isinstance(error, ApiError) else None))
        raise ValueError("a RetryPolicy needs at least one attempt")
