"""Removal of usage records: old ones, and those of one user; runs that have not ended always stay."""

from __future__ import annotations

import secrets

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, cast, delete, literal, or_, select, update
from sqlalchemy.types import Text

from phalanx.accounting.facts import run_uid
from phalanx.accounting.store import Store
from phalanx.accounting.sums import DAY
from phalanx.accounting.tables import members, notices, payers, runs, usage


class Removed(msgspec.Struct):
    """Numbers of removed runs, pods, and sums per day; `under_way` counts the user's running runs, which stay."""

    runs: int = 0
    pods: int = 0
    days: int = 0
    under_way: int = 0


def prune(connection: Connection, runs_before: int, usage_before: int, now: int) -> Removed:
    """Remove recorded runs that ended before one time, and the sums of whole days before another."""
    old = runs.c.ended < runs_before
    removed = Removed()
    _forget(connection, old, now)
    of_old_runs = members.c.run.in_(select(runs.c.id).where(old))
    removed.pods = connection.execute(delete(members).where(of_old_runs)).rowcount
    removed.runs = connection.execute(delete(runs).where(old)).rowcount
    removed.days = connection.execute(delete(usage).where(usage.c.day < usage_before // DAY)).rowcount
    _drop_unused_payers(connection)
    return removed


def pseudonymise(connection: Connection, user: str, now: int) -> tuple[str, Removed]:
    """Replace the user's name in ended runs by a random pseudonym. Return it with the counts; usage of queues
    stays.

    Names of runs and pods often identify the user, so they are replaced, too.
    """
    pseudonym = f"erased-{secrets.token_hex(8)}"
    store, removed = Store(connection), Removed()
    for number, namespace, queue in connection.execute(
        select(payers.c.id, payers.c.namespace, payers.c.queue).where(payers.c.user == user)
    ).all():
        new = store.payer(namespace, queue, pseudonym)
        ended, members_of_ended = (
            _ended_runs(runs.c.payer == number),
            _members_of_ended_runs(members.c.payer == number),
        )
        _forget(connection, ended, now)
        hidden = update(members).where(members_of_ended).values(payer=new, name=members.c.uid)
        removed.pods += connection.execute(hidden).rowcount
        # Pods of the same run that are charged to another user keep their payers; the run loses its name.
        renamed = literal("run-") + cast(runs.c.id, Text)
        unnamed = update(runs).where(ended).values(payer=new, name=renamed, gang="", notify="")
        removed.runs += connection.execute(unnamed).rowcount
        moved = update(usage).where(usage.c.payer == number).values(payer=new)
        removed.days += connection.execute(moved).rowcount
    removed.under_way = _under_way(connection, user)
    _drop_unused_payers(connection)
    return pseudonym, removed


def delete_user(connection: Connection, user: str, now: int) -> Removed:
    """Remove the usage records that a user was charged for; reports of past periods shrink accordingly."""
    removed = Removed()
    charged = select(payers.c.id).where(payers.c.user == user)
    ended, members_of_ended = (
        _ended_runs(runs.c.payer.in_(charged)),
        _members_of_ended_runs(members.c.payer.in_(charged)),
    )
    _forget(connection, ended, now)
    of_runs = members.c.run.in_(select(runs.c.id).where(ended))
    removed.pods = connection.execute(delete(members).where(or_(of_runs, members_of_ended))).rowcount
    removed.runs = connection.execute(delete(runs).where(ended)).rowcount
    removed.days = connection.execute(delete(usage).where(usage.c.payer.in_(charged))).rowcount
    removed.under_way = _under_way(connection, user)
    _drop_unused_payers(connection)
    return removed


def _ended_runs(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(runs.c.ended.is_not(None), condition)


def _members_of_ended_runs(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the SQL condition for members of ended runs."""
    return and_(condition, members.c.run.in_(select(runs.c.id).where(runs.c.ended.is_not(None))))


def _forget(connection: Connection, condition: ColumnElement[bool], now: int) -> None:
    """Mark erased pods and gangs, so that they are not recorded again while their objects exist."""
    store = Store(connection)
    rows = connection.execute(select(runs.c.uid, runs.c.gang_uid, runs.c.gang).where(condition)).all()
    store.forget((uid for uid, _, _ in rows), now)
    store.forget((run_uid(gang_uid, gang) for _, gang_uid, gang in rows if gang_uid), now)
    connection.execute(delete(notices).where(notices.c.run.in_(select(runs.c.uid).where(condition))))
    of_runs = members.c.run.in_(select(runs.c.id).where(condition))
    store.forget(connection.scalars(select(members.c.uid).where(of_runs)), now)


def _under_way(connection: Connection, user: str) -> int:
    charged = select(payers.c.id).where(payers.c.user == user)
    open_runs = and_(runs.c.ended.is_(None), runs.c.payer.in_(charged))
    return len(connection.scalars(select(runs.c.id).where(open_runs)).all())


def _drop_unused_payers(connection: Connection) -> None:
    used = [payers.c.id.not_in(select(table.c.payer)) for table in (runs, members, usage)]
    connection.execute(delete(payers).where(and_(*used)))
