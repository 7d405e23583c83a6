"""How waits compare with the waits that were told: quantiles for the next ones, and how often those held."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from operator import add
from typing import Final

import msgspec

#: The quantiles that are computed, in percent: the interval of nine in ten, and three that are told.
PERCENTS: Final = (5, 50, 80, 90, 95)
TOLD: Final = (50, 80, 90)
#: So many starts are remembered, and so many of them tell whether the quantiles hold.
_MOST_STARTS: Final = 600
_SCORED: Final = 300
#: Fewer starts than these say nothing: of a bucket for a quantile (of it those that waited longer than a unit has
#: waited already), of all for whether quantiles hold.
_LEAST_OF_BUCKET: Final = 100
_LEAST_LONGER: Final = 30
_LEAST_SCORED: Final = 100
#: What is told to hold in 90 of 100 cases is shown while it holds in so many.
_BAND: Final = (80, 97)
#: A wait is compared with what was told in millionths.
_SCALE: Final = 1_000_000
_ALL: Final = (-1, -1)


class ObservedStart(msgspec.Struct, frozen=True, array_like=True):
    """A unit of so many `pods` was `told` how long it would wait, and `waited`; in whole seconds.

    `predicted` are the waits that the quantiles gave when it was told (`PERCENTS`), nothing where too few starts
    had been seen by then.
    """

    queue: str
    pods: int
    told: int
    waited: int
    predicted: tuple[int, ...] = ()


class Score(msgspec.Struct, frozen=True):
    """Of the last `starts` for which there were quantiles: how many waited at most as long as each of `TOLD` said,
    and the pinball loss of those three in hundredths of a second, in sum."""

    starts: int = 0
    covered: tuple[int, ...] = (0, 0, 0)
    pinball: int = 0

    @property
    def coverage(self) -> tuple[float, ...]:
        """By quantile, the part of the starts."""
        return tuple(count / self.starts if self.starts else 0.0 for count in self.covered)

    @property
    def pinball_loss(self) -> float:
        """The mean over starts and quantiles, in seconds."""
        return self.pinball / (100 * len(TOLD) * self.starts) if self.starts else 0.0

    @property
    def holds(self) -> bool:
        """Whether what is told to hold in 90 of 100 cases does about that."""
        low, high = _BAND
        return self.starts >= _LEAST_SCORED and low * self.starts <= 100 * self.covered[-1] <= high * self.starts


class _Result(msgspec.Struct, frozen=True):
    """Which of `TOLD` covered one start (0 or 1), and the pinball loss of the three."""

    queue: str
    covered: tuple[int, ...]
    pinball: int


def _sum(results: Sequence[_Result]) -> Score:
    covered = (sum(each.covered[place] for each in results) for place in range(len(TOLD)))
    return Score(len(results), tuple(covered), sum(each.pinball for each in results))


class StartCalibration:
    """The last starts, in the order in which they happened.

    A quantile is one of the ratios wait / told wait of those that were told about as long a wait and are about as
    large (QBETS takes past waits alone; the plan explains most of them); where those are few, of all
    that were told about as long a wait, else of all. `total` scores every start since the process began.
    """

    def __init__(self) -> None:
        self._starts: deque[ObservedStart] = deque()
        self._ratios: dict[tuple[int, int], list[int]] = {}
        self._results: deque[_Result] = deque(maxlen=_MOST_STARTS)
        self._scores: dict[str | None, Score] = {}
        self.total = Score()

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def starts(self) -> tuple[ObservedStart, ...]:
        """The oldest first; what `load` wants to go on from here."""
        return tuple(self._starts)

    def load(self, starts: Iterable[ObservedStart]) -> None:
        """What an earlier process has seen; what makes no sense is left out."""
        for start in starts:
            if start.told > 0 and start.waited >= 0 and len(start.predicted) in (0, len(PERCENTS)):
                self._add(start)

    def observe(self, start: ObservedStart) -> None:
        """A unit has started; one that was told of no wait says nothing."""
        if start.told > 0 and start.waited >= 0:
            self._add(start)
            if start.predicted:
                last, total = self._results[-1], self.total
                covered = tuple(map(add, total.covered, last.covered))
                self.total = Score(total.starts + 1, covered, total.pinball + last.pinball)

    def _add(self, start: ObservedStart) -> None:
        self._scores.clear()
        self._starts.append(start)
        if start.predicted:
            self._results.append(_result(start))
        for bucket in _buckets(start.told, start.pods):
            insort(self._ratios.setdefault(bucket, []), _ratio(start))
        if len(self._starts) > _MOST_STARTS:
            oldest = self._starts.popleft()
            for bucket in _buckets(oldest.told, oldest.pods):
                ratios = self._ratios[bucket]
                del ratios[bisect_right(ratios, _ratio(oldest)) - 1]
                if not ratios:
                    del self._ratios[bucket]

    def quantiles(self, told: int, pods: int, elapsed: int = 0) -> tuple[int, ...]:
        """By `PERCENTS` the wait in seconds of a unit that was `told` of a wait, of which so much has `elapsed`:
        only those that waited longer are like it. Nothing where too few are known."""
        if told <= 0:
            return ()
        for bucket in _buckets(told, pods):
            ratios = self._ratios.get(bucket, [])
            first = bisect_right(ratios, elapsed * _SCALE // told) if elapsed else 0
            count = len(ratios) - first
            if len(ratios) >= _LEAST_OF_BUCKET and count >= _LEAST_LONGER:
                # One more than there are: the unit itself is one of them.
                places = (min(count, -(-(count + 1) * percent // 100)) for percent in PERCENTS)
                return tuple(-(-ratios[first + place - 1] * told // _SCALE) for place in places)
        return ()

    @property
    def queues(self) -> list[str]:
        """Those of the starts that are remembered, with most of them first."""
        counts = Counter(start.queue for start in self._starts)
        return sorted(counts, key=lambda queue: (-counts[queue], queue))

    def score(self, queue: str | None = None) -> Score:
        """Of the last starts in a queue, or in all."""
        found = self._scores.get(queue)
        if found is None:
            results = [each for each in self._results if queue in (None, each.queue)]
            found = _sum(results[-_SCORED:])
            self._scores[queue] = found
        return found

    def calibrated(self, queue: str) -> bool:
        """Whether quantiles may be told to somebody who waits in a queue: they hold in all, and in its own where
        enough has started there."""
        own = self.score(queue)
        return self.score().holds and (own.starts < _LEAST_SCORED or own.holds)


def _result(start: ObservedStart) -> _Result:
    told = [start.predicted[PERCENTS.index(percent)] for percent in TOLD]
    return _Result(
        start.queue,
        tuple(int(start.waited <= wait) for wait in told),
        sum(_pinball(percent, wait, start.waited) for percent, wait in zip(TOLD, told, strict=True)),
    )


def _pinball(percent: int, predicted: int, actual: int) -> int:
    return percent * (actual - predicted) if actual >= predicted else (100 - percent) * (predicted - actual)


def _ratio(start: ObservedStart) -> int:
    return start.waited * _SCALE // start.told


def _buckets(told: int, pods: int) -> tuple[tuple[int, int], ...]:
    """From the narrowest to all: each a step of four in the told wait (from a minute on) and in the size."""
    wait, size = ((told // 60).bit_length() + 1) // 2, (max(pods - 1, 0).bit_length() + 1) // 2
    return (wait, size), (wait, -1), _ALL
