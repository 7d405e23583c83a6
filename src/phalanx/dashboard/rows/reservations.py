"""What is on the axis of time: advance reservations, maintenance windows, starts that are promised or planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.dashboard.rehearsal.messages import PlannedStart
from phalanx.dashboard.rows.entries import ReservationRow
from phalanx.model.advance_reservation import NO_END
from phalanx.model.gang import GangKey
from phalanx.model.text.moments import shown_moment

#: So far ahead occurrences are shown, in seconds.
HORIZON = 7 * 86_400
_OCCURRENCES = 30
_STARTS = 500
_NODES_NAMED = 50

Row = tuple[str, msgspec.Struct, str]


def reservation_rows(state: ClusterState, starts: Iterable[PlannedStart], now: float) -> Iterator[Row]:
    """(id, row, scope): a start is seen by those who see its namespace, all else ("") by those who see all."""
    begin, end = int(now), int(now) + HORIZON
    for reservation in state.objects.advance.values():
        moment = begin
        for number in range(_OCCURRENCES):
            found = reservation.occurrence(moment)
            if found is None or found.start >= end:
                break
            row = ReservationRow(
                id=f"reservation/{reservation.name}/{number}",
                kind="reservation",
                title=reservation.title,
                start=_moment(found.start),
                end=_moment(found.end),
                queue=reservation.queue,
                note=reservation.problem or ("the earliest moment" if reservation.flexible_start else ""),
                nodes=list(reservation.nodes.names[:_NODES_NAMED]) if reservation.nodes is not None else [],
            )
            yield row.id, row, ""
            if found.end >= NO_END or reservation.recurrence is None:
                break
            moment = found.end
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
    timed = [each for each in starts if each.start.no_later_than or each.start.planned]
    timed.sort(key=lambda each: each.start.no_later_than or each.start.planned)
    for each in timed[:_STARTS]:
        namespace = each.gang.namespace if each.gang is not None else each.pod.partition("/")[0]
        title = _title(state, each.gang) if each.gang is not None else each.pod
        promised = each.start.no_later_than
        pods = f"{each.pods} pod" if each.pods == 1 else f"{each.pods} pods"
        row = ReservationRow(
            id=f"start/{each.gang.path if each.gang is not None else each.pod}",
            kind="start",
            title=title,
            namespace=namespace,
            start=promised or each.start.planned,
            queue=each.queue,
            note=f"{pods}, {'no later than this' if promised else 'as planned now'}",
        )
        yield row.id, row, namespace


def _title(state: ClusterState, key: GangKey) -> str:
    record = state.gangs.get(key)
    return record.title if record is not None else str(key)


def _moment(seconds: int) -> str:
    return "" if seconds >= NO_END else shown_moment(seconds)
