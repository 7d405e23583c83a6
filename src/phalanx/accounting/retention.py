"""What is taken out of the accounts again: what is old, and what is one user's; never what is under way."""

from __future__ import annotations

import secrets

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, cast, delete, literal, or_, select, update
from sqlalchemy.types import Text

from phalanx.accounting.facts import run_uid
from phalanx.accounting.store import Store
from phalanx.accounting.sums import DAY
from phalanx.accounting.tables import members, payers, runs, usage


class Removed(msgspec.Struct):
    """How many runs, pods, and sums of a day; of the user's runs so many are `under_way` and as they were."""

    runs: int = 0
    pods: int = 0
    days: int = 0
    under_way: int = 0


def prune(connection: Connection, runs_before: int, usage_before: int, now: int) -> Removed:
    """Removes runs that ended before a moment, and the sums of whole days before another."""
    old = runs.c.ended < runs_before
    removed = Removed()
    _forget(connection, old, now)
    of_old = members.c.run.in_(select(runs.c.id).where(old))
    removed.pods = connection.execute(delete(members).where(of_old)).rowcount
    removed.runs = connection.execute(delete(runs).where(old)).rowcount
    removed.days = connection.execute(delete(usage).where(usage.c.day < usage_before // DAY)).rowcount
    _drop_unused_payers(connection)
    return removed


def pseudonymise(connection: Connection, user: str, now: int) -> tuple[str, Removed]:
    """Nobody can tell any more whose these runs were; what queues used stays as it was. Names of runs and pods
    often tell it as well, so they go, too. Returns the pseudonym: a random one, which is nowhere else."""
    pseudonym = f"erased-{secrets.token_hex(8)}"
    store, removed = Store(connection), Removed()
    for number, namespace, queue in connection.execute(
        select(payers.c.id, payers.c.namespace, payers.c.queue).where(payers.c.user == user)
    ).all():
        new = store.payer(namespace, queue, pseudonym)
        over, gone = _over(runs.c.payer == number), _of_over(members.c.payer == number)
        _forget(connection, over, now)
        hidden = update(members).where(gone).values(payer=new, name=members.c.uid)
        removed.pods += connection.execute(hidden).rowcount
        # Pods that others are charged for keep their payers, but not the name of the run.
        renamed = literal("run-") + cast(runs.c.id, Text)
        unnamed = update(runs).where(over).values(payer=new, name=renamed, gang="")
        removed.runs += connection.execute(unnamed).rowcount
        moved = update(usage).where(usage.c.payer == number).values(payer=new)
        removed.days += connection.execute(moved).rowcount
    removed.under_way = _under_way(connection, user)
    _drop_unused_payers(connection)
    return pseudonym, removed


def delete_user(connection: Connection, user: str, now: int) -> Removed:
    """Removes what a user was charged for; reports of the past show less from then on."""
    removed = Removed()
    charged = select(payers.c.id).where(payers.c.user == user)
    over, gone = _over(runs.c.payer.in_(charged)), _of_over(members.c.payer.in_(charged))
    _forget(connection, over, now)
    of_runs = members.c.run.in_(select(runs.c.id).where(over))
    removed.pods = connection.execute(delete(members).where(or_(of_runs, gone))).rowcount
    removed.runs = connection.execute(delete(runs).where(over)).rowcount
    removed.days = connection.execute(delete(usage).where(usage.c.payer.in_(charged))).rowcount
    removed.under_way = _under_way(connection, user)
    _drop_unused_payers(connection)
    return removed


def _over(which: ColumnElement[bool]) -> ColumnElement[bool]:
    return and_(runs.c.ended.is_not(None), which)


def _of_over(which: ColumnElement[bool]) -> ColumnElement[bool]:
    """Members of runs that are over."""
    return and_(which, members.c.run.in_(select(runs.c.id).where(runs.c.ended.is_not(None))))


def _forget(connection: Connection, which: ColumnElement[bool], now: int) -> None:
    """Neither the pods nor what declares the gangs is recorded anew, should their objects still be there."""
    store = Store(connection)
    found = connection.execute(select(runs.c.uid, runs.c.gang_uid, runs.c.gang).where(which)).all()
    store.forget((uid for uid, _, _ in found), now)
    store.forget((run_uid(gang_uid, gang) for _, gang_uid, gang in found if gang_uid), now)
    of_runs = members.c.run.in_(select(runs.c.id).where(which))
    store.forget(connection.scalars(select(members.c.uid).where(of_runs)), now)


def _under_way(connection: Connection, user: str) -> int:
    charged = select(payers.c.id).where(payers.c.user == user)
    wanted = and_(runs.c.ended.is_(None), runs.c.payer.in_(charged))
    return len(connection.scalars(select(runs.c.id).where(wanted)).all())


def _drop_unused_payers(connection: Connection) -> None:
    used = [payers.c.id.not_in(select(table.c.payer)) for table in (runs, members, usage)]
    connection.execute(delete(payers).where(and_(*used)))
