"""SQL statements of the usage recorder, for SQLite and PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection, and_, bindparam, case, delete, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from phalanx.accounting.facts import PodOutcome, Precision
from phalanx.accounting.records import MemberRow, RunRow, columns
from phalanx.accounting.runs import MemberEnd, RunTotals
from phalanx.accounting.sums import split
from phalanx.accounting.tables import forgotten, members, notices, payers, properties, runs, usage

T = TypeVar("T")

# Largest number of values in one statement that both databases accept.
_AT_ONCE = 5000

#: (day, payer, resource) -> usage in total, by evicted pods, by failed pods.
Sums = Mapping[tuple[int, int, str], Sequence[int]]


class Store:
    """Tables of the usage database within one transaction."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        self._insert: Any = dialect.insert

    # properties

    def property(self, name: str) -> str | None:
        value = self._connection.execute(select(properties.c.value).where(properties.c.name == name)).scalar()
        return str(value) if value is not None else None

    def set_property(self, name: str, value: str) -> None:
        statement = self._insert(properties).values(name=name, value=value)
        self._connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": value}))

    # reading

    def members(self, uids: Iterable[str]) -> dict[str, MemberRow]:
        rows: dict[str, MemberRow] = {}
        for chunk in _chunks(uids):
            for row in self._connection.execute(select(members).where(members.c.uid.in_(chunk))):
                rows[row.uid] = MemberRow(*row)
        return rows

    def forgotten(self, uids: Iterable[str]) -> set[str]:
        uids_found: set[str] = set()
        for chunk in _chunks(uids):
            uids_found.update(self._connection.scalars(select(forgotten.c.uid).where(forgotten.c.uid.in_(chunk))))
        return uids_found

    def runs(self, ids: Iterable[int], gangs: Iterable[tuple[str, str]]) -> dict[int, RunRow]:
        """Return the runs with these ids, and of each of these gangs the last run and all runs that have not
        ended."""
        wanted = set(ids)
        names: dict[str, set[str]] = {}
        for namespace, gang in gangs:
            names.setdefault(namespace, set()).add(gang)
        for namespace, gang_names in names.items():
            # One namespace per statement: else neither database uses the index.
            for keys in _chunks(sorted(gang_names)):
                of_gangs = and_(runs.c.namespace == namespace, runs.c.gang.in_(keys))
                last = select(func.max(runs.c.id)).where(of_gangs).group_by(runs.c.gang)
                wanted.update(self._connection.scalars(last))
                under_way = select(runs.c.id).where(and_(of_gangs, runs.c.ended.is_(None)))
                wanted.update(self._connection.scalars(under_way))
        rows: dict[int, RunRow] = {}
        for chunk in _chunks(sorted(wanted)):
            for row in self._connection.execute(select(runs).where(runs.c.id.in_(chunk))):
                rows[row.id] = RunRow(*row)
        return rows

    def totals(self, ids: Iterable[int]) -> dict[int, RunTotals]:
        is_open = members.c.ended.is_(None)
        evicted = case((members.c.outcome == PodOutcome.EVICTED, members.c.ended))
        statement = select(
            members.c.run,
            func.count(),
            func.sum(case((is_open, 1), else_=0)),
            func.sum(case((and_(is_open, members.c.bound.is_not(None)), 1), else_=0)),
            func.max(members.c.ended),
            func.max(evicted),
            func.min(members.c.created),
            func.min(members.c.bound),
        ).group_by(members.c.run)
        totals: dict[int, RunTotals] = {}
        for chunk in _chunks(ids):
            for run, count, opened, bound, last, last_eviction, created, started in self._connection.execute(
                statement.where(members.c.run.in_(chunk))
            ):
                totals[run] = RunTotals(
                    count,
                    int(opened),
                    int(bound),
                    last or 0,
                    last is not None and last == last_eviction,
                    created,
                    started or 0,
                )
        return totals

    def ends(self, ids: Iterable[int]) -> dict[int, list[MemberEnd]]:
        """Return the ends of the members of each run, for runs whose members have all ended."""
        ends: dict[int, list[MemberEnd]] = {}
        table = members.c
        selected = (table.name, table.created, table.ended, table.end_precision, table.outcome, table.reason)
        for chunk in _chunks(ids):
            for run, name, created, ended, precision, outcome, reason, evicted in self._connection.execute(
                select(table.run, *selected, table.evicted).where(table.run.in_(chunk))
            ):
                end = MemberEnd(name, created, ended, Precision(precision), outcome, reason, evicted)
                ends.setdefault(run, []).append(end)
        return ends

    def evictions(self, ids: Iterable[int]) -> dict[int, list[int]]:
        """Return the times of its members' evictions for each run."""
        moments: dict[int, list[int]] = {}
        for chunk in _chunks(ids):
            condition = and_(members.c.run.in_(chunk), members.c.outcome == PodOutcome.EVICTED)
            for run, moment in self._connection.execute(select(members.c.run, members.c.evicted).where(condition)):
                moments.setdefault(run, []).append(moment)
        return moments

    def first_payers(self, ids: Iterable[int]) -> dict[int, int]:
        """Return the payer of the member that was bound first, for each run."""
        first: dict[int, int] = {}
        for chunk in _chunks(ids):
            condition = and_(members.c.run.in_(chunk), members.c.bound.is_not(None))
            order = (members.c.run, members.c.bound, members.c.created, members.c.uid)
            for run, payer in self._connection.execute(
                select(members.c.run, members.c.payer).where(condition).order_by(*order)
            ):
                first.setdefault(run, payer)
        return first

    def open_members(self) -> Iterator[tuple[str, str, str]]:
        """Yield (uid, namespace, gang) of recorded pods without an end; a single pod's gang is named as in
        `key_of`."""
        joined = members.join(runs, members.c.run == runs.c.id)
        statement = select(members.c.uid, runs.c.namespace, runs.c.gang).select_from(joined)
        for uid, namespace, gang in self._connection.execute(statement.where(members.c.ended.is_(None))):
            yield uid, namespace, gang or f"/{uid}"

    def open_gangs(self) -> list[tuple[str, str]]:
        condition = and_(runs.c.ended.is_(None), runs.c.gang != "")
        rows = self._connection.execute(select(runs.c.namespace, runs.c.gang).where(condition).distinct())
        return [(namespace, gang) for namespace, gang in rows]

    def next_run(self) -> int:
        return int(self._connection.scalar(select(func.max(runs.c.id))) or 0) + 1

    def payer_of(self, number: int) -> tuple[str, str, str]:
        """Return namespace, queue and user of a payer."""
        row = self._connection.execute(
            select(payers.c.namespace, payers.c.queue, payers.c.user).where(payers.c.id == number)
        ).one()
        return row.namespace, row.queue, row.user

    def runs_of_pods(self, uids: Iterable[str]) -> dict[str, int]:
        """Return the run of each recorded pod."""
        found: dict[str, int] = {}
        for chunk in _chunks(uids):
            statement = select(members.c.uid, members.c.run).where(members.c.uid.in_(chunk))
            found.update((row.uid, row.run) for row in self._connection.execute(statement))
        return found

    # writing

    def add_notice(self, number: str, run: str, target: str, recipient: str, content: str, now: int) -> None:
        """Store a notice that is due now, unless it is stored already."""
        row = {"id": number, "run": run, "target": target, "recipient": recipient, "content": content}
        values = {**row, "created": now, "due": now, "attempts": 0}
        self._connection.execute(self._insert(notices).on_conflict_do_nothing(), [values])

    def payer(self, namespace: str, queue: str, user: str) -> int:
        """Return the id of the payer with this namespace, queue and user; add it if it is new."""
        condition = and_(payers.c.namespace == namespace, payers.c.queue == queue, payers.c.user == user)
        number = self._connection.scalar(select(payers.c.id).where(condition))
        if number is None:
            # Writers run one at a time, so no other writer takes this number.
            number = int(self._connection.scalar(select(func.max(payers.c.id))) or 0) + 1
            content = {"id": number, "namespace": namespace, "queue": queue, "user": user}
            self._connection.execute(payers.insert(), [content])
        return int(number)

    def add_runs(self, rows: Sequence[RunRow]) -> None:
        if rows:
            self._connection.execute(runs.insert(), [columns(row) for row in rows])

    def change_runs(self, rows: Sequence[RunRow]) -> None:
        self._change(runs, "id", rows)

    def add_members(self, rows: Sequence[MemberRow]) -> None:
        if rows:
            self._connection.execute(members.insert(), [columns(row) for row in rows])

    def change_members(self, rows: Sequence[MemberRow]) -> None:
        self._change(members, "uid", rows)

    def add_usage(self, sums: Sums) -> None:
        """Add usage sums per day and payer to the stored sums."""
        rows = []
        for (day, payer, resource), (used, evicted, failed) in sorted(sums.items()):
            row: dict[str, Any] = {"day": day, "payer": payer, "resource": resource}
            for name, number in (("used", used), ("evicted", evicted), ("failed", failed)):
                row[f"{name}_high"], row[f"{name}_low"] = split(number)
            rows.append(row)
        if rows:
            statement = self._insert(usage)
            added = {
                column.name: column + statement.excluded[column.name]
                for column in usage.columns
                if not column.primary_key
            }
            keys = ["day", "payer", "resource"]
            self._connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=added), rows)

    def forget(self, uids: Iterable[str], now: int) -> None:
        rows = [{"uid": uid, "since": now} for uid in uids if uid]
        if rows:
            self._connection.execute(self._insert(forgotten).on_conflict_do_nothing(), rows)

    def keep_forgotten(self, uids: Collection[str]) -> None:
        """Delete the marks of erased pods and gangs whose uids are not among `uids`."""
        for chunk in _chunks([uid for uid in self._connection.scalars(select(forgotten.c.uid)) if uid not in uids]):
            self._connection.execute(delete(forgotten).where(forgotten.c.uid.in_(chunk)))

    def _change(self, table: Any, key: str, rows: Sequence[MemberRow | RunRow]) -> None:
        if not rows:
            return
        values: dict[str, Any] = {
            column.name: bindparam(column.name) for column in table.columns if column.name != key
        }
        statement = update(table).where(table.c[key] == bindparam("changed_key")).values(values)
        parameters = []
        for row in rows:
            content = columns(row)
            parameters.append({**content, "changed_key": content.pop(key)})
        self._connection.execute(statement, parameters)


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(values)
    while chunk := list(islice(iterator, _AT_ONCE)):
        yield chunk
