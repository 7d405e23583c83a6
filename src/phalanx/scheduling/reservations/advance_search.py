"""Search for the room of an advance reservation: all of it over one window, or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.nodes.rows import NodeRows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.model.advance_reservation import AdvanceReservation
from phalanx.scheduling.reservations.account_future import AccountFuture
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.timeline import FOREVER
from phalanx.scheduling.reservations.window import Part, Window

_MOST_NODES_NAMED = 5
# Free amounts of a row in maintenance are below this.
_CLOSED = -(2**51)


class WholeNodes(msgspec.Struct, frozen=True, eq=False):
    """Request for `count` of the `rows` bool[N] as whole nodes.

    `amounts` int64[R, N] is the amounts of each empty node.
    """

    rows: BoolArray
    count: int
    amounts: IntArray


class RoomQuestion(msgspec.Struct, frozen=True, eq=False):
    """Request for parts or whole nodes, charged to `charge_path` (None: no account).

    The room of `shared` windows can be used as well; `standing` is all reserved windows. With `ignore_running` only
    windows occupy room, and no pods.
    """

    parts: tuple[Part, ...]
    nodes: WholeNodes | None
    charge_path: ChargePath | None = None
    shared: tuple[Window, ...] = ()
    standing: tuple[Window, ...] = ()
    ignore_running: bool = False

    @property
    def rows(self) -> BoolArray:
        """Candidate rows as bool[N]."""
        if self.nodes is not None:
            return self.nodes.rows
        rows: BoolArray = np.logical_or.reduce([part.rows for part in self.parts])
        return rows


class FoundRoom(msgspec.Struct, frozen=True, eq=False):
    """Reserved amounts by row, and the number of copies by row (1 for a whole node)."""

    start: int
    end: int
    amounts: dict[int, IntArray]
    copies: dict[int, int]


class RoomSearch:
    """Search for one request in the present future of nodes and accounts."""

    def __init__(self, future: FutureMatrix, accounts: AccountFuture, table: NodeRows, asked: RoomQuestion) -> None:
        self._future = future
        self._accounts = accounts
        self._table = table
        self._asked = asked

    def at(self, start: int, end: int) -> FoundRoom | None:
        """Return the room for the whole request over [start, end), or None."""
        first, last = self._future.line.slots(start, end)
        found = self._whole(first, last) if self._asked.nodes is not None else self._parts(first, last)
        if found is None or not self._accounts_allow(found[0], first, last):
            return None
        return FoundRoom(start, end, *found)

    def earliest(self, not_before: int, duration: int) -> FoundRoom | None:
        """Return the room in the first window of `duration` seconds (0: for ever) that starts at `not_before` or
        later."""
        edges = self._future.line.edges
        first, _ = self._future.line.slots(not_before, not_before)
        for edge in edges[first:]:
            start = max(edge, not_before)
            room = self.at(start, start + duration if duration else FOREVER)
            if room is not None:
                return room
        return None

    def count(self, start: int, end: int) -> tuple[int, BoolArray]:
        """Return the number of copies or nodes that fit, and bool[N] of the candidate rows without room for one
        more.

        Each part is counted by itself, up to its requested number of copies.
        """
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
        free_nodes = nodes.rows.copy()
        for column in np.flatnonzero(nodes.amounts.any(axis=1)).tolist():
            free = self._least(column, first, last)
            free_nodes[: len(free)] &= free >= nodes.amounts[column, : len(free)]
            free_nodes[len(free) :] = False
        return free_nodes

    def _parts(self, first: int, last: int) -> tuple[dict[int, IntArray], dict[int, int]] | None:
        """Place the scarcest part first, each part on the rows that it fills up best."""
        taken: dict[int, IntArray] = {}
        copies: dict[int, int] = {}
        for part in sorted(
            self._asked.parts, key=lambda candidate: int(self._room(candidate, first, last, {}).sum())
        ):
            room = self._room(part, first, last, taken)
            missing = part.count
            rows = np.flatnonzero(room)
            for row in rows[np.lexsort((rows, room[rows]))].tolist():
                placed = min(missing, int(room[row]))
                if not placed:
                    break
                missing -= placed
                copies[row] = copies.get(row, 0) + placed
                usage = _padded(part.pod_class.footprint.usage, len(self._table.allocatable))
                taken[row] = taken.get(row, np.zeros(len(usage), dtype=np.int64)) + placed * usage
            if missing:
                return None
        return taken, copies

    def _room(self, part: Part, first: int, last: int, taken: Mapping[int, IntArray]) -> IntArray:
        """Return int64[N]: the number of copies that each row has room for."""
        room: IntArray | None = None
        for column, amount in zip(part.pod_class.columns.tolist(), part.pod_class.amounts.tolist(), strict=True):
            least = self._least(column, first, last)
            for row, amounts in taken.items():
                least[row] -= amounts[column]
            copies = least // amount
            room = copies if room is None else np.minimum(room, copies)
        assert room is not None  # every pod takes a pod slot
        return np.maximum(room, 0) * part.rows[: len(room)]

    def _least(self, column: int, first: int, last: int) -> IntArray:
        """Return int64[N]: the smallest free amount of a resource on each row from slot `first` to `last`."""
        if not self._asked.ignore_running:
            free = self._future.free_beside(column, first, last, self._asked.shared)
            smallest: IntArray = free.min(axis=0)
            return smallest
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
        lowest: IntArray = np.where((planned < _CLOSED).any(axis=0), 0, free.min(axis=0))
        return lowest

    def _accounts_allow(self, amounts: Mapping[int, IntArray], first: int, last: int) -> bool:
        charge_path = self._asked.charge_path
        if charge_path is None:
            return True
        return self._accounts.allows_amounts({charge_path: summed(amounts.values(), self._table)}, first, last)


def summed(amounts: Iterable[IntArray], table: NodeRows) -> dict[str, int]:
    """Return the sum of vectors by resource."""
    total: dict[str, int] = {}
    for vector in amounts:
        add_amounts(total, {table.space.names[at]: int(vector[at]) for at in np.flatnonzero(vector).tolist()}, 1)
    return total


def _padded(vector: IntArray, length: int) -> IntArray:
    return (
        np.concatenate([vector, np.zeros(length - len(vector), dtype=np.int64)]) if length > len(vector) else vector
    )


def reduced(question: RoomQuestion, copies: int, taken: set[int]) -> RoomQuestion | None:
    """Return the request for this many copies or nodes only, outside the `taken` rows; None where it has several
    classes."""
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
    reduced_part = Part(part.pod_class, copies, part.charge_path, part.rows)
    return RoomQuestion(
        (reduced_part,), None, question.charge_path, question.shared, question.standing, question.ignore_running
    )


def whole_nodes(state: ClusterState, spec: AdvanceReservation) -> WholeNodes | str:
    """Return the request for whole nodes, or why it cannot be resolved."""
    assert spec.nodes is not None
    table = state.nodes
    rows: BoolArray = np.zeros(table.capacity, dtype=np.bool_)
    if spec.nodes.names:
        unknown = [name for name in spec.nodes.names if table.row(name) == NO_ROW]
        if unknown:
            return f"no such node: {', '.join(unknown[:_MOST_NODES_NAMED])}"
        rows[[table.row(name) for name in spec.nodes.names]] = True
    elif spec.nodes.selector is not None:
        rows = table.alive.copy()
        for requirement in spec.nodes.selector:
            rows &= table.labels.satisfies(requirement, slice(None))
    count = spec.nodes.count or int(rows.sum())
    if count > int(rows.sum()) or not count:
        return f"{int(rows.sum())} of {max(count, 1)} requested node(s) are named or selected"
    amounts = table.allocatable.copy()
    for row in np.flatnonzero(rows).tolist():
        for record in state.pods.on(row):
            if record.pod.fixture:
                usage = record.footprint.usage
                amounts[: len(usage), row] -= usage
    amounts[:, ~rows] = 0
    return WholeNodes(rows, count, np.maximum(amounts, 0))
