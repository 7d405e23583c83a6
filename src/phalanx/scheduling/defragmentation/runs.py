"""Times, hourly eviction budget and outcomes of defragmentation runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.recurrence import Occurrence, Recurrence
from phalanx.scheduling.framework.defragment_settings import DefragmentSettings
from phalanx.scheduling.queue.unschedulable import UnitKey

_HOUR = 3600
# Booked evictions are executed within this many seconds, or not at all.
BOOKED_FOR = 60


class EvictionEntry(msgspec.Struct, frozen=True):
    """Evicted pods that count against the hourly budget until `until` (seconds since the epoch)."""

    until: int
    pods: int


class DefragmentationRuns:
    """Hourly eviction budget and state of defragmentation runs.

    Evictions are booked before they are decided. With a stored record (`durable`) the booking must be stored first:
    no hour exceeds its budget, even across a crash. `version` grows with every change of `entries`; `outcomes`
    counts runs by outcome; `moved` counts pods. `notes` is, by unit, the reason why no pod moved for it although
    moves would help.
    """

    def __init__(self) -> None:
        self.entries: list[EvictionEntry] = []
        self.version = 0
        self.durable = False
        self.outcomes = Counter[str]()
        self.moved = 0
        self.notes: dict[UnitKey, str] = {}
        self._confirmed = 0
        self._booked: EvictionEntry | None = None
        self._next_run = 0.0
        self._window: tuple[Recurrence, float, Occurrence | None] | None = None

    # Times

    def due(self, settings: DefragmentSettings | None, now: float) -> bool:
        """Return whether a defragmentation run begins or continues now."""
        window = self.window(settings, now)
        if window is None or now < window.start:
            return False
        if self._booked is not None and now < self._booked.until - _HOUR:
            return self._confirmed >= self.version
        return now >= self._next_run or self._next_run > now + (settings.interval if settings is not None else 0)

    def next_wake(self, settings: DefragmentSettings | None, now: float) -> float | None:
        """Return the time at which defragmentation next needs a cycle; None for never."""
        window = self.window(settings, now)
        if window is None:
            return None
        if now < window.start:
            return float(window.start)
        assert settings is not None
        # The writer of the stored record wakes the scheduler after a booking.
        return min(max(now, min(self._next_run, now + settings.interval)), float(window.end))

    def window(self, settings: DefragmentSettings | None, now: float) -> Occurrence | None:
        """Return the defragmentation window that is open now, else the next one."""
        if settings is None:
            return None
        if self._window is not None:
            windows, asked_at, occurrence = self._window
            if windows == settings.windows and asked_at <= now and (occurrence is None or now < occurrence.end):
                return occurrence
        occurrence = next_window(settings.windows, now)
        self._window = settings.windows, now, occurrence
        return occurrence

    def begin(self, settings: DefragmentSettings, now: float) -> None:
        """Begin a defragmentation run, or continue with the evictions reserved for it; the next run is due an
        interval later."""
        if self._booked is not None and now >= self._booked.until - _HOUR:
            self.finish_run(now, 0)
        self._next_run = now + settings.interval
        self.notes.clear()

    def note(self, of: GangKey | str) -> str:
        """Return the reason why no pod moved for a gang, or for a pod by its uid; "" for none."""
        return next(
            (text for key, text in self.notes.items() if key == of or (isinstance(key, tuple) and of in key)), ""
        )

    # Budget

    def left(self, settings: DefragmentSettings, now: float) -> int:
        """Return the number of pods that the run can evict now: those reserved for it, else the rest of the hourly
        budget."""
        if self._booked is not None:
            return self._booked.pods
        self._forget(now)
        return max(0, settings.per_hour - sum(entry.pods for entry in self.entries))

    def free_at(self, settings: DefragmentSettings, now: float, pods: int) -> int | None:
        """Return the time at which the hourly budget allows this many evictions; None for never."""
        self._forget(now)
        available = settings.per_hour - sum(entry.pods for entry in self.entries)
        for entry in sorted(self.entries, key=lambda entry: entry.until):
            if available >= pods:
                break
            available += entry.pods
            now = entry.until
        return int(now) if available >= pods else None

    def book(self, now: float, pods: int) -> bool:
        """Reserve a number of evictions in the hourly budget before they are decided; return whether the pods can
        be evicted at once."""
        if self._booked is not None:
            return True
        self._booked = EvictionEntry(int(now) + BOOKED_FOR + _HOUR, pods)
        self.entries.append(self._booked)
        self.version += 1
        return not self.durable

    def finish_run(self, now: float, pods: int) -> None:
        """End a defragmentation run that has evicted this many pods; the rest of the evictions that it had reserved
        in the hourly budget is released."""
        if self._booked is not None:
            self.entries = [entry for entry in self.entries if entry is not self._booked]
            self._booked = None
            self.version += 1
        if pods:
            self.entries.append(EvictionEntry(-int(-now // 1) + _HOUR, pods))
            self.moved += pods

    def confirm(self, version: int) -> bool:
        """Record that the entries of the hourly budget up to `version` are stored; return whether reserved
        evictions were waiting for that."""
        self._confirmed = version
        return self._booked is not None and version == self.version

    def load(self, entries: Sequence[EvictionEntry], now: float) -> None:
        """Load the reserved evictions of an earlier process. They count in full: their outcome is unknown."""
        self.entries = [entry for entry in entries if entry.pods > 0] + self.entries
        self.durable = True
        self._forget(now)

    def _forget(self, now: float) -> None:
        """Remove expired entries from the hourly budget.

        An entry counts at most as long as one booked now, even if the clock was set back.
        """
        latest = int(now) + BOOKED_FOR + _HOUR
        self.entries = [
            entry if entry.until <= latest or entry is self._booked else EvictionEntry(latest, entry.pods)
            for entry in self.entries
            if entry.until > now
        ]


def next_window(windows: Recurrence, now: float) -> Occurrence | None:
    """Return the window's occurrence at `now`, else the next one; None if there is none."""
    open_now = windows.occurrences(int(now), int(now) + 1)
    if open_now:
        return Occurrence(open_now[0].start, open_now[-1].end)
    start = windows.next_start(int(now))
    return Occurrence(start, start + windows.duration) if start is not None else None
