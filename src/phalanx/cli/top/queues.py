"""Tree of queues and quotas in `phalanx top`, with bars: used, borrowed, and own share."""

from __future__ import annotations

import time
from collections.abc import Callable

from phalanx.cli.top.pieces import Piece, Pieces, fitted
from phalanx.cli.top.row_list import PanelColumn, RowList, SortKey
from phalanx.dashboard.rows.entries import QueueRow
from phalanx.reports.account_entries import AccountEntry, QuotaEntry

USED, BORROWED, FREE, RIGHT = "█", "▒", "·", "│"


def account(row: QueueRow) -> AccountEntry:
    entry = row.queue if row.queue is not None else row.quota
    # A row has either a queue or a quota (phalanx.dashboard.rows.entries).
    return entry if entry is not None else QuotaEntry(name=row.id, used={}, family="")


def bar(entry: AccountEntry, width: int) -> Pieces:
    """Draw a queue's usage as a bar whose width is the whole cluster."""
    if width < 1:
        return []

    def cells(share: float) -> int:
        part = max(0.0, min(100.0, share)) * width / 100
        return max(1, round(part)) if share > 0 else 0

    used = cells(entry.share)
    borrowed = min(used, cells(entry.borrowed_share))
    text = (
        [(USED, "good")] * (used - borrowed) + [(BORROWED, "warn")] * borrowed + [(FREE, "muted")] * (width - used)
    )
    if entry.own_share > 0:
        text[min(width, cells(entry.own_share)) - 1] = (RIGHT, "title")
    pieces: Pieces = []
    for character, style in text:
        if pieces and pieces[-1].style == style:
            pieces[-1] = Piece(pieces[-1].text + character, style)
        else:
            pieces.append(Piece(character, style))
    return pieces


def _name(row: QueueRow, width: int) -> Pieces:
    entry = account(row)
    tag = f" ({row.quota.family})" if row.quota is not None else ""
    return [Piece(fitted(f"{'  ' * min(entry.depth, 12)}{entry.name}{tag}", width), "bad" if entry.fault else "")]


def _first(row: QueueRow) -> str:
    entry = account(row)
    if entry.fault:
        return f"fault: {entry.fault}"
    if row.queue is not None and row.queue.state not in ("", "Open"):
        return f"{row.queue.state}"
    return f"{entry.first.name} waits: {entry.first.reason}" if entry.first is not None else ""


def _percent(share: float) -> str:
    return f"{share:.0f}%" if share else "-"


def _gangs(entry: AccountEntry) -> str:
    """Format the gangs of a queue as running/pending like `phalanx queue list`; single pods do not count."""
    return f"{entry.gangs.running}/{entry.gangs.pending}"


COLUMNS: tuple[PanelColumn[QueueRow], ...] = (
    PanelColumn("QUEUE", width=16, grow=2, draw=_name),
    PanelColumn("OF THE CLUSTER", width=14, grow=4, rank=1, draw=lambda row, width: bar(account(row), width)),
    PanelColumn("USED", lambda row, now: _percent(account(row).share), 5, right=True),
    PanelColumn("OWN", lambda row, now: _percent(account(row).own_share), 5, right=True),
    PanelColumn("BORROWED", lambda row, now: _percent(account(row).borrowed_share), 8, rank=2, right=True),
    PanelColumn("RESOURCE", lambda row, now: account(row).dominant, 8, rank=5),
    PanelColumn("GANGS", lambda row, now: _gangs(account(row)), 7, rank=3, right=True),
    PanelColumn("FIRST WAITING", lambda row, now: _first(row), 14, grow=3, rank=4),
)
FIELDS: dict[str, Callable[[QueueRow], str]] = {
    "name": lambda row: account(row).name,
    "parent": lambda row: account(row).parent,
}
ORDERS: dict[str, Callable[[QueueRow], SortKey]] = {
    "tree": lambda row: (row.place,),
    "name": lambda row: (account(row).name,),
    "use": lambda row: (-account(row).share,),
    "waiting": lambda row: (-account(row).gangs.pending,),
}


def queue_list(clock: Callable[[], float] = time.time) -> RowList[QueueRow]:
    return RowList(id="queues", columns=COLUMNS, fields=FIELDS, orders=ORDERS, clock=clock)
