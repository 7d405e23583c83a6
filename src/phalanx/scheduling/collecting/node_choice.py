"""Choice of the nodes on which a gang collects room: those with the least idle time until its pods fit."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.collecting.collection import ChosenNodes, CollectedPart
from phalanx.scheduling.reservations.window import Part

#: A domain is preferred for less idle time only if its room is expected within this multiple of the shortest wait.
_MOST_PATIENCE = 2


class ExpectedEnd(msgspec.Struct, frozen=True):
    """Expected end of a pod in seconds since the epoch; `known` is False for an assumption without data, `guessed`
    True for a learned run time."""

    when: int
    known: bool = True
    guessed: bool = False


EndOf = Callable[[PodRecord], ExpectedEnd | None]
"""Function that returns the expected end of a pod; None for a pod that never ends by itself."""


class _Slot(msgspec.Struct, frozen=True, order=True):
    """Room for one more copy on a row from `when` on."""

    when: int
    row: int
    known: bool
    guessed: bool


class _Releases:
    """Free amounts of each row over time: idle amounts, less those that parts have taken, and the ends of pods."""

    def __init__(self, state: ClusterState, end_of: EndOf, now: int) -> None:
        self._state = state
        self._end_of = end_of
        self._now = now
        self._ends: dict[int, list[tuple[ExpectedEnd, IntArray]]] = {}
        self._taken: dict[int, IntArray] = {}

    def slots(self, row: int, part: Part) -> Iterator[_Slot]:
        """Yield the slots for copies of a part on a row in the order of time."""
        pod_class = part.pod_class
        columns, amounts = pod_class.columns, pod_class.amounts
        free = self._state.nodes.idle[columns, row].copy()
        if (taken := self._taken.get(row)) is not None:
            free -= taken[columns]
        copies, last = 0, ExpectedEnd(self._now)
        known, guessed = True, False
        for end, usage in [(last, np.zeros(0, dtype=np.int64)), *self._ends_on(row)]:
            if len(usage):
                free += _padded(usage, columns)
            known, guessed = known and end.known, guessed or end.guessed
            room = int((free // amounts).min())
            for _ in range(copies, min(room, part.count)):
                yield _Slot(max(end.when, self._now), row, known, guessed)
            copies = max(copies, room)
            if copies >= part.count:
                return

    def take(self, part: Part, row: int, count: int) -> None:
        """Use room for `count` copies of a part on a row."""
        usage = part.pod_class.footprint.usage * count
        taken = self._taken.get(row)
        self._taken[row] = usage if taken is None else taken + usage

    def _ends_on(self, row: int) -> list[tuple[ExpectedEnd, IntArray]]:
        ends = self._ends.get(row)
        if ends is None:
            each = ((self._end_of(record), record.footprint.usage) for record in self._state.pods.on(row))
            ends = [(end, usage) for end, usage in each if end is not None]
            ends.sort(key=lambda entry: entry[0].when)
            self._ends[row] = ends
        return ends


def choose_nodes(
    state: ClusterState, parts: Sequence[Part], usable: Sequence[BoolArray], end_of: EndOf, now: int
) -> ChosenNodes | None:
    """Return the nodes on which all parts fit once pods end there; None if too few pods ever end.

    `usable[i]` bool[N] are the rows for parts[i]. Parts with the same domains get one domain: the one with the
    least idle time, of those whose room is expected soon enough.
    """
    releases = _Releases(state, end_of, now)
    groups: dict[int, list[int]] = {}
    for place, part in enumerate(parts):
        groups.setdefault(id(part.domains), []).append(place)
    chosen: list[CollectedPart] = []
    slots: list[_Slot] = []
    for places in groups.values():
        # Large pods first: small ones fit in what they leave.
        places.sort(key=lambda place: (-int(parts[place].pod_class.amounts.max()), place))
        best = _best_domain(releases, [(parts[place], usable[place]) for place in places], now)
        if best is None:
            return None
        for part, taken in best:
            rows, counts = np.unique([slot.row for slot in taken], return_counts=True)
            chosen.append(CollectedPart(part, rows.astype(np.intp), counts.astype(np.int64)))
            slots += taken
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                releases.take(part, row, count)
    last = max(slots)
    known = all(slot.known for slot in slots)
    return ChosenNodes(tuple(chosen), last.when if known else 0, any(slot.guessed for slot in slots))


_Taken = list[tuple[Part, list[_Slot]]]


def _best_domain(releases: _Releases, asked: list[tuple[Part, BoolArray]], now: int) -> _Taken | None:
    domains = asked[0][0].domains
    if domains is None:
        return _first_slots(releases, [(part, np.flatnonzero(rows).tolist()) for part, rows in asked])
    candidates: list[tuple[int, int, int, _Taken]] = []
    for number in np.unique(domains[domains > 0]).tolist():
        inside = domains == number
        rows_of = [(part, np.flatnonzero(rows & inside[: len(rows)]).tolist()) for part, rows in asked]
        taken = _first_slots(releases, rows_of)
        if taken is not None:
            slots = [slot for _, each in taken for slot in each]
            last = max(slot.when for slot in slots)
            idle = sum(last - (slot.when if slot.known else now) for slot in slots)
            candidates.append((idle, last, number, taken))
    if not candidates:
        return None
    bound = now + _MOST_PATIENCE * (min(last for _, last, _, _ in candidates) - now)
    return min((each for each in candidates if each[1] <= bound), key=lambda each: each[:3])[3]


def _first_slots(releases: _Releases, asked: Iterable[tuple[Part, list[int]]]) -> _Taken | None:
    """Return the earliest slots for every part; None if there are too few."""
    taken: _Taken = []
    earlier: list[tuple[Part, int]] = []
    for part, rows in asked:
        for other, row in earlier:
            releases.take(other, row, 1)
        slots = heapq.nsmallest(part.count, (slot for row in rows for slot in releases.slots(row, part)))
        for other, row in earlier:
            releases.take(other, row, -1)
        if len(slots) < part.count:
            return None
        taken.append((part, slots))
        earlier += [(part, slot.row) for slot in slots]
    return taken


def _padded(usage: IntArray, columns: IntArray) -> IntArray:
    """Return the amounts of the columns; 0 beyond the known resources."""
    amounts = np.zeros(len(columns), dtype=np.int64)
    known = columns < len(usage)
    amounts[known] = usage[columns[known]]
    return amounts
