"""Whether the API server can be reached, as all requests of one client see it together."""

from __future__ import annotations

import asyncio
import logging

__all__ = ["Contact"]


class Contact:
    """Whoever waits before he tries again learns of the first answer that anybody gets."""

    def __init__(self) -> None:
        self._lost = False
        # Why those wait who have not reached it yet.
        self._awaited = ""
        self._waiting: set[asyncio.Future[None]] = set()

    @property
    def level(self) -> int:
        """How loudly to log that a request has failed: that the server is away has been told, once for all."""
        return logging.DEBUG if self._lost else logging.WARNING

    def awaited(self, reason: str) -> bool:
        """Somebody waits for a first answer for this reason ("" where it has come); True if that is news."""
        news, self._awaited = reason != self._awaited, reason
        return news

    def lost(self) -> bool:
        """Nobody could be reached just now; True for the first who finds that."""
        news, self._lost = not self._lost, True
        return news

    def answered(self) -> bool:
        """The server has answered, whatever it said; True where it had been lost."""
        news, self._lost = self._lost, False
        if news:
            waiting, self._waiting = self._waiting, set()
            for each in waiting:
                if not each.done():
                    each.set_result(None)
        return news

    def next_answer(self) -> asyncio.Future[None]:
        """Done when a server that had been lost answers again; to be cancelled by whoever waits no more."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        future.add_done_callback(self._waiting.discard)
        return future
