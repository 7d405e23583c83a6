"""Which pods occupy which row."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.pods.records import NO_NODE, PodRecord
from phalanx.model.pod import MemberState
from phalanx.model.preparations import Preparation

# Pods in these states take no room: for some of them it is reserved.
PROMISED_ONLY = frozenset({MemberState.FOREIGN, MemberState.PENDING})


class PodsByNode:
    """Records by row and uid, as they moved in; `moved` notes every row where one comes or goes, `openings` counts
    how often one has come, or begun to leave, for whose sake others may go where they could not."""

    def __init__(self, moved: ChangeLog) -> None:
        self._moved = moved
        self._rows: dict[int, dict[str, PodRecord]] = {}
        self.openings = 0

    @property
    def rows(self) -> Mapping[int, Mapping[str, PodRecord]]:
        return self._rows

    def of(self, row: int) -> Collection[PodRecord]:
        return self._rows.get(row, {}).values()

    def move_in(self, record: PodRecord, row: int) -> None:
        record.row = row
        self.openings += record.pod_class.affinity.may_unblock_others
        self._moved.note(row)
        self._rows.setdefault(row, {})[record.pod.uid] = record

    def move_out(self, record: PodRecord) -> None:
        self._moved.note(record.row)
        here = self._rows[record.row]
        del here[record.pod.uid]
        if not here:
            del self._rows[record.row]
        record.row = NO_NODE

    def retire(self, record: PodRecord, nodes: NodeTable, sign: int) -> None:
        """Counts what a pod takes as room to come, and the pod as leaving (sign 1), or no longer (sign -1)."""
        if record.row != NO_NODE:
            nodes.release_later(record.row, record.footprint.usage, sign)
            record.pod_class.affinity.mark_terminating(record.row, sign)
            self.openings += record.pod_class.affinity.may_unblock_others
            self._moved.note(record.row)


def stock_up(record: PodRecord, row: int) -> None:
    """Counts a pod that occupies a row among its peers, and books what it holds of each stock: what we gave it,
    else what the API tells."""
    meet_peers(record, row, 1)
    for stock in record.pod_class.allocators:
        if stock.name in record.allocated:
            stock.book(record.allocated[stock.name], row, 1)
        elif (taken := stock.observed(record.pod, row)) is not None:
            record.allocated[stock.name] = taken


def take_stock(record: PodRecord, row: int) -> None:
    """Decides what a pod that is placed on a row gets of each stock, and books it."""
    for stock in record.pod_class.allocators:
        if (taken := stock.take(record.pod, row)) is not None:
            record.allocated[stock.name] = taken


def book_stock(record: PodRecord, row: int, sign: int) -> None:
    """Books what a pod that occupies a row has there (sign 1), or gives it back for now (sign -1)."""
    meet_peers(record, row, sign)
    for stock in record.pod_class.allocators:
        if stock.name in record.allocated:
            stock.book(record.allocated[stock.name], row, sign)


def give_back(record: PodRecord, row: int) -> None:
    """Gives back what the pod has, for good."""
    book_stock(record, row, -1)
    record.allocated.clear()


def meet_peers(record: PodRecord, row: int, sign: int) -> None:
    """Counts a pod among those on a row (sign 1), or no longer (sign -1)."""
    company = record.pod_class.affinity
    if company.tallies and record.state not in PROMISED_ONLY:
        company.add((row,), sign)
        if record.state is MemberState.TERMINATING:
            company.mark_terminating(row, sign)


def change_class(record: PodRecord, cls: ClassRecord) -> None:
    """Others mean the pod now, or others no longer do."""
    if record.row != NO_NODE:
        meet_peers(record, record.row, -1)
    record.pod_class = cls
    if record.row != NO_NODE:
        meet_peers(record, record.row, 1)


def hands(record: PodRecord, now: float) -> tuple[tuple[Preparation, ...], tuple[tuple[str, str], ...]]:
    """(what must be written before the pod is bound, what its binding tells it) because of what it has."""
    if not record.allocated:
        return (), ()
    held = [
        (stock, record.allocated[stock.name])
        for stock in record.pod_class.allocators
        if stock.name in record.allocated
    ]
    gang = record.gang.spec if record.gang is not None else None
    preparations = tuple(each for stock, taken in held for each in stock.preparations(record.pod, taken, gang))
    return preparations, tuple(
        each for stock, taken in held for each in stock.annotations(record.pod, taken, record.row, now)
    )
