"""Gang list of `phalanx top`: state, members, age, start and reason."""

from __future__ import annotations

import time
from collections.abc import Callable

from phalanx.cli.listing.ages import OVERDUE, age, span
from phalanx.cli.top.pieces import STATE_STYLES
from phalanx.cli.top.row_list import PanelColumn, RowList, SortKey
from phalanx.dashboard.rows.entries import GangRow
from phalanx.dialects.times import parse_time
from phalanx.views.gang_state import GangState, PlacementForecast

# States by urgency: problems first, then waiting gangs.
_URGENCY = (
    GangState.PARTIAL,
    GangState.PENDING,
    GangState.GATED,
    GangState.EVICTING,
    GangState.COMPLETING,
    GangState.STARTING,
    GangState.RUNNING,
    GangState.SUSPENDED,
    GangState.FAILED,
    GangState.CANCELLED,
    GangState.COMPLETED,
    GangState.OTHER_SCHEDULER,
)


def start(row: GangRow, now: float) -> str:
    """Format the start of a gang: `<= 12m0s` if promised, or `overdue`; `~ 12m0s` if planned; `now` if the last dry
    run places the gang.
    """
    if row.forecast == PlacementForecast.STARTS_NOW:
        return "now"
    if not row.start:
        return "-"
    promised, remaining = row.start_kind == "promised", parse_time(row.start) - int(now)
    if promised and remaining < 0:
        return OVERDUE
    return f"{'<=' if promised else '~'} {span(remaining)}"


def shown_name(row: GangRow) -> str:
    return f"pod/{row.name}" if row.kind == "pod" else row.title or row.name


def why(row: GangRow) -> str:
    return f"{row.reason}: {row.message}" if row.reason and row.message else row.reason or row.message


def members(row: GangRow) -> str:
    """Format the members of a gang as running/minimum/all."""
    total = row.pending + row.gated + row.placed + row.finished + row.terminating
    return f"{row.running}/{row.minimum}/{total}"


def _urgency(row: GangRow) -> SortKey:
    place = _URGENCY.index(row.state) if row.state in _URGENCY else len(_URGENCY)
    return (place, -row.priority, row.created)


COLUMNS: tuple[PanelColumn[GangRow], ...] = (
    PanelColumn("NAMESPACE", lambda row, now: row.namespace, 9, grow=1, rank=3),
    PanelColumn("GANG", lambda row, now: shown_name(row), 14, grow=2),
    PanelColumn("QUEUE", lambda row, now: row.queue or "-", 9, grow=1, rank=4),
    PanelColumn("PRIO", lambda row, now: str(row.priority), 5, rank=6, right=True),
    PanelColumn("STATE", lambda row, now: row.state, 11, style=lambda row: STATE_STYLES.get(row.state, "")),
    PanelColumn("MEMBERS", lambda row, now: members(row), 9, rank=2, right=True),
    PanelColumn("AGE", lambda row, now: age(row.created, now) or "-", 7, rank=5, right=True),
    PanelColumn("START", start, 9, rank=4, right=True),
    PanelColumn("WHY", lambda row, now: why(row), 12, grow=5, rank=1),
)
FIELDS: dict[str, Callable[[GangRow], str]] = {
    "id": lambda row: row.id,
    "ns": lambda row: row.namespace,
    "name": lambda row: row.title or row.name,
    "queue": lambda row: row.queue,
    "state": lambda row: row.state,
    "kind": lambda row: row.kind,
    "reason": lambda row: row.reason,
}
ORDERS: dict[str, Callable[[GangRow], SortKey]] = {
    "state": _urgency,
    "name": lambda row: (row.namespace, shown_name(row)),
    "age": lambda row: (row.created,),
    "queue": lambda row: (row.queue, *_urgency(row)),
    "priority": lambda row: (-row.priority,),
}


def gang_list(clock: Callable[[], float] = time.time) -> RowList[GangRow]:
    return RowList(id="gangs", columns=COLUMNS, fields=FIELDS, orders=ORDERS, clock=clock)
