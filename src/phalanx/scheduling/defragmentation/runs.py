"""When pods are moved for those who wait, how many have been lately, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.recurrence import Occurrence, Recurrence
from phalanx.scheduling.framework.defragment_settings import DefragmentSettings
from phalanx.scheduling.queue.unschedulable import UnitKey

_HOUR = 3600
# What is booked is carried out within so many seconds, or not at all.
BOOKED_FOR = 60


class EvictionEntry(msgspec.Struct, frozen=True):
    """So many pods count against the budget of an hour until `until` (seconds since the epoch)."""

    until: int
    pods: int


class DefragmentationRuns:
    """Evictions are booked before they are decided, and where somebody keeps a record (`durable`) it must know of
    them first: whatever happens in between, no hour has more evictions than it may.

    `version` grows with every change of `entries`; `outcomes` counts runs by what came of them, `moved` pods.
    `notes` tell, by unit, why nobody moved for it although that would help.
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

    # when

    def due(self, settings: DefragmentSettings | None, now: float) -> bool:
        """Whether a run begins, or goes on, now."""
        window = self.window(settings, now)
        if window is None or now < window.start:
            return False
        if self._booked is not None and now < self._booked.until - _HOUR:
            return self._confirmed >= self.version
        return now >= self._next_run or self._next_run > now + (settings.interval if settings is not None else 0)

    def next_wake(self, settings: DefragmentSettings | None, now: float) -> float | None:
        """When there will be something to do, None for never."""
        window = self.window(settings, now)
        if window is None:
            return None
        if now < window.start:
            return float(window.start)
        assert settings is not None
        # Whoever writes down what is booked wakes the scheduler himself.
        return min(max(now, min(self._next_run, now + settings.interval)), float(window.end))

    def window(self, settings: DefragmentSettings | None, now: float) -> Occurrence | None:
        """The window that is open now, else the next one."""
        if settings is None:
            return None
        if self._window is not None:
            windows, asked, found = self._window
            if windows == settings.windows and asked <= now and (found is None or now < found.end):
                return found
        found = next_window(settings.windows, now)
        self._window = settings.windows, now, found
        return found

    def begin(self, settings: DefragmentSettings, now: float) -> None:
        """A run begins, or goes on with what is booked: the next one comes an interval later."""
        if self._booked is not None and now >= self._booked.until - _HOUR:
            self.finish_run(now, 0)
        self._next_run = now + settings.interval
        self.notes.clear()

    def note(self, of: GangKey | str) -> str:
        """Return why no pod was moved for a gang, or a pod by its uid, although that would help; "" for nothing."""
        return next(
            (text for key, text in self.notes.items() if key == of or (isinstance(key, tuple) and of in key)), ""
        )

    # the budget

    def left(self, settings: DefragmentSettings, now: float) -> int:
        """How many pods may go now; of what is booked, that."""
        if self._booked is not None:
            return self._booked.pods
        self._forget(now)
        return max(0, settings.per_hour - sum(entry.pods for entry in self.entries))

    def free_at(self, settings: DefragmentSettings, now: float, pods: int) -> int | None:
        """When so many may go; None if never."""
        self._forget(now)
        left = settings.per_hour - sum(entry.pods for entry in self.entries)
        for entry in sorted(self.entries, key=lambda entry: entry.until):
            if left >= pods:
                break
            left += entry.pods
            now = entry.until
        return int(now) if left >= pods else None

    def book(self, now: float, pods: int) -> bool:
        """Counts pods that are about to be told to go; whether they may be told at once."""
        if self._booked is not None:
            return True
        self._booked = EvictionEntry(int(now) + BOOKED_FOR + _HOUR, pods)
        self.entries.append(self._booked)
        self.version += 1
        return not self.durable

    def finish_run(self, now: float, pods: int) -> None:
        """So many were told to go; what else was booked is free again."""
        if self._booked is not None:
            self.entries = [entry for entry in self.entries if entry is not self._booked]
            self._booked = None
            self.version += 1
        if pods:
            self.entries.append(EvictionEntry(-int(-now // 1) + _HOUR, pods))
            self.moved += pods

    def confirm(self, version: int) -> bool:
        """The entries are written down as they were in this version; whether that was waited for."""
        self._confirmed = version
        return self._booked is not None and version == self.version

    def load(self, entries: Sequence[EvictionEntry], now: float) -> None:
        """What an earlier process has booked counts on: nobody knows what became of it."""
        self.entries = [entry for entry in entries if entry.pods > 0] + self.entries
        self.durable = True
        self._forget(now)

    def _forget(self, now: float) -> None:
        """What is over; and nothing counts for longer than if it were booked now, should the clock be put back."""
        latest = int(now) + BOOKED_FOR + _HOUR
        self.entries = [
            entry if entry.until <= latest or entry is self._booked else EvictionEntry(latest, entry.pods)
            for entry in self.entries
            if entry.until > now
        ]


def next_window(windows: Recurrence, now: float) -> Occurrence | None:
    """The occurrence that `now` is in, else the next one; None if none comes any more."""
    open_now = windows.occurrences(int(now), int(now) + 1)
    if open_now:
        return Occurrence(open_now[0].start, open_now[-1].end)
    start = windows.next_start(int(now))
    return Occurrence(start, start + windows.duration) if start is not None else None
