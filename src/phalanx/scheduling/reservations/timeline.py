"""Time line of a plan: moments at which free room changes, in whole seconds since the epoch."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from typing import Final

import numpy as np
import numpy.typing as npt

from phalanx.cluster.maintenance import MaintenanceTable
from phalanx.cluster.resource_space import BoolArray, IntArray

RowArray = npt.NDArray[np.intp]

FOREVER: Final = 2**62
"""End of a pod or window without a known end."""

#: Up to this many moments, and moments times nodes, a plan is exact to the second. Beyond, ends are rounded up to a
#: grid.
_MOST_EXACT: Final = 256
_MOST_CELLS: Final = 100_000
#: (distance from now, grain) in seconds. Each grain is a multiple of the one before it, so edges stay on the grid
#: as they come nearer.
_GRAINS: Final = ((3600, 60), (4 * 3600, 300), (12 * 3600, 1800), (48 * 3600, 7200), (7 * 86400, 21600))
HORIZON: Final = _GRAINS[-1][0]
"""Look-ahead of a plan in seconds."""


class Timeline:
    """Slots between moments: slot i lasts from `edges[i]` to the next edge, the last one for ever.

    The first slot begins now. A release counts from the first edge at or after it; a use covers every slot that it
    touches. So a plan can lose up to one slot of room, but never promises missing room. `moments` are the edges as
    an array; `kept` are the edges of windows.
    """

    __slots__ = ("edges", "exact", "kept", "moments")

    def __init__(self, edges: tuple[int, ...], exact: bool, kept: frozenset[int] = frozenset()) -> None:
        self.edges = edges
        self.exact = exact
        self.kept = kept
        self.moments: IntArray = np.array(edges, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.edges)

    @property
    def shape(self) -> tuple[int, ...]:
        """Edges after the first; equal for time lines that differ in their first moment only."""
        return self.edges[1:]

    def slots(self, start: int, end: int) -> tuple[int, int]:
        """Return the slots [first, last) that a use over [start, end) touches; at least one."""
        first = max(0, bisect_right(self.edges, start) - 1)
        last = len(self.edges) if end >= FOREVER else bisect_left(self.edges, end)
        return first, max(last, first + 1)

    def with_moments(self, moments: Iterable[int]) -> Timeline:
        """Return the time line with further edges."""
        return Timeline(tuple(sorted({*self.edges, *moments})), self.exact, self.kept)

    def can_carry_to(self, line: Timeline) -> bool:
        """Return whether amounts on this time line can be brought to a later one."""
        return self.exact is line.exact and line.edges[0] >= self.edges[0]

    def slots_in(self, former: Timeline) -> RowArray:
        """Return int[T]: the slot of a former time line that each slot begins in."""
        slots: RowArray = np.searchsorted(former.moments, self.moments, side="right") - 1
        return np.maximum(slots, 0, out=slots)

    def rounded(self, ends: IntArray) -> IntArray:
        """Return the edges from which releases at `ends` count: 0 for the first edge, FOREVER beyond the last."""
        places = np.searchsorted(self.moments, ends, side="left")
        edges: IntArray = np.append(self.moments, FOREVER)[places]
        edges[places == 0] = 0
        return edges

    def covering(self, end: int) -> int:
        """Return the end of a window as it is reserved: on a grid, the next edge."""
        if self.exact or end >= FOREVER:
            return end
        place = bisect_left(self.edges, end)
        return self.edges[place] if place < len(self.edges) else end


def most_moments(nodes: int) -> int:
    """Return the largest number of moments with which a plan over `nodes` nodes is exact to the second."""
    return min(_MOST_EXACT, _MOST_CELLS // max(1, nodes))


def timeline(
    now: int,
    ends: Collection[int],
    kept: Iterable[int] = (),
    nodes: int = 1,
    former: Timeline | None = None,
    closures: Iterable[int] = (),
) -> Timeline:
    """Return the time line from `now` on for a table of `nodes` nodes.

    `ends` are the moments at which room is released. `kept` are edges of reserved windows, which stay exact to the
    second. A `former` time line that is still valid is returned unchanged. `closures` are edges of maintenance,
    which a grid covers with whole slots.
    """
    first = now
    last = first + HORIZON
    fixed = {when for when in kept if first < when < FOREVER}
    closing = {when for when in closures if first < when < FOREVER}
    if len(ends) + len(fixed) + len(closing) <= most_moments(nodes):
        coming = {when for when in ends if first < when <= last}
        edges = (first, *sorted(fixed | closing | coming))
        return former if former is not None and former.exact and former.edges == edges else Timeline(edges, True)
    if former is not None and not former.exact and former.edges[0] == first and former.kept == fixed:
        return former
    return Timeline((first, *sorted(fixed | set(_grid(first)))), False, frozenset(fixed))


def closed_slots(line: Timeline, maintenance: MaintenanceTable, rows: RowArray) -> BoolArray:
    """Return bool[T, rows]: the slots in which each row is in maintenance."""
    closed = np.zeros((len(line), len(rows)), dtype=np.bool_)
    for closure in maintenance.closures:
        begin, end = line.slots(closure.start, closure.end)
        if begin < end and closure.end > line.edges[0]:
            closed[begin:end] |= np.isin(rows, closure.rows)
    ends = maintenance.ends_of(rows)
    # A row closes from the slot in which its maintenance begins.
    first = np.searchsorted(line.moments, ends, side="right") - 1
    closed |= (ends < FOREVER) & (np.arange(len(closed))[:, None] >= first)
    return closed


def _grid(now: int) -> list[int]:
    edges: list[int] = []
    when = now
    for distance, grain in _GRAINS:
        while True:
            when = (when // grain + 1) * grain
            if when > now + distance:
                when = edges[-1] if edges else now
                break
            edges.append(when)
    return edges
