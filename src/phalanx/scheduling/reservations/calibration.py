"""Calibration of forecasts: ratios of actual to forecast waits give quantiles, and scores check these."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import Counter, deque
from collections.abc import Iterable
from operator import add
from typing import Final

import msgspec

from phalanx.model.promise_records import ObservedStart

#: Computed quantiles in percent: the 90 % interval, and three that are published.
PERCENTS: Final = (5, 50, 80, 90, 95)
TOLD: Final = (50, 80, 90)
#: Number of starts that are stored, and of these the number that are scored.
_MOST_STARTS: Final = 600
_SCORED: Final = 300
#: Smallest samples: starts of a bucket for a quantile (of these, starts with a longer wait than the unit's so far),
#: and starts for a score.
_LEAST_OF_BUCKET: Final = 100
_LEAST_LONGER: Final = 30
_LEAST_SCORED: Final = 100
#: Quantiles of 90 percent are published while they cover this range of percentages.
_BAND: Final = (80, 97)
#: Ratios of waits are in millionths.
_SCALE: Final = 1_000_000
_ALL: Final = (-1, -1)


class Score(msgspec.Struct, frozen=True):
    """Score of the last `starts` with quantiles: the number covered by each quantile of `TOLD`, and the sum of
    their pinball losses in hundredths of a second."""

    starts: int = 0
    covered: tuple[int, ...] = (0, 0, 0)
    pinball: int = 0

    @property
    def coverage(self) -> tuple[float, ...]:
        """Covered part of the starts, by quantile."""
        return tuple(count / self.starts if self.starts else 0.0 for count in self.covered)

    @property
    def pinball_loss(self) -> float:
        """Mean loss over starts and quantiles in seconds."""
        return self.pinball / (100 * len(TOLD) * self.starts) if self.starts else 0.0

    @property
    def holds(self) -> bool:
        """Whether the quantile of 90 percent covers about 90 percent of the starts."""
        low, high = _BAND
        return self.starts >= _LEAST_SCORED and low * self.starts <= 100 * self.covered[-1] <= high * self.starts


class _Result(msgspec.Struct, frozen=True):
    """Result of one start: coverage by each quantile of `TOLD` (0 or 1), and the sum of their pinball losses."""

    queue: str
    covered: tuple[int, ...]
    pinball: int


class _ScoredResults:
    """The last results that are scored, of one queue or of all, with their sum."""

    def __init__(self) -> None:
        self._results: deque[_Result] = deque()
        self.score = Score()

    def add(self, result: _Result) -> None:
        self._results.append(result)
        self._count(result, 1)
        if len(self._results) > _SCORED:
            self._count(self._results.popleft(), -1)

    def forget(self, result: _Result) -> None:
        """Remove a result that is older than all others here, if it is scored."""
        if self._results and self._results[0] is result:
            self._count(self._results.popleft(), -1)

    def _count(self, result: _Result, sign: int) -> None:
        covered = [total + sign * one for total, one in zip(self.score.covered, result.covered, strict=True)]
        pinball = self.score.pinball + sign * result.pinball
        self.score = Score(len(self._results), tuple(covered), pinball)


class StartCalibration:
    """Last starts in their order.

    A quantile is a ratio of actual to forecast wait among starts of about equal forecast and size. (QBETS takes
    past waits alone; here the plan explains most of them.) Where these are few, all starts of about equal forecast
    count, else all starts. `total` scores every start since the process began.
    """

    def __init__(self) -> None:
        self._starts: deque[ObservedStart] = deque()
        self._ratios: dict[tuple[int, int], list[int]] = {}
        self._results: deque[_Result] = deque()
        self._scored = _ScoredResults()
        self._scored_by_queue: dict[str, _ScoredResults] = {}
        self.total = Score()

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def starts(self) -> tuple[ObservedStart, ...]:
        """Stored starts, the oldest first, as `load` expects them."""
        return tuple(self._starts)

    def load(self, starts: Iterable[ObservedStart]) -> None:
        """Load starts of an earlier process; skip invalid ones."""
        for start in starts:
            if start.told > 0 and start.waited >= 0 and len(start.predicted) in (0, len(PERCENTS)):
                self._add(start)

    def observe(self, start: ObservedStart) -> None:
        """Record a start; ignore one without a forecast wait."""
        if start.told > 0 and start.waited >= 0:
            self._add(start)
            if start.predicted:
                last, total = self._results[-1], self.total
                covered = tuple(map(add, total.covered, last.covered))
                self.total = Score(total.starts + 1, covered, total.pinball + last.pinball)

    def _add(self, start: ObservedStart) -> None:
        self._starts.append(start)
        if start.predicted:
            self._score_last(_result(start))
        for bucket in _buckets(start.told, start.pods):
            insort(self._ratios.setdefault(bucket, []), _ratio(start))
        if len(self._starts) > _MOST_STARTS:
            oldest = self._starts.popleft()
            for bucket in _buckets(oldest.told, oldest.pods):
                ratios = self._ratios[bucket]
                del ratios[bisect_right(ratios, _ratio(oldest)) - 1]
                if not ratios:
                    del self._ratios[bucket]

    def _score_last(self, result: _Result) -> None:
        self._results.append(result)
        self._scored.add(result)
        by_queue = self._scored_by_queue
        if result.queue not in by_queue:
            by_queue[result.queue] = _ScoredResults()
        by_queue[result.queue].add(result)
        if len(self._results) > _MOST_STARTS:
            oldest = self._results.popleft()
            by_queue[oldest.queue].forget(oldest)
            if not by_queue[oldest.queue].score.starts:
                del by_queue[oldest.queue]

    def quantiles(self, told: int, pods: int, elapsed: int = 0) -> tuple[int, ...]:
        """Return the quantiles (`PERCENTS`) of the wait of a unit with a forecast of `told` seconds; () with too
        few samples.

        With `elapsed` seconds of waiting, only starts that waited longer count.
        """
        if told <= 0:
            return ()
        for bucket in _buckets(told, pods):
            ratios = self._ratios.get(bucket, [])
            first = bisect_right(ratios, elapsed * _SCALE // told) if elapsed else 0
            count = len(ratios) - first
            if len(ratios) >= _LEAST_OF_BUCKET and count >= _LEAST_LONGER:
                # The unit itself counts as one more sample.
                places = (min(count, -(-(count + 1) * percent // 100)) for percent in PERCENTS)
                return tuple(-(-ratios[first + place - 1] * told // _SCALE) for place in places)
        return ()

    @property
    def queues(self) -> list[str]:
        """Queues of the stored starts, the most frequent first."""
        counts = Counter(start.queue for start in self._starts)
        return sorted(counts, key=lambda queue: (-counts[queue], queue))

    def score(self, queue: str | None = None) -> Score:
        """Return the score of the last starts in a queue, or in all."""
        scored = self._scored if queue is None else self._scored_by_queue.get(queue)
        return scored.score if scored is not None else Score()

    def calibrated(self, queue: str) -> bool:
        """Return whether quantiles are published for a queue: they hold over all queues, and in the queue itself if
        it has enough starts."""
        if not self.score().holds:
            return False
        own = self.score(queue)
        return own.starts < _LEAST_SCORED or own.holds


def _result(start: ObservedStart) -> _Result:
    waits = [start.predicted[PERCENTS.index(percent)] for percent in TOLD]
    return _Result(
        start.queue,
        tuple(int(start.waited <= wait) for wait in waits),
        sum(_pinball(percent, wait, start.waited) for percent, wait in zip(TOLD, waits, strict=True)),
    )


def _pinball(percent: int, predicted: int, actual: int) -> int:
    return percent * (actual - predicted) if actual >= predicted else (100 - percent) * (predicted - actual)


def _ratio(start: ObservedStart) -> int:
    return start.waited * _SCALE // start.told


def _buckets(told: int, pods: int) -> tuple[tuple[int, int], ...]:
    """Return the buckets of a start from narrow to all: steps of four in the forecast wait (from one minute) and in
    the size."""
    wait, size = ((told // 60).bit_length() + 1) // 2, (max(pods - 1, 0).bit_length() + 1) // 2
    return (wait, size), (wait, -1), _ALL
