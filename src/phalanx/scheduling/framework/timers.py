"""When plugins last did what they do only now and then."""

from __future__ import annotations


class Timers:
    """Kept by the scheduler over cycles, by the names of plugins. Nothing of it survives a restart."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def due(self, who: str, period: float, now: float) -> bool:
        """Whether the last round began at least `period` seconds ago, or none has begun yet."""
        last = self._last.get(who)
        return last is None or now >= last + period

    def begin(self, who: str, now: float) -> None:
        self._last[who] = now

    def next(self, who: str, period: float) -> float | None:
        """When the next round is due; None if none has begun yet."""
        last = self._last.get(who)
        return None if last is None else last + period
