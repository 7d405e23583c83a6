"""The statements of the recorder, for SQLite and PostgreSQL alike."""

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
from phalanx.accounting.tables import forgotten, members, payers, properties, runs, usage

T = TypeVar("T")

# So many values fit into one statement of either database.
_AT_ONCE = 5000

#: (day, payer, resource) -> used, of that evicted, of that failed.
Sums = Mapping[tuple[int, int, str], Sequence[int]]


class Store:
    """One transaction's view of the tables."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        self._insert: Any = dialect.insert

    # properties

    def property(self, name: str) -> str | None:
        found = self._connection.execute(select(properties.c.value).where(properties.c.name == name)).scalar()
        return str(found) if found is not None else None

    def set_property(self, name: str, value: str) -> None:
        statement = self._insert(properties).values(name=name, value=value)
        self._connection.execute(statement.on_conflict_do_update(index_elements=["name"], set_={"value": value}))

    # reading

    def members(self, uids: Iterable[str]) -> dict[str, MemberRow]:
        found: dict[str, MemberRow] = {}
        for some in _chunks(uids):
            for row in self._connection.execute(select(members).where(members.c.uid.in_(some))):
                found[row.uid] = MemberRow(*row)
        return found

    def forgotten(self, uids: Iterable[str]) -> set[str]:
        found: set[str] = set()
        for some in _chunks(uids):
            found.update(self._connection.scalars(select(forgotten.c.uid).where(forgotten.c.uid.in_(some))))
        return found

    def runs(self, ids: Iterable[int], gangs: Iterable[tuple[str, str]]) -> dict[int, RunRow]:
        """The runs of these ids; of each of these gangs the last, and those that are not over."""
        wanted = set(ids)
        names: dict[str, set[str]] = {}
        for namespace, gang in gangs:
            names.setdefault(namespace, set()).add(gang)
        for namespace, every in names.items():
            # One namespace at a time: else neither database uses the index.
            for keys in _chunks(sorted(every)):
                of_gangs = and_(runs.c.namespace == namespace, runs.c.gang.in_(keys))
                last = select(func.max(runs.c.id)).where(of_gangs).group_by(runs.c.gang)
                wanted.update(self._connection.scalars(last))
                under_way = select(runs.c.id).where(and_(of_gangs, runs.c.ended.is_(None)))
                wanted.update(self._connection.scalars(under_way))
        found: dict[int, RunRow] = {}
        for some in _chunks(sorted(wanted)):
            for row in self._connection.execute(select(runs).where(runs.c.id.in_(some))):
                found[row.id] = RunRow(*row)
        return found

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
        found: dict[int, RunTotals] = {}
        for some in _chunks(ids):
            for run, count, opened, bound, last, left, created, started in self._connection.execute(
                statement.where(members.c.run.in_(some))
            ):
                found[run] = RunTotals(
                    count,
                    int(opened),
                    int(bound),
                    last or 0,
                    last is not None and last == left,
                    created,
                    started or 0,
                )
        return found

    def ends(self, ids: Iterable[int]) -> dict[int, list[MemberEnd]]:
        """run -> how its members ended, of runs all of whose members have."""
        found: dict[int, list[MemberEnd]] = {}
        table = members.c
        wanted = (table.name, table.created, table.ended, table.end_precision, table.outcome, table.reason)
        for some in _chunks(ids):
            for run, name, created, ended, precision, outcome, reason, evicted in self._connection.execute(
                select(table.run, *wanted, table.evicted).where(table.run.in_(some))
            ):
                end = MemberEnd(name, created, ended, Precision(precision), outcome, reason, evicted)
                found.setdefault(run, []).append(end)
        return found

    def evictions(self, ids: Iterable[int]) -> dict[int, list[int]]:
        """run -> when members of it that were evicted were told so."""
        found: dict[int, list[int]] = {}
        for some in _chunks(ids):
            wanted = and_(members.c.run.in_(some), members.c.outcome == PodOutcome.EVICTED)
            for run, moment in self._connection.execute(select(members.c.run, members.c.evicted).where(wanted)):
                found.setdefault(run, []).append(moment)
        return found

    def first_payers(self, ids: Iterable[int]) -> dict[int, int]:
        """run -> the payer of the member that got its node first."""
        found: dict[int, int] = {}
        for some in _chunks(ids):
            wanted = and_(members.c.run.in_(some), members.c.bound.is_not(None))
            order = (members.c.run, members.c.bound, members.c.created, members.c.uid)
            for run, payer in self._connection.execute(
                select(members.c.run, members.c.payer).where(wanted).order_by(*order)
            ):
                found.setdefault(run, payer)
        return found

    def open(self) -> Iterator[tuple[str, str, str]]:
        """(uid, namespace, gang) of pods that have not ended; a pod on its own is a gang as `key_of` names it."""
        joined = members.join(runs, members.c.run == runs.c.id)
        wanted = select(members.c.uid, runs.c.namespace, runs.c.gang).select_from(joined)
        for uid, namespace, gang in self._connection.execute(wanted.where(members.c.ended.is_(None))):
            yield uid, namespace, gang or f"/{uid}"

    def open_gangs(self) -> list[tuple[str, str]]:
        wanted = and_(runs.c.ended.is_(None), runs.c.gang != "")
        found = self._connection.execute(select(runs.c.namespace, runs.c.gang).where(wanted).distinct())
        return [(namespace, gang) for namespace, gang in found]

    def next_run(self) -> int:
        return int(self._connection.scalar(select(func.max(runs.c.id))) or 0) + 1

    # writing

    def payer(self, namespace: str, queue: str, user: str) -> int:
        """The id of this combination, which is made where it is new."""
        asked = and_(payers.c.namespace == namespace, payers.c.queue == queue, payers.c.user == user)
        found = self._connection.scalar(select(payers.c.id).where(asked))
        if found is None:
            # Writers come one at a time, so a number that is free now is.
            found = int(self._connection.scalar(select(func.max(payers.c.id))) or 0) + 1
            content = {"id": found, "namespace": namespace, "queue": queue, "user": user}
            self._connection.execute(payers.insert(), [content])
        return int(found)

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
        """Adds to what is there."""
        rows = []
        for (day, payer, resource), (used, evicted, failed) in sorted(sums.items()):
            row: dict[str, Any] = {"day": day, "payer": payer, "resource": resource}
            for name, number in (("used", used), ("evicted", evicted), ("failed", failed)):
                row[f"{name}_high"], row[f"{name}_low"] = split(number)
            rows.append(row)
        if rows:
            statement = self._insert(usage)
            added = {
                each.name: each + statement.excluded[each.name] for each in usage.columns if not each.primary_key
            }
            keys = ["day", "payer", "resource"]
            self._connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=added), rows)

    def forget(self, uids: Iterable[str], now: int) -> None:
        rows = [{"uid": uid, "since": now} for uid in uids if uid]
        if rows:
            self._connection.execute(self._insert(forgotten).on_conflict_do_nothing(), rows)

    def keep_forgotten(self, uids: Collection[str]) -> None:
        """Drops those that are not among these."""
        for some in _chunks([uid for uid in self._connection.scalars(select(forgotten.c.uid)) if uid not in uids]):
            self._connection.execute(delete(forgotten).where(forgotten.c.uid.in_(some)))

    def _change(self, table: Any, key: str, rows: Sequence[MemberRow | RunRow]) -> None:
        if not rows:
            return
        values: dict[str, Any] = {each.name: bindparam(each.name) for each in table.columns if each.name != key}
        statement = update(table).where(table.c[key] == bindparam("changed_key")).values(values)
        named = []
        for row in rows:
            content = columns(row)
            named.append({**content, "changed_key": content.pop(key)})
        self._connection.execute(statement, named)


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(values)
    while some := list(islice(iterator, _AT_ONCE)):
        yield some
