"""The best rows for copies of one class, and which copy goes where among them."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from phalanx.cluster.resource_space import FloatArray
from phalanx.scheduling.placement.domain_greedy import NOWHERE

RowArray = npt.NDArray[np.intp]

# Up to this many copies the best rows are found by asking for the best one repeatedly.
_FEW = 8


def best_rows(score: FloatArray, count: int) -> RowArray:
    """The `count` best rows by (score descending, row ascending), in row order; fewer if fewer fit.

    Greedy placement of `count` copies touches at most `count` rows, and an untouched row keeps its first score:
    so no row outside these can ever be the best one while the copies are placed, whatever the scores do later.
    """
    if count >= len(score):
        return np.flatnonzero(score > NOWHERE)
    if count <= _FEW:
        return _best_few(score.copy(), count)
    if score.min() > NOWHERE:
        return _best_many(score, count)
    # Partitioning takes ten times as long where most entries are the same infinity.
    fitting = np.flatnonzero(score > NOWHERE)
    return fitting if len(fitting) <= count else fitting[_best_many(score[fitting], count)]


def _best_many(score: FloatArray, count: int) -> RowArray:
    """The same of rows that all fit, fewer than there are."""
    threshold = np.partition(score, len(score) - count)[len(score) - count]
    above = np.flatnonzero(score > threshold)
    level = np.flatnonzero(score == threshold)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))


def _best_few(score: FloatArray, count: int) -> RowArray:
    """The same by taking the best away `count` times; uses `score` up."""
    found: list[int] = []
    for _ in range(count):
        row = int(score.argmax())
        if score[row] == NOWHERE:
            break
        found.append(row)
        score[row] = NOWHERE
    return np.array(sorted(found), dtype=np.intp)


def place_greedily(rows: list[int], copies: list[int], copy_scores: list[list[float]], count: int) -> list[int]:
    """Takes the best next copy `count` times: each row's copies come in order, ties go to the lowest row."""
    heap = [(-steps[0], row, place, 1) for place, (row, steps) in enumerate(zip(rows, copy_scores, strict=True))]
    heapq.heapify(heap)
    chosen: list[int] = []
    while heap and len(chosen) < count:
        _, row, place, taken = heap[0]
        chosen.append(row)
        if taken < copies[place]:
            heapq.heapreplace(heap, (-copy_scores[place][taken], row, place, taken + 1))
        else:
            heapq.heappop(heap)
    return chosen
