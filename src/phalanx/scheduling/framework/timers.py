"""Timers of plugins that act periodically, such as `rescheduling`."""

from __future__ import annotations


class Timers:
    """Times of the last periodic action by plugin name. The scheduler owns the timers across cycles; a restart
    resets them."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def due(self, plugin: str, period: float, now: float) -> bool:
        """Return whether the plugin last acted at least `period` seconds ago, or never."""
        last = self._last.get(plugin)
        return last is None or now >= last + period

    def begin(self, plugin: str, now: float) -> None:
        self._last[plugin] = now

    def next(self, plugin: str, period: float) -> float | None:
        """Return when the plugin's next periodic action is due; None before the first one."""
        last = self._last.get(plugin)
        return None if last is None else last + period
