"""Rows of the time axis: advance reservations, maintenance windows, promised and planned starts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.dashboard.rehearsal.messages import PlannedStart
from phalanx.dashboard.rows.entries import ReservationRow
from phalanx.model.advance_reservation import NO_END
from phalanx.model.gang import GangKey
from phalanx.model.text.moments import shown_moment

#: Seconds ahead in which occurrences are shown.
HORIZON = 7 * 86_400
_OCCURRENCES = 30
_STARTS = 500
_NODES_NAMED = 50

Row = tuple[str, msgspec.Struct, str]


def reservation_rows(state: ClusterState, starts: Iterable[PlannedStart], now: float) -> Iterator[Row]:
    """Yield (id, row, scope) of each row of the time axis.

    Viewers of a namespace see its starts; rows with scope "" need the right to see all namespaces.
    """
    begin, end = int(now), int(now) + HORIZON
    for reservation in state.objects.advance.values():
        moment = begin
        for number in range(_OCCURRENCES):
            occurrence = reservation.occurrence(moment)
            if occurrence is None or occurrence.start >= end:
                break
            row = ReservationRow(
                id=f"reservation/{reservation.name}/{number}",
                kind="reservation",
                title=reservation.title,
                start=_moment(occurrence.start),
                end=_moment(occurrence.end),
                queue=reservation.queue,
                note=reservation.problem or ("the earliest moment" if reservation.flexible_start else ""),
                nodes=list(reservation.nodes.names[:_NODES_NAMED]) if reservation.nodes is not None else [],
            )
            yield row.id, row, ""
            if occurrence.end >= NO_END or reservation.recurrence is None:
                break
            moment = occurrence.end
        if reservation.problem:
            row_id = f"reservation/{reservation.name}/problem"
            problem = ReservationRow(
                id=row_id,
                kind="reservation",
                title=reservation.title,
                start=_moment(reservation.start),
                queue=reservation.queue,
                note=reservation.problem,
            )
            yield row_id, problem, ""
    for window in state.nodes.maintenance.windows.values():
        for number, span in enumerate(window.spans(begin, end)[:_OCCURRENCES]):
            row = ReservationRow(
                id=f"maintenance/{window.name}/{number}",
                kind="maintenance",
                title=window.title,
                start=_moment(span.start),
                end=_moment(span.end),
                note=window.at_start.value,
                nodes=list(window.names[:_NODES_NAMED]),
            )
            yield row.id, row, ""
    timed = [
        planned_start
        for planned_start in starts
        if planned_start.start.no_later_than or planned_start.start.planned
    ]
    timed.sort(key=lambda planned_start: planned_start.start.no_later_than or planned_start.start.planned)
    for planned_start in timed[:_STARTS]:
        namespace = (
            planned_start.gang.namespace if planned_start.gang is not None else planned_start.pod.partition("/")[0]
        )
        title = _title(state, planned_start.gang) if planned_start.gang is not None else planned_start.pod
        promised = planned_start.start.no_later_than
        pods = f"{planned_start.pods} pod" if planned_start.pods == 1 else f"{planned_start.pods} pods"
        row = ReservationRow(
            id=f"start/{planned_start.gang.path if planned_start.gang is not None else planned_start.pod}",
            kind="start",
            title=title,
            namespace=namespace,
            start=promised or planned_start.start.planned,
            queue=planned_start.queue,
            note=f"{pods}, {'promised' if promised else 'as planned now'}",
        )
        yield row.id, row, namespace


def _title(state: ClusterState, key: GangKey) -> str:
    record = state.gangs.get(key)
    return record.title if record is not None else str(key)


def _moment(seconds: int) -> str:
    return "" if seconds >= NO_END else shown_moment(seconds)
