"""Runs of gangs as they are asked for: the past, and what is under way."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import Connection, and_, or_, select

from phalanx.accounting.facts import Precision
from phalanx.accounting.runs import State
from phalanx.accounting.sums import decode_parts, held
from phalanx.accounting.tables import members, payers, runs
from phalanx.model.resources import PODS

_AT_ONCE = 5000


class RunFilter(msgspec.Struct, frozen=True):
    """Runs that were there at some time within [`since`, `until`), as sacct takes its window. `states` are those
    that they ended in or are in now. Empty filters let all pass."""

    since: int
    until: int
    namespace: str = ""
    queues: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    states: tuple[State, ...] = ()
    gang: str = ""


class RunEntry(msgspec.Struct, frozen=True, rename="camel"):
    """One run. Moments are seconds since the epoch, None what has not come; `wait` and `run` are seconds, `run`
    those in which any of its members held a node. `used` is by resource in amount times seconds, exactly; CPU is in
    thousandths of a core. `estimated` tells that some moment fell into a time in which nobody watched."""

    namespace: str
    name: str
    kind: str
    uid: str
    queue: str
    user: str
    state: str
    reason: str
    submitted: int
    admitted: int | None
    started: int | None
    ended: int | None
    wait: int
    run: int
    members: int
    evictions: int
    estimated: bool
    used: dict[str, int]
    evicted: dict[str, int]


def read_runs(connection: Connection, asked: RunFilter, now: int) -> list[RunEntry]:
    """Oldest first."""
    table = runs.c
    conditions = [table.submitted < asked.until, or_(table.ended.is_(None), table.ended >= asked.since)]
    for column, values in (
        (payers.c.queue, asked.queues),
        (payers.c.user, asked.users),
        (table.state, [str(each) for each in asked.states]),
        (table.namespace, [asked.namespace] if asked.namespace else []),
        (table.name, [asked.gang] if asked.gang else []),
    ):
        if values:
            conditions.append(column.in_(values))
    wanted = select(runs, payers.c.queue, payers.c.user).join(payers, payers.c.id == table.payer)
    found = connection.execute(wanted.where(and_(*conditions)).order_by(table.submitted, table.id)).all()
    holdings = _holdings(connection, [row.id for row in found], now)
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
        for row in found
    ]


class Holding(msgspec.Struct):
    """What the members of a run held: `spans` are (from, until)."""

    spans: list[tuple[int, int]] = []
    used: dict[str, int] = {}
    evicted: dict[str, int] = {}
    estimated: bool = False

    def seconds(self) -> int:
        """In which any of them held anything."""
        total, reached = 0, 0
        for begin, end in sorted(self.spans):
            total += max(0, end - max(begin, reached))
            reached = max(reached, end)
        return total


def _holdings(connection: Connection, numbers: Sequence[int], now: int) -> dict[int, Holding]:
    found: dict[int, Holding] = {}
    table = members.c
    columns = (table.run, table.bound, table.bound_precision, table.ended, table.end_precision, table.outcome)
    for start in range(0, len(numbers), _AT_ONCE):
        some = numbers[start : start + _AT_ONCE]
        wanted = select(*columns, table.parts).where(and_(table.run.in_(some), table.bound.is_not(None)))
        for run, bound, how_bound, ended, how_ended, outcome, parts in connection.execute(wanted):
            holding = found.setdefault(run, Holding())
            end = max(bound, now) if ended is None else ended
            holding.spans.append((bound, end))
            holding.estimated |= Precision.ESTIMATED in (how_bound, how_ended)
            _add(holding.used, held(decode_parts(parts), bound, end))
            if outcome == "Evicted":
                _add(holding.evicted, held(decode_parts(parts), bound, end))
    return found


def _add(sums: dict[str, int], amounts: Iterable[tuple[str, int]]) -> None:
    for resource, amount in amounts:
        if resource != PODS:
            sums[resource] = sums.get(resource, 0) + amount
