"""Mapping of resource names to columns of the arrays."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from phalanx.model.devices.gpu_counts import amount_of_card
from phalanx.model.resources import CPU, MEMORY, PODS, Requests

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

PODS_COLUMN = 0
CPU_COLUMN = 1
MEMORY_COLUMN = 2


def exact_sums(amounts: IntArray) -> list[int]:
    """Return exact sums of int64[R, N] over its rows, which can exceed int64 for absurd amounts of a thousand
    nodes."""
    high, low = amounts >> 32, amounts & 0xFFFFFFFF
    return [
        (high_sum << 32) + low_sum
        for high_sum, low_sum in zip(high.sum(axis=1).tolist(), low.sum(axis=1).tolist(), strict=True)
    ]


class ResourceSpace:
    """Resource names in the order of their first use; columns are never removed.

    `pods`, `cpu` and `memory` are always the first three. `cards` has the amount of one card by column of the GPU
    resources; it is empty in most clusters.
    """

    def __init__(self) -> None:
        self.names: list[str] = [PODS, CPU, MEMORY]
        self.cards: dict[int, int] = {}
        self._columns: dict[str, int] = {name: column for column, name in enumerate(self.names)}

    def __len__(self) -> int:
        return len(self.names)

    def column(self, name: str) -> int:
        """Return the column of `name`, added if it is new."""
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = len(self.names)
            self.names.append(name)
            if card := amount_of_card(name):
                self.cards[column] = card
        return column

    def find(self, name: str) -> int | None:
        return self._columns.get(name)

    def learn(self, names: Iterable[str]) -> None:
        for name in names:
            self.column(name)

    def vector(self, requests: Requests, pods: int = 0) -> IntArray:
        """Return `requests` as int64[R] over all present columns; `pods` fills the slot column unless it is
        named."""
        self.learn(name for name, _ in requests)
        row = np.zeros(len(self.names), dtype=np.int64)
        row[PODS_COLUMN] = pods
        for name, amount in requests:
            row[self._columns[name]] = amount
        return row
