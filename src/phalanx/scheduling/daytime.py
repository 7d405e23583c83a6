"""Windows of the day: from one time of the clock to another, every day."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta, tzinfo

_WINDOW = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])-([01]?[0-9]|2[0-3]):([0-5][0-9])")


class Window:
    """Open from `start` up to `end`, minutes since midnight by the clock of `zone`. Times are in seconds since the
    epoch. Where the clock is put forward or back, a window begins and ends when the clock shows it to.
    """

    def __init__(self, start: int, end: int, zone: tzinfo = UTC) -> None:
        self.start = start
        self.end = end
        self.zone = zone

    @classmethod
    def parse(cls, text: str, zone: tzinfo = UTC) -> Window:
        """Reads `HH:MM-HH:MM`. Raises ValueError."""
        found = _WINDOW.fullmatch(text.strip())
        if found is None:
            raise ValueError(f"{text!r} is not a window such as 22:00-06:00")
        hours, minutes, end_hours, end_minutes = map(int, found.groups())
        return cls(hours * 60 + minutes, end_hours * 60 + end_minutes, zone)

    @property
    def always(self) -> bool:
        return self.start == self.end

    @property
    def end_text(self) -> str:
        return f"{self.end // 60:02}:{self.end % 60:02} {self.zone}"

    def is_open(self, now: float) -> bool:
        return self.always or any(start <= now < end for start, end in self._around(now))

    def next_turn(self, now: float) -> float | None:
        """When it next opens or closes; None if it never does."""
        if self.always:
            return None
        return min(turn for span in self._around(now) for turn in span if turn > now)

    def _around(self, now: float) -> list[tuple[float, float]]:
        """Its spans from yesterday's to the day after tomorrow's, apart from each other.

        Where the clock is put forward a span may come out empty or run into the next one.
        """
        today = datetime.fromtimestamp(now, self.zone).date()
        days = [today + timedelta(days=number) for number in (-1, 0, 1, 2)]
        over_midnight = timedelta(days=1 if self.end < self.start else 0)
        spans: list[tuple[float, float]] = []
        for day in days:
            start, end = self._at(day, self.start), self._at(day + over_midnight, self.end)
            if spans and start <= spans[-1][1]:
                last = spans.pop()
                start, end = last[0], max(last[1], end)
            if start < end:
                spans.append((start, end))
        return spans

    def _at(self, day: date, minutes: int) -> float:
        return datetime(day.year, day.month, day.day, minutes // 60, minutes % 60, tzinfo=self.zone).timestamp()


def next_turn(windows: Iterable[Window], now: float) -> float | None:
    """When the first of them opens or closes."""
    turns = (window.next_turn(now) for window in windows)
    return min((turn for turn in turns if turn is not None), default=None)
