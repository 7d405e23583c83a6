"""Node labels and taints as columns of small integers, so that a selector is one lookup for all nodes."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from phalanx.cluster.resource_space import BoolArray
from phalanx.model.selectors import NodeSelectorTerm, Requirement, Taint, parse_int64

# A slice over all rows, or an int array of some rows: every evaluation supports both.
Rows = slice | npt.NDArray[np.intp]

ABSENT = 0


def row_numbers(rows: Rows, capacity: int) -> npt.NDArray[np.intp]:
    """Return intp[rows]: the row numbers, as an index into arrays of `capacity` rows."""
    return np.arange(capacity, dtype=np.intp)[rows]


# A column is a lookup table for a selector's key; above this number, the least recently used one is removed.
_COLUMNS = 512


class LabelColumn:
    """Values of one label key over all rows: `ids[row]` is ABSENT or the id of the value."""

    def __init__(self, capacity: int) -> None:
        self.ids = np.zeros(capacity, dtype=np.int32)
        self.values: list[str] = [""]
        self._id_of: dict[str, int] = {}

    def set(self, row: int, value: str | None) -> None:
        if value is None:
            self.ids[row] = ABSENT
            return
        number = self._id_of.get(value)
        if number is None:
            if len(self.values) > 2 * len(self.ids):
                self._compact()
            number = self._id_of[value] = len(self.values)
            self.values.append(value)
        self.ids[row] = number

    def grow(self, capacity: int) -> None:
        self.ids = np.concatenate([self.ids, np.zeros(capacity - len(self.ids), dtype=np.int32)])

    def _compact(self) -> None:
        """Remove the values that no node has any more (host names of removed nodes, for example)."""
        used, self.ids = compacted(self.ids)
        self.values = [self.values[number] for number in used]
        self._id_of = {value: number for number, value in enumerate(self.values) if number != ABSENT}

    def matching(self, requirement: Requirement) -> BoolArray:
        """Return bool[len(values)]: the value ids (ABSENT included) that satisfy the requirement.

        The operators are those of `k8s.io/apimachinery/pkg/labels`: NotIn and DoesNotExist accept an absent key; Gt
        and Lt compare integers, and a non-integer does not match.
        """
        known = np.zeros(len(self.values), dtype=np.bool_)
        match requirement.operator:
            case "In" | "NotIn":
                for value in requirement.values:
                    number = self._id_of.get(value)
                    if number is not None:
                        known[number] = True
                return known if requirement.operator == "In" else ~known
            case "Exists":
                known[:] = True
                known[ABSENT] = False
            case "DoesNotExist":
                known[ABSENT] = True
            case "Gt" | "Lt":
                bound = parse_int64(requirement.values[0]) if len(requirement.values) == 1 else None
                if bound is not None:
                    greater = requirement.operator == "Gt"
                    for number, text in enumerate(self.values[1:], start=1):
                        actual = parse_int64(text)
                        known[number] = actual is not None and (actual > bound if greater else actual < bound)
        return known


class LabelTable:
    """All labels of all nodes; a column is created when a selector first needs its key."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rows: list[dict[str, str]] = [{} for _ in range(capacity)]
        self._columns: dict[str, LabelColumn] = {}

    def of(self, row: int) -> dict[str, str]:
        return self._rows[row]

    def set(self, row: int, labels: dict[str, str]) -> None:
        self._rows[row] = labels
        for key, column in self._columns.items():
            column.set(row, labels.get(key))

    def grow(self, capacity: int) -> None:
        self._rows.extend({} for _ in range(capacity - self._capacity))
        for column in self._columns.values():
            column.grow(capacity)
        self._capacity = capacity

    def column(self, key: str) -> LabelColumn:
        column = self._columns.pop(key, None)
        if column is None:
            column = LabelColumn(self._capacity)
            for row, labels in enumerate(self._rows):
                if key in labels:
                    column.set(row, labels[key])
            if len(self._columns) >= _COLUMNS:
                del self._columns[next(iter(self._columns))]
        self._columns[key] = column
        return column

    def satisfies(self, requirement: Requirement, rows: Rows) -> BoolArray:
        column = self.column(requirement.key)
        result: BoolArray = column.matching(requirement)[column.ids[rows]]
        return result


class TaintTable:
    """Taints by node row; equal sets of taints share one id, because a cluster has few distinct ones."""

    def __init__(self, capacity: int) -> None:
        self.ids = np.zeros(capacity, dtype=np.int32)
        self.sets: list[tuple[Taint, ...]] = [()]
        self._id_of: dict[tuple[Taint, ...], int] = {(): 0}

    def set(self, row: int, taints: tuple[Taint, ...]) -> None:
        number = self._id_of.get(taints)
        if number is None:
            if len(self.sets) > 2 * len(self.ids):
                self._compact()
            number = self._id_of[taints] = len(self.sets)
            self.sets.append(taints)
        self.ids[row] = number

    def grow(self, capacity: int) -> None:
        self.ids = np.concatenate([self.ids, np.zeros(capacity - len(self.ids), dtype=np.int32)])

    def _compact(self) -> None:
        used, self.ids = compacted(self.ids)
        self.sets = [self.sets[number] for number in used]
        self._id_of = {taints: number for number, taints in enumerate(self.sets)}


def compacted(ids: npt.NDArray[np.int32]) -> tuple[list[int], npt.NDArray[np.int32]]:
    """Return the sorted ids in use, 0 included, and `ids` with each replaced by its position in that list."""
    used = np.union1d(ids, [0]).astype(np.int32)
    return used.tolist(), np.searchsorted(used, ids).astype(np.int32)


def term_matches(term: NodeSelectorTerm, labels: LabelTable, names: LabelColumn, rows: Rows) -> BoolArray:
    """Return bool[rows]: rows that satisfy a node selector term; `names` is the column of metadata.name."""
    shape = names.ids[rows].shape
    if term.invalid or not (term.expressions or term.fields):
        return np.zeros(shape, dtype=np.bool_)
    result = np.ones(shape, dtype=np.bool_)
    for requirement in term.expressions:
        result &= labels.satisfies(requirement, rows)
    for requirement in term.fields:
        if requirement.key != "metadata.name":
            return np.zeros(shape, dtype=np.bool_)
        result &= names.matching(requirement)[names.ids[rows]]
    return result
