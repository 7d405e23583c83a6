"""Deadlines of the requests of one event loop, under a single timer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Deadlines"]


class Deadlines:
    """Times (of the event loop) by which something must have ended, each with the call that ends it otherwise.

    Nearly every request ends long before its deadline, and all have nearly the same limit. A timer for each one
    would enter and leave the heap of the event loop, which costs as much as parsing the response. This timer stays
    until the earliest deadline, and is then set for the next one.
    """

    def __init__(self) -> None:
        self._pending: dict[object, tuple[float, Callable[[], None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def begin(self, key: object, deadline: float, expired: Callable[[], None]) -> None:
        """Call `expired` at `deadline` unless `end` is called before. A key has one deadline at a time."""
        self._pending[key] = (deadline, expired)
        if self._timer is None or deadline < self._due:
            self._set_timer(deadline)

    def end(self, key: object) -> None:
        self._pending.pop(key, None)

    def close(self) -> None:
        """Forget all deadlines."""
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self, due: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = due
        self._timer = asyncio.get_running_loop().call_at(due, self._expire)

    def _expire(self) -> None:
        # A timer can fire before its time by the resolution of the clock.
        self._timer, due = None, max(self._due, asyncio.get_running_loop().time())
        for key, (deadline, expired) in list(self._pending.items()):
            if deadline <= due:
                self.end(key)
                expired()
        if self._pending and self._timer is None:
            self._set_timer(min(deadline for deadline, _ in self._pending.values()))
