"""Calls that are made until somebody answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.retry import Backoff

T = TypeVar("T")

# What a server that is busy or comes up again answers.
_PASSING = (429, 500, 502, 503, 504)


async def persist(call: Callable[[], Awaitable[T]], pause: Callable[[float], Awaitable[object]]) -> T:
    """What the call answers: a refusal that will not pass is raised (ApiError), everything else asked again.

    Only for reads, and for writes that carry the revision that they are about: those take effect once.
    """
    backoff = Backoff(base=0.1, cap=5.0)
    while True:
        try:
            return await call()
        except (ConnectionLost, ConfigError):
            await pause(backoff.next())
        except ApiError as error:
            if error.status not in _PASSING:
                raise
            await pause(backoff.next(error.retry_after))
