"""Numbers of pods per topology domain (nodes with an equal label value), updated in O(change)."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

IdArray = npt.NDArray[np.int32]

NOWHERE = -1
"""The domain of a row without one. Arrays over domains have an additional last entry for it."""


class LabelDomains:
    """The domains of one node label: `ids[row]` is the domain of a row, `values[id]` its label value.

    A domain keeps its number as long as it has a row. `rows[id]` is its number of rows.
    """

    def __init__(self, key: str, nodes: NodeRows) -> None:
        self.key = key
        self.ids: IdArray = np.full(0, NOWHERE, dtype=np.int32)
        self.values: list[str] = []
        self.rows: IntArray = np.zeros(1, dtype=np.int64)
        self._nodes = nodes
        self._id_of: dict[str, int] = {}
        self._free: list[int] = []
        self._cursor = -1

    @property
    def size(self) -> int:
        """Number of domain numbers in use, or used before."""
        return len(self.values)

    def update(self) -> None:
        """Process the nodes whose labels have changed since the last call."""
        nodes = self._nodes
        if self._cursor == nodes.relabelled.end and len(self.ids) == nodes.capacity:
            return
        stale = nodes.relabelled.since(self._cursor, nodes.capacity) if self._cursor >= 0 else None
        self.ids = padded(self.ids, nodes.capacity, NOWHERE)
        rows: Iterable[int] = range(nodes.extent) if stale is None else dict.fromkeys(stale)
        for row in rows:
            self._place(row, nodes.labels.of(row).get(self.key))
        self._cursor = nodes.relabelled.end

    def _place(self, row: int, value: str | None) -> None:
        last = int(self.ids[row])
        if (self.values[last] if last != NOWHERE else None) == value:
            return
        self.ids[row] = self._number(value) if value is not None else NOWHERE
        if last != NOWHERE:
            self.rows[last] -= 1
            if not self.rows[last]:
                del self._id_of[self.values[last]]
                heapq.heappush(self._free, last)

    def _number(self, value: str) -> int:
        number = self._id_of.get(value)
        if number is None:
            if self._free:
                number = heapq.heappop(self._free)
                self.values[number] = value
            else:
                number = len(self.values)
                self.values.append(value)
                self.rows = widened(self.rows, len(self.values))
            self._id_of[value] = number
        self.rows[number] += 1
        return number


class Region:
    """A label's domains, restricted to some rows: `where[row]` is the domain of an included row, NOWHERE for
    other rows; `present[id]` is the number of included rows of a domain."""

    def __init__(
        self, domains: LabelDomains, nodes: NodeRows, includes: Callable[[Rows], BoolArray] | None = None
    ) -> None:
        self.domains = domains
        self.where: IdArray = np.full(0, NOWHERE, dtype=np.int32)
        self.present: IntArray = np.zeros(1, dtype=np.int64)
        self.counters: dict[DomainCounter, None] = {}
        self._nodes = nodes
        self._includes = includes
        self._cursor = -1

    def update(self) -> None:
        """Process the nodes whose labels have changed since the last call; their counts move along."""
        nodes = self._nodes
        if self._cursor == nodes.relabelled.end and len(self.where) == nodes.capacity:
            return
        stale = nodes.relabelled.since(self._cursor, nodes.capacity) if self._cursor >= 0 else None
        self.domains.update()
        self.where = padded(self.where, nodes.capacity, NOWHERE)
        self.present = widened(self.present, self.domains.size)
        for counter in self.counters:
            counter.counts = widened(counter.counts, self.domains.size)
        rows = np.arange(nodes.capacity) if stale is None else np.unique(np.array(stale, dtype=np.intp))
        if len(rows):
            now = self.domains.ids[rows]
            if self._includes is not None:
                now = np.where(self._includes(rows), now, NOWHERE)
            moved = now != self.where[rows]
            self._move(rows[moved], self.where[rows[moved]], now[moved])
        self._cursor = nodes.relabelled.end

    def _move(self, rows: npt.NDArray[np.intp], last: IdArray, now: IdArray) -> None:
        np.subtract.at(self.present, last[last != NOWHERE], 1)
        np.add.at(self.present, now[now != NOWHERE], 1)
        self.where[rows] = now
        for counter in self.counters:
            for row, old, new in zip(rows.tolist(), last.tolist(), now.tolist(), strict=True):
                counter.move(row, old, new)


class Tally:
    """Numbers (or weights) of pods by node row, without zeros."""

    __slots__ = ("at", "counters")

    def __init__(self) -> None:
        self.at: dict[int, int] = {}
        self.counters: list[tuple[DomainCounter, int]] = []

    def add(self, row: int, amount: int) -> None:
        total = self.at.get(row, 0) + amount
        if total:
            self.at[row] = total
        else:
            self.at.pop(row, None)
        for counter, sign in self.counters:
            counter.add(row, sign * amount)


class DomainCounter:
    """Sums of some tallies (each with a sign) per domain of a region: `counts[id]`. `ticks` is the number of
    changes.

    `ticks` is incremented with every change.
    """

    __slots__ = ("counts", "parts", "region", "ticks")

    def __init__(self, region: Region, *parts: tuple[Tally, int]) -> None:
        region.update()
        self.region = region
        self.parts = parts
        self.counts: IntArray = np.zeros(region.domains.size + 1, dtype=np.int64)
        self.ticks = 0
        region.counters[self] = None
        for tally, sign in parts:
            tally.counters.append((self, sign))
            for row, amount in tally.at.items():
                self.add(row, sign * amount)

    def add(self, row: int, amount: int) -> None:
        where = self.region.where
        # A row that the region has not processed yet is counted when it is.
        domain = where[row] if row < len(where) else NOWHERE
        if domain != NOWHERE:
            self.counts[domain] += amount
            self.ticks += 1

    def move(self, row: int, last: int, now: int) -> None:
        """Move the pods counted on a node row to another domain."""
        amount = sum(sign * tally.at.get(row, 0) for tally, sign in self.parts)
        if last != NOWHERE:
            self.counts[last] -= amount
        if now != NOWHERE:
            self.counts[now] += amount
        self.ticks += 1

    def drop(self) -> None:
        """Remove the counter from its region and tallies, which no longer update it."""
        del self.region.counters[self]
        for tally, sign in self.parts:
            tally.counters.remove((self, sign))


def padded(ids: IdArray, length: int, value: int) -> IdArray:
    if len(ids) == length:
        return ids
    return np.concatenate([ids, np.full(length - len(ids), value, dtype=np.int32)])


def widened(counts: IntArray, size: int) -> IntArray:
    """Extend an array over domains to `size` domains, with the entry for no domain at the end."""
    missing = size + 1 - len(counts)
    return np.concatenate([counts, np.zeros(missing, dtype=np.int64)]) if missing > 0 else counts
