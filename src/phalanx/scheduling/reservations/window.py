"""Windows: reserved copies of classes on nodes over a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray, IntArray

RowArray = npt.NDArray[np.intp]


class Part(msgspec.Struct, frozen=True, eq=False):
    """`count` pods of one class and `charge_path` that start together, on the usable `rows` bool[N].

    Parts with the same `domains` (int64[N]: topology domain of each row, 0: none) start in one domain.
    """

    pod_class: ClassRecord
    count: int
    charge_path: ChargePath | None
    rows: BoolArray
    domains: IntArray | None = None


class Share(msgspec.Struct, frozen=True, eq=False):
    """Reserved `counts[i]` copies of a class on each distinct `rows[i]`."""

    pod_class: ClassRecord
    rows: RowArray
    counts: IntArray

    @property
    def columns(self) -> list[int]:
        """Columns of the reserved resources."""
        columns: list[int] = self.pod_class.columns.tolist()
        return columns

    def reserves(self, column: int) -> bool:
        """Return whether any amount of the resource is reserved."""
        usage = self.pod_class.footprint.usage
        return column < len(usage) and bool(usage[column])

    def kept(self, column: int) -> IntArray:
        """Return int64[rows]: the reserved amounts of one resource."""
        usage = self.pod_class.footprint.usage
        return self.counts * (usage[column] if column < len(usage) else 0)


class AmountShare(msgspec.Struct, frozen=True, eq=False):
    """Reserved `amounts[:, i]` on each distinct `rows[i]`, of any class."""

    rows: RowArray
    amounts: IntArray

    @property
    def columns(self) -> list[int]:
        columns: list[int] = np.flatnonzero(self.amounts.any(axis=1)).tolist()
        return columns

    def reserves(self, column: int) -> bool:
        return column < len(self.amounts) and bool(self.amounts[column].any())

    def kept(self, column: int) -> IntArray:
        reserved: IntArray = (
            self.amounts[column] if column < len(self.amounts) else np.zeros(len(self.rows), dtype=np.int64)
        )
        return reserved


class Window:
    """Reserved room of a whole unit over [start, end) in seconds since the epoch (end can be FOREVER), with its
    charges.

    `kept` are its shares, by class or in amounts. `rows` int[R] are the distinct rows of all shares in order.
    """

    __slots__ = ("charges", "end", "kept", "rows", "shares", "start")

    def __init__(
        self,
        start: int,
        end: int,
        shares: tuple[Share, ...],
        charges: tuple[tuple[ChargePath, tuple[tuple[str, int], ...]], ...] = (),
        amounts: tuple[AmountShare, ...] = (),
    ) -> None:
        self.start = start
        self.end = end
        self.shares = shares
        self.charges = charges
        self.kept: tuple[Share | AmountShare, ...] = (*shares, *amounts)
        self.rows: RowArray
        if len(self.kept) == 1:
            self.rows = np.sort(self.kept[0].rows)
        elif self.kept:
            self.rows = np.unique(np.concatenate([share.rows for share in self.kept]))
        else:
            self.rows = np.zeros(0, dtype=np.intp)

    def with_classes(self, classes: Mapping[ClassRecord, ClassRecord]) -> Window:
        """Return the window of pods that have other classes now; itself if the classes are the same."""
        if all(old is new for old, new in classes.items()):
            return self
        shares = tuple(
            Share(classes.get(share.pod_class, share.pod_class), share.rows, share.counts) for share in self.shares
        )
        return Window(self.start, self.end, shares, self.charges)


def request_of(parts: Sequence[Part]) -> list[tuple[object, ...]]:
    """Return the request of parts, without the state of nodes."""
    return [
        (part.pod_class.spec, part.pod_class.affinity, part.count, part.charge_path, part.domains is not None)
        for part in parts
    ]


def mask_at(mask: BoolArray, rows: RowArray) -> BoolArray:
    """Return bool[rows]: the entries of a mask; rows beyond its end are False."""
    inside = rows < len(mask)
    entries = np.zeros(len(rows), dtype=np.bool_)
    entries[inside] = mask[rows[inside]]
    return entries
