"""Queries of recorded runs of gangs: past and current ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import Connection, and_, or_, select

from phalanx.accounting.facts import Precision
from phalanx.accounting.questions import RunEntry, RunFilter
from phalanx.accounting.sums import decode_parts, usage_within
from phalanx.accounting.tables import members, payers, runs
from phalanx.model.resources import PODS

_AT_ONCE = 5000


def read_runs(connection: Connection, run_filter: RunFilter, now: int, most: int | None = None) -> list[RunEntry]:
    """Return the recorded runs that match a filter, oldest submission first, at most the `most` first ones."""
    table = runs.c
    conditions = [table.submitted < run_filter.until, or_(table.ended.is_(None), table.ended >= run_filter.since)]
    for column, values in (
        (payers.c.queue, run_filter.queues),
        (payers.c.user, run_filter.users),
        (table.state, list(run_filter.states)),
        (table.namespace, [run_filter.namespace] if run_filter.namespace else []),
        (table.name, [run_filter.gang] if run_filter.gang else []),
    ):
        if values:
            conditions.append(column.in_(values))
    statement = select(runs, payers.c.queue, payers.c.user).join(payers, payers.c.id == table.payer)
    rows = connection.execute(
        statement.where(and_(*conditions)).order_by(table.submitted, table.id).limit(most)
    ).all()
    holdings = _holdings(connection, [row.id for row in rows], now)
    none = Holding()
    return [
        RunEntry(
            namespace=row.namespace,
            name=row.name,
            kind=row.kind,
            uid=row.uid,
            queue=row.queue,
            user=row.user,
            state=row.state,
            reason=row.reason,
            submitted=row.submitted,
            admitted=row.admitted,
            started=row.started,
            ended=row.ended,
            wait=row.wait if row.wait is not None else max(0, (row.ended or now) - row.submitted),
            run=holdings.get(row.id, none).seconds(),
            members=row.members,
            evictions=row.evictions,
            estimated=Precision.ESTIMATED in (row.end_precision, row.admitted_precision)
            or holdings.get(row.id, none).estimated,
            used=dict(sorted(holdings.get(row.id, none).used.items())),
            evicted=dict(sorted(holdings.get(row.id, none).evicted.items())),
        )
        for row in rows
    ]


class Holding(msgspec.Struct):
    """Times in which the members of a run used resources: `spans` are (from, until)."""

    spans: list[tuple[int, int]] = []
    used: dict[str, int] = {}
    evicted: dict[str, int] = {}
    estimated: bool = False

    def seconds(self) -> int:
        """Return the number of seconds in which any member of the run was bound."""
        total, reached = 0, 0
        for begin, end in sorted(self.spans):
            total += max(0, end - max(begin, reached))
            reached = max(reached, end)
        return total


def _holdings(connection: Connection, numbers: Sequence[int], now: int) -> dict[int, Holding]:
    holdings: dict[int, Holding] = {}
    table = members.c
    columns = (table.run, table.bound, table.bound_precision, table.ended, table.end_precision, table.outcome)
    for start in range(0, len(numbers), _AT_ONCE):
        chunk = numbers[start : start + _AT_ONCE]
        statement = select(*columns, table.parts).where(and_(table.run.in_(chunk), table.bound.is_not(None)))
        for run, bound, bound_precision, ended, end_precision, outcome, parts in connection.execute(statement):
            holding = holdings.setdefault(run, Holding())
            end = max(bound, now) if ended is None else ended
            holding.spans.append((bound, end))
            holding.estimated |= Precision.ESTIMATED in (bound_precision, end_precision)
            _add(holding.used, usage_within(decode_parts(parts), bound, end))
            if outcome == "Evicted":
                _add(holding.evicted, usage_within(decode_parts(parts), bound, end))
    return holdings


def _add(sums: dict[str, int], amounts: Iterable[tuple[str, int]]) -> None:
    for resource, amount in amounts:
        if resource != PODS:
            sums[resource] = sums.get(resource, 0) + amount
