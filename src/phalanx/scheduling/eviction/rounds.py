"""When plugins last did what they do only now and then."""

from __future__ import annotations


class Rounds:
    """Kept by the scheduler over cycles, by the names of plugins. Nothing of it survives a restart."""

    def __init__(self) -> None:
        self._last: dict[str, float] = {}

    def begin(self, who: str, period: float, now: float, *, at_once: bool) -> bool:
        """Whether a round starts now, at least `period` seconds after the last; if so it is noted.

        The first one is due when it is first asked for (`at_once`), or a period later.
        """
        last = self._last.get(who)
        if last is None and not at_once:
            self._last[who] = now
            return False
        if last is not None and now < last + period:
            return False
        self._last[who] = now
        return True

    def next(self, who: str, period: float) -> float | None:
        """When the next round is due; None if nobody has asked for one yet."""
        last = self._last.get(who)
        return None if last is None else last + period
