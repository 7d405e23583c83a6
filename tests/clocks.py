"""Clocks of the running event loop that tests control, so that no test waits for seconds or depends on them."""

from __future__ import annotations

import asyncio
from typing import Any


def skip_time(seconds: float) -> None:
    """Advance the clock of the running event loop: its timers until then are due."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    loop.time = lambda: clock() + seconds  # type: ignore[method-assign]


def use_virtual_time() -> None:
    """Make the clock of the running event loop jump to the next timer whenever the loop is idle.

    For tests without sockets and threads: waiting for those would not advance the clock.
    """
    loop: Any = asyncio.get_running_loop()
    now = loop.time()
    select = loop._selector.select

    def select_at_once(timeout: float | None = None) -> Any:
        nonlocal now
        if timeout is None:
            return select(None)
        events = select(0)
        if not events:
            now += timeout
        return events

    loop.time = lambda: now
    loop._selector.select = select_at_once
