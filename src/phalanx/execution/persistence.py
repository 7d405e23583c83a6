"""Calls to the API that are repeated until the server answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.retry import Backoff

T = TypeVar("T")

# Status codes of an overloaded or starting server.
_PASSING = (429, 500, 502, 503, 504)


async def persist(call: Callable[[], Awaitable[T]], pause: Callable[[float], Awaitable[object]]) -> T:
    """Return the result of the call. Repeat it after transient errors; raise ApiError for a definite rejection.

    Use it only for reads, and for writes with a resourceVersion, which take effect once.
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
