"""The tree of queues and quotas, each with a bar: used, what of that is borrowed, and its right."""

from __future__ import annotations

import time
from collections.abc import Callable

from phalanx.cli.top.pieces import Piece, Pieces, fitted
from phalanx.cli.top.row_list import PanelColumn, RowList, SortKey
from phalanx.dashboard.rows.entries import QueueRow
from phalanx.reports.account_entries import AccountEntry, QuotaEntry

USED, BORROWED, FREE, RIGHT = "█", "▒", "·", "│"


def account(row: QueueRow) -> AccountEntry:
    found = row.queue if row.queue is not None else row.quota
    # A row has one of them (phalanx.dashboard.rows.entries).
    return found if found is not None else QuotaEntry(name=row.id, used={}, family="")


def bar(each: AccountEntry, width: int) -> Pieces:
    """The whole width is the whole cluster."""
    if width < 1:
        return []

    def cells(share: float) -> int:
        part = max(0.0, min(100.0, share)) * width / 100
        return max(1, round(part)) if share > 0 else 0

    used = cells(each.share)
    lent = min(used, cells(each.borrowed_share))
    text = [(USED, "good")] * (used - lent) + [(BORROWED, "warn")] * lent + [(FREE, "muted")] * (width - used)
    if each.own_share > 0:
        text[min(width, cells(each.own_share)) - 1] = (RIGHT, "title")
    found: Pieces = []
    for character, style in text:
        if found and found[-1].style == style:
            found[-1] = Piece(found[-1].text + character, style)
        else:
            found.append(Piece(character, style))
    return found


def _name(row: QueueRow, width: int) -> Pieces:
    each = account(row)
    tag = f" ({row.quota.family})" if row.quota is not None else ""
    return [Piece(fitted(f"{'  ' * min(each.depth, 12)}{each.name}{tag}", width), "bad" if each.fault else "")]


def _first(row: QueueRow) -> str:
    each = account(row)
    if each.fault:
        return f"fault: {each.fault}"
    if row.queue is not None and row.queue.state not in ("", "Open"):
        return f"{row.queue.state}"
    return f"{each.first.name} waits: {each.first.reason}" if each.first is not None else ""


def _percent(share: float) -> str:
    return f"{share:.0f}%" if share else "-"


def _gangs(each: AccountEntry) -> str:
    """Running and pending, as `phalanx queue list` has it; pods on their own are no gangs."""
    return f"{each.gangs.running}/{each.gangs.pending}"


COLUMNS: tuple[PanelColumn[QueueRow], ...] = (
    PanelColumn("QUEUE", width=16, grow=2, draw=_name),
    PanelColumn("OF THE CLUSTER", width=14, grow=4, rank=1, draw=lambda row, width: bar(account(row), width)),
    PanelColumn("USED", lambda row, now: _percent(account(row).share), 5, right=True),
    PanelColumn("RIGHT", lambda row, now: _percent(account(row).own_share), 5, right=True),
    PanelColumn("BORROWED", lambda row, now: _percent(account(row).borrowed_share), 8, rank=2, right=True),
    PanelColumn("MOSTLY", lambda row, now: account(row).dominant, 8, rank=5),
    PanelColumn("GANGS", lambda row, now: _gangs(account(row)), 7, rank=3, right=True),
    PanelColumn("FIRST IN LINE", lambda row, now: _first(row), 14, grow=3, rank=4),
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
