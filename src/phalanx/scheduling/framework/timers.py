"""Timers of plugins that act periodically."""

from __future__ import annotations


class Timers:
    """Last rounds by plugin name. The scheduler owns the timers across cycles; a restart resets them."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def due(self, plugin: str, period: float, now: float) -> bool:
        """Return whether the last round began at least `period` seconds ago, or there was none."""
        last = self._last.get(plugin)
        return last is None or now >= last + period

    def begin(self, plugin: str, now: float) -> None:
        self._last[plugin] = now

    def next(self, plugin: str, period: float) -> float | None:
        """Return when the next round is due; None before the first round."""
        last = self._last.get(plugin)
        return None if last is None else last + period
