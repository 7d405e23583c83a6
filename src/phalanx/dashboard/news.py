"""Notification of event streams about changed tables, at the same moments for all, so that streams share their
deltas."""

from __future__ import annotations

import asyncio


class News:
    """Notifier of changed tables. The first change after a quiet period is announced at once, later changes once in
    `pause` seconds.

    Streams that wake together have the same versions and receive the same delta. `number` counts the notifications.
    """

    def __init__(self, pause: float = 1.0) -> None:
        self._pause = pause
        self._waiters: set[asyncio.Event] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._told = float("-inf")
        self.number = 0

    def subscribe(self) -> asyncio.Event:
        """Return an event that is set after table changes. The subscriber clears it."""
        event = asyncio.Event()
        self._waiters.add(event)
        return event

    def unsubscribe(self, event: asyncio.Event) -> None:
        self._waiters.discard(event)

    def tell(self) -> None:
        """Announce a table change to all subscribers."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self._told + self._pause - loop.time()), self._set)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set(self) -> None:
        self._timer = None
        self._told = asyncio.get_running_loop().time()
        self.number += 1
        for event in self._waiters:
            event.set()
