"""Reachability of the API server, shared by all requests of one client."""

from __future__ import annotations

import asyncio
import logging

__all__ = ["Contact"]


class Contact:
    """Shared state of the connection to the API server: the first response to any request wakes all waiting
    callers."""

    def __init__(self) -> None:
        self._lost = False
        # Reason why callers still wait for a first response.
        self._awaited = ""
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def level(self) -> int:
        """Log level for a failed request: lower once the loss of the server has been logged."""
        return logging.DEBUG if self._lost else logging.WARNING

    def awaited(self, reason: str) -> bool:
        """Record why a caller waits for the server's first response ("": the response has come). Return True if the
        reason is new."""
        news, self._awaited = reason != self._awaited, reason
        return news

    def lost(self) -> bool:
        """Record that the server is unreachable. Return True for the first caller that reports this."""
        news, self._lost = not self._lost, True
        return news

    def answered(self) -> bool:
        """Record any response of the server. Return True if the server was lost before."""
        news, self._lost = self._lost, False
        if news:
            waiters, self._waiting = self._waiting, set()
            for waiter in waiters:
                if not waiter.done():
                    waiter.set_result(None)
        return news

    def next_answer(self) -> asyncio.Future[None]:
        """Return a future for the server's first response after a loss; the caller cancels it when it stops
        waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future
