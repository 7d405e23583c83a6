"""Where an advance reservation finds its room: all of it over one window, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.nodes.rows import NodeRows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.scheduling.reservations.account_future import AccountFuture
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import Part, Window

# What a row has on the time line in maintenance is below this.
_CLOSED = -(2**51)


class WholeNodes(msgspec.Struct, frozen=True, eq=False):
    """`count` of the `rows` bool[N] as a whole: `amounts` int64[R, N] is what each has when nobody is there."""

    rows: BoolArray
    count: int
    amounts: IntArray


class RoomQuestion(msgspec.Struct, frozen=True, eq=False):
    """What is asked: parts, or whole nodes, charged to `charge_path` (None: to nobody). `shared` are windows whose
    room may be used as well, `standing` all that stand; with `ignore_running` only they count, and no pod."""

    parts: tuple[Part, ...]
    nodes: WholeNodes | None
    charge_path: ChargePath | None = None
    shared: tuple[Window, ...] = ()
    standing: tuple[Window, ...] = ()
    ignore_running: bool = False

    @property
    def rows(self) -> BoolArray:
        """bool[N]: the rows that come into question."""
        if self.nodes is not None:
            return self.nodes.rows
        found: BoolArray = np.logical_or.reduce([part.rows for part in self.parts])
        return found


class FoundRoom(msgspec.Struct, frozen=True, eq=False):
    """By row what is kept there, and how many copies (of whole nodes: 1)."""

    start: int
    end: int
    amounts: dict[int, IntArray]
    copies: dict[int, int]


class RoomSearch:
    """One question to the future as it is now."""

    def __init__(self, future: FutureMatrix, accounts: AccountFuture, table: NodeRows, asked: RoomQuestion) -> None:
        self._future = future
        self._accounts = accounts
        self._table = table
        self._asked = asked

    def at(self, start: int, end: int) -> FoundRoom | None:
        """All that is asked for over [start, end), or None."""
        first, last = self._future.line.slots(start, end)
        found = self._whole(first, last) if self._asked.nodes is not None else self._parts(first, last)
        if found is None or not self._affordable(found[0], first, last):
            return None
        return FoundRoom(start, end, *found)

    def earliest(self, not_before: int, duration: int) -> FoundRoom | None:
        """The first window of so many seconds (0: for ever) that does not start before a moment."""
        edges = self._future.line.edges
        first, _ = self._future.line.slots(not_before, not_before)
        for edge in edges[first:]:
            start = max(edge, not_before)
            found = self.at(start, start + duration if duration else FOREVER)
            if found is not None:
                return found
        return None

    def count(self, start: int, end: int) -> tuple[int, BoolArray]:
        """How many copies (of all parts, at most what is asked for) or nodes there is room for, each part looked at
        by itself; and bool[N] the rows in question that have none for any more."""
        first, last = self._future.line.slots(start, end)
        if self._asked.nodes is not None:
            free = self._free_nodes(first, last)
            return min(int(free.sum()), self._asked.nodes.count), self._asked.nodes.rows & ~free
        total, full = 0, np.zeros(self._table.capacity, dtype=np.bool_)
        for part in self._asked.parts:
            room = self._room(part, first, last, {})
            total += min(int(room.sum()), part.count)
            full[: len(room)] |= part.rows[: len(room)] & (room == 0)
        return total, full

    def _whole(self, first: int, last: int) -> tuple[dict[int, IntArray], dict[int, int]] | None:
        nodes = self._asked.nodes
        assert nodes is not None
        rows = np.flatnonzero(self._free_nodes(first, last))[: nodes.count].tolist()
        if len(rows) < nodes.count or not rows:
            return None
        return {row: nodes.amounts[:, row].copy() for row in rows}, dict.fromkeys(rows, 1)

    def _free_nodes(self, first: int, last: int) -> BoolArray:
        nodes = self._asked.nodes
        assert nodes is not None
        found = nodes.rows.copy()
        for column in np.flatnonzero(nodes.amounts.any(axis=1)).tolist():
            least = self._least(column, first, last)
            found[: len(least)] &= least >= nodes.amounts[column, : len(least)]
            found[len(least) :] = False
        return found

    def _parts(self, first: int, last: int) -> tuple[dict[int, IntArray], dict[int, int]] | None:
        """The scarcest part first, each on the rows that it fills up best."""
        taken: dict[int, IntArray] = {}
        copies: dict[int, int] = {}
        for part in sorted(self._asked.parts, key=lambda each: int(self._room(each, first, last, {}).sum())):
            room = self._room(part, first, last, taken)
            left = part.count
            rows = np.flatnonzero(room)
            for row in rows[np.lexsort((rows, room[rows]))].tolist():
                here = min(left, int(room[row]))
                if not here:
                    break
                left -= here
                copies[row] = copies.get(row, 0) + here
                usage = _padded(part.pod_class.footprint.usage, len(self._table.allocatable))
                taken[row] = taken.get(row, np.zeros(len(usage), dtype=np.int64)) + here * usage
            if left:
                return None
        return taken, copies

    def _room(self, part: Part, first: int, last: int, taken: Mapping[int, IntArray]) -> IntArray:
        """int64[N]: the copies that each row takes."""
        room: IntArray | None = None
        for column, amount in zip(part.pod_class.columns.tolist(), part.pod_class.amounts.tolist(), strict=True):
            least = self._least(column, first, last)
            for row, amounts in taken.items():
                least[row] -= amounts[column]
            here = least // amount
            room = here if room is None else np.minimum(room, here)
        assert room is not None  # every pod takes a slot
        return np.maximum(room, 0) * part.rows[: len(room)]

    def _least(self, column: int, first: int, last: int) -> IntArray:
        """int64[N]: what each row has of a resource all the time."""
        if not self._asked.ignore_running:
            free = self._future.free_beside(column, first, last, self._asked.shared)
            found: IntArray = free.min(axis=0)
            return found
        planned = self._future.free(column)[first:last]
        free = np.repeat(self._table.allocatable[column, None, : planned.shape[1]], last - first, axis=0)
        shared = {id(window) for window in self._asked.shared}
        for window in self._asked.standing:
            if id(window) not in shared:
                begin, end = (
                    min(max(at, first), last) - first for at in self._future.line.slots(window.start, window.end)
                )
                for share in window.kept:
                    free[begin:end, share.rows] -= share.kept(column)
        least: IntArray = np.where((planned < _CLOSED).any(axis=0), 0, free.min(axis=0))
        return least

    def _affordable(self, amounts: Mapping[int, IntArray], first: int, last: int) -> bool:
        charge_path = self._asked.charge_path
        if charge_path is None:
            return True
        return self._accounts.allows_amounts({charge_path: summed(amounts.values(), self._table)}, first, last)


def summed(amounts: Iterable[IntArray], table: NodeRows) -> dict[str, int]:
    """By resource the sum of vectors."""
    total: dict[str, int] = {}
    for vector in amounts:
        add_amounts(total, {table.space.names[at]: int(vector[at]) for at in np.flatnonzero(vector).tolist()}, 1)
    return total


def _padded(vector: IntArray, length: int) -> IntArray:
    return (
        np.concatenate([vector, np.zeros(length - len(vector), dtype=np.int64)]) if length > len(vector) else vector
    )


def smaller(question: RoomQuestion, copies: int, taken: set[int]) -> RoomQuestion | None:
    """The same for so many copies or nodes only; None where it asks for several classes."""
    if question.nodes is not None:
        rows = question.nodes.rows.copy()
        rows[[row for row in taken if row >= 0]] = False
        nodes = WholeNodes(rows, copies, question.nodes.amounts)
        return RoomQuestion(
            (), nodes, question.charge_path, question.shared, question.standing, question.ignore_running
        )
    if len(question.parts) != 1:
        return None
    part = question.parts[0]
    smaller = Part(part.pod_class, copies, part.charge_path, part.rows)
    return RoomQuestion(
        (smaller,), None, question.charge_path, question.shared, question.standing, question.ignore_running
    )
