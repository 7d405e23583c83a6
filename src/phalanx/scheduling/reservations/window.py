"""What is reserved: copies of classes on nodes, from one moment to another."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray, IntArray

RowArray = npt.NDArray[np.intp]


class Part(msgspec.Struct, frozen=True, eq=False):
    """`count` pods of one class and one `charge_path` that start together, on the `rows` bool[N] they may use.

    Parts that share `domains` (int64[N]: the number of each row's topology domain, 0: none) start in one of them.
    """

    pod_class: ClassRecord
    count: int
    charge_path: ChargePath | None
    rows: BoolArray
    domains: IntArray | None = None


class Share(msgspec.Struct, frozen=True, eq=False):
    """`counts[i]` copies of a class on each distinct `rows[i]`."""

    pod_class: ClassRecord
    rows: RowArray
    counts: IntArray

    @property
    def columns(self) -> list[int]:
        """The resources that are kept."""
        found: list[int] = self.pod_class.columns.tolist()
        return found

    def kept(self, column: int) -> IntArray:
        """int64[rows]: what is kept of one resource."""
        usage = self.pod_class.footprint.usage
        return self.counts * (usage[column] if column < len(usage) else 0)


class AmountShare(msgspec.Struct, frozen=True, eq=False):
    """`amounts[:, i]` of the resources on each distinct `rows[i]`, whoever uses them."""

    rows: RowArray
    amounts: IntArray

    @property
    def columns(self) -> list[int]:
        found: list[int] = np.flatnonzero(self.amounts.any(axis=1)).tolist()
        return found

    def kept(self, column: int) -> IntArray:
        found: IntArray = (
            self.amounts[column] if column < len(self.amounts) else np.zeros(len(self.rows), dtype=np.int64)
        )
        return found


class Window:
    """The room of a whole unit over [start, end), in seconds since the epoch (end may be FOREVER), and what its
    charge paths are charged meanwhile. `kept` are its shares, by class or in amounts. `rows` int[R] are the rows of
    all, each once, in order."""

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
        self.rows: RowArray = (
            np.unique(np.concatenate([share.rows for share in self.kept]))
            if self.kept
            else np.zeros(0, dtype=np.intp)
        )
