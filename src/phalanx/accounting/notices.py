"""Notices of runs: stored in the transaction that records their event, and read by the delivery."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import msgspec
from sqlalchemy import and_, delete, select, update

from phalanx.accounting.database import Database
from phalanx.accounting.records import RunRow
from phalanx.accounting.runs import State
from phalanx.accounting.store import Store
from phalanx.accounting.tables import notices
from phalanx.notifications.delivery import StoredNotice
from phalanx.notifications.events import NoticeEvent, Subscription
from phalanx.notifications.notice import Notice, shown_time
from phalanx.notifications.settings import Settings

T = TypeVar("T")

#: Property with the time at which notifications were enabled: earlier events are not sent.
SINCE = "notifying-since"
# Seconds for which a process has a claimed notice for itself.
_CLAIM = 60
# Seconds for which a sent notice is remembered, because its event can be recorded again.
_REMEMBER = 7 * 86_400
_FAILURES = (State.FAILED, State.TIMEOUT)


class NoticeWriter:
    """Adds the notices of changed runs to a transaction."""

    def __init__(self, store: Store, settings: Settings, now: int) -> None:
        self._store = store
        self._settings = settings
        self._now = now
        self._since = int(store.property(SINCE) or now)

    def run_changed(self, before: RunRow | None, run: RunRow) -> None:
        """Store the notices of the events between two states of a run; `before` is None for a new one."""
        for event, moment in run_events(before, run, self._now):
            if moment >= self._since:
                self.add(run, event, moment, str(moment if event is not NoticeEvent.EVICTION else run.evictions))

    def add(self, run: RunRow, event: NoticeEvent, moment: int, occurrence: str, reason: str = "") -> None:
        """Store a notice for each target that is subscribed. The same `occurrence` of an event is stored once."""
        namespace, queue, user = self._store.payer_of(run.payer)
        stated = msgspec.json.decode(run.notify, type=Subscription) if run.notify else None
        own = self._settings.accepted(stated, namespace, user) if stated is not None else None
        subscriptions = {*self._settings.queues.get(queue, ()), *filter(None, [own])}
        places = {(entry.target, entry.to) for entry in subscriptions if entry.covers(event)}
        for target, recipient in sorted(places):
            text = f"{run.uid}/{event}/{occurrence}/{target}/{recipient}"
            notice = Notice(
                id=hashlib.blake2s(text.encode(), digest_size=16).hexdigest(),
                event=event,
                time=shown_time(moment),
                namespace=namespace,
                gang=run.name,
                kind=run.kind,
                queue=queue,
                user=user,
                state=run.state,
                reason=reason or run.reason,
                submitted=shown_time(run.submitted),
                started=shown_time(run.started),
                ended=shown_time(run.ended),
                evictions=run.evictions,
            )
            self._store.add_notice(
                notice.id, run.uid, target, recipient, msgspec.json.encode(notice).decode(), self._now
            )


def run_events(before: RunRow | None, run: RunRow, now: int) -> Iterator[tuple[NoticeEvent, int]]:
    """Yield the events between two recorded states of a run, with their times."""
    if run.started is not None and (before is None or before.started is None):
        yield NoticeEvent.START, run.started
    if run.evictions > (before.evictions if before is not None else 0):
        yield NoticeEvent.EVICTION, now
    if run.ended is not None and (before is None or before.ended != run.ended):
        yield (NoticeEvent.FAILURE if run.state in _FAILURES else NoticeEvent.END), run.ended


class DatabaseOutbox:
    """Notices in the usage database. `call` executes a function in the thread of the database."""

    def __init__(self, database: Database, call: Callable[[Callable[[], T]], Awaitable[T]]) -> None:
        self._database = database
        self._call = call

    async def claim(self, now: int, limit: int) -> list[StoredNotice]:
        return await self._call(lambda: self._claim(now, limit))  # type: ignore[arg-type, return-value]

    async def sent(self, stored: StoredNotice, now: int) -> None:
        await self._update(stored, due=None)

    async def drop(self, stored: StoredNotice, now: int) -> None:
        await self._update(stored, due=None)

    async def postpone(self, stored: StoredNotice, due: int, *, failed: bool) -> None:
        await self._update(stored, due=due, attempts=stored.attempts + failed)

    def _claim(self, now: int, limit: int) -> list[StoredNotice]:
        with self._database.reading(check=False) as connection:
            if connection.scalar(select(notices.c.id).where(notices.c.due <= now).limit(1)) is None:
                return []
        with self._database.writing() as connection:
            rows = connection.execute(
                select(notices).where(notices.c.due <= now).order_by(notices.c.due, notices.c.id).limit(limit)
            ).all()
            claimed = update(notices).where(notices.c.id.in_([row.id for row in rows])).values(due=now + _CLAIM)
            connection.execute(claimed)
        return [
            StoredNotice(
                msgspec.json.decode(row.content, type=Notice), row.target, row.recipient, row.created, row.attempts
            )
            for row in rows
        ]

    async def _update(self, stored: StoredNotice, **values: int | None) -> None:
        def change() -> None:
            with self._database.writing() as connection:
                of_notice = notices.c.id == stored.notice.id
                connection.execute(update(notices).where(of_notice).values(**values))

        await self._call(change)  # type: ignore[arg-type]

    async def forget(self, now: int) -> None:
        """Delete the notices that were sent a week ago."""

        def remove() -> None:
            with self._database.writing() as connection:
                old = and_(notices.c.due.is_(None), notices.c.created < now - _REMEMBER)
                connection.execute(delete(notices).where(old))

        await self._call(remove)  # type: ignore[arg-type]
