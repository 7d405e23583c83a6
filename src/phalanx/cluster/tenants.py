"""Which pods occupy which row."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.members import NO_NODE, PodRecord
from phalanx.model.preparations import Preparation


class Tenants:
    """Records by row and uid, as they moved in; `moved` notes every row where one comes or goes."""

    def __init__(self, moved: ChangeLog) -> None:
        self._moved = moved
        self._rows: dict[int, dict[str, PodRecord]] = {}

    @property
    def rows(self) -> Mapping[int, Mapping[str, PodRecord]]:
        return self._rows

    def of(self, row: int) -> Collection[PodRecord]:
        return self._rows.get(row, {}).values()

    def move_in(self, record: PodRecord, row: int) -> None:
        record.row = row
        self._moved.note(row)
        self._rows.setdefault(row, {})[record.pod.uid] = record

    def move_out(self, record: PodRecord) -> None:
        self._moved.note(record.row)
        here = self._rows[record.row]
        del here[record.pod.uid]
        if not here:
            del self._rows[record.row]
        record.row = NO_NODE


def stock_up(record: PodRecord, row: int) -> None:
    """Books what a pod that occupies a row holds of each stock: what we gave it, else what the API tells."""
    for stock in record.cls.stocks:
        if stock.name in record.taken:
            stock.book(record.taken[stock.name], row, 1)
        elif (taken := stock.observed(record, row)) is not None:
            record.taken[stock.name] = taken


def take_stock(record: PodRecord, row: int) -> None:
    """Decides what a pod that is placed on a row gets of each stock, and books it."""
    for stock in record.cls.stocks:
        if (taken := stock.take(record, row)) is not None:
            record.taken[stock.name] = taken


def book_stock(record: PodRecord, row: int, sign: int) -> None:
    """Books what the pod has (sign 1), or gives it back for now (sign -1)."""
    for stock in record.cls.stocks:
        if stock.name in record.taken:
            stock.book(record.taken[stock.name], row, sign)


def give_back(record: PodRecord, row: int) -> None:
    """Gives back what the pod has, for good."""
    book_stock(record, row, -1)
    record.taken.clear()


def hands(record: PodRecord, now: float) -> tuple[tuple[Preparation, ...], tuple[tuple[str, str], ...]]:
    """(what must be written before the pod is bound, what its binding tells it) because of what it has."""
    if not record.taken:
        return (), ()
    held = [(stock, record.taken[stock.name]) for stock in record.cls.stocks if stock.name in record.taken]
    preparations = tuple(each for stock, taken in held for each in stock.preparations(record, taken))
    return preparations, tuple(each for stock, taken in held for each in stock.annotations(record, taken, now))
