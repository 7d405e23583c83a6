"""Daily windows between two times of the clock."""

from __future__ import annotations

import re
from collections.abc import Iterable

from phalanx.model.text.decoding import quoted

_DAY = 24 * 3600
_WINDOW = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])-([01]?[0-9]|2[0-3]):([0-5][0-9])")
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-5][0-9])")


class DailyWindow:
    """Daily window from `start` to `end`, in seconds since midnight on a clock `offset` seconds ahead of UTC.

    Times are in seconds since the epoch. A window whose end is before its start crosses midnight; with equal start
    and end it is always open.
    """

    def __init__(self, start: int, end: int, offset: int = 0) -> None:
        self._start = (start - offset) % _DAY
        self._length = (end - start) % _DAY or _DAY
        self._end = end
        self._offset = offset

    @classmethod
    def parse(cls, text: str, offset: int = 0) -> DailyWindow:
        """Parse a daily window `HH:MM-HH:MM`. Raises ValueError."""
        match = _WINDOW.fullmatch(text)
        if match is None:
            raise ValueError(f"{quoted(text)} is not a window such as 22:00-06:00")
        hours, minutes, end_hours, end_minutes = map(int, match.groups())
        return cls(hours * 3600 + minutes * 60, end_hours * 3600 + end_minutes * 60, offset)

    @property
    def end(self) -> str:
        """Closing time of the window for users, such as `06:00 UTC`."""
        return f"{_clock(self._end)} {'UTC' if not self._offset else f'UTC{_signed(self._offset)}'}"

    def is_open(self, now: float) -> bool:
        return (now - self._start) % _DAY < self._length

    def next_turn(self, now: float) -> float | None:
        """Return the time at which the window next opens or closes; None if it never does."""
        if self._length == _DAY:
            return None
        opened = (now - self._start) // _DAY * _DAY + self._start
        return min(turn for turn in (opened + self._length, opened + _DAY) if turn > now)


def next_turn(windows: Iterable[DailyWindow], now: float) -> float | None:
    """Return the time at which any of the windows next opens or closes; None if there is none."""
    turns = (window.next_turn(now) for window in windows)
    return min((turn for turn in turns if turn is not None), default=None)


def parse_offset(text: str) -> int:
    """Parse an offset from UTC such as `+08:00` into seconds. Raises ValueError."""
    match = _OFFSET.fullmatch(text)
    seconds = int(match[2]) * 3600 + int(match[3]) * 60 if match is not None else _DAY
    if match is None or seconds > 14 * 3600:
        raise ValueError(f"{quoted(text)} is not an offset from UTC such as +08:00")
    return -seconds if match[1] == "-" else seconds


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02}:{seconds % 3600 // 60:02}"


def _signed(offset: int) -> str:
    return f"{'-' if offset < 0 else '+'}{_clock(abs(offset))}"
