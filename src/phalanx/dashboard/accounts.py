"""Shares of queues over weeks, read from the database of `phalanx accounting`."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from phalanx.dashboard.access import ViewerAccessError
from phalanx.dashboard.rows.entries import AccountsAnswer

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from phalanx.accounting.database import Database

T = TypeVar("T")

log = logging.getLogger(__name__)

DAY = 86_400
#: Selectable windows in days.
WINDOWS = (14, 30, 90)
_FRESH_SECONDS = 60.0
_NONE = (
    "No accounting database is configured: this page has data since its start only. "
    "Fix: record usage with phalanx accounting run and start the dashboard with --database."
)
NO_DATABASE = (
    "this server has no accounting database. Fix: ask your administrator to record usage (phalanx accounting run) "
    "and to start phalanx dashboard with --database"
)
_AWAY = "The accounting database cannot be read now: see the dashboard's log."


class Accounts:
    """Reader of the accounting database.

    Answers are cached for a minute; queries run one at a time in a separate thread. `database` is None if no
    accounting is configured.
    """

    def __init__(self, database: Database | None) -> None:
        self._database = database
        # A SQLite connection can be used in its own thread only.
        self._thread = ThreadPoolExecutor(1, "accounts")
        self._turn = asyncio.Lock()
        self._known: dict[int, tuple[float, AccountsAnswer]] = {}

    async def answer(self, days: int, queues: frozenset[str] | None) -> AccountsAnswer:
        """Return the daily usage of queues in the last `days` (one of WINDOWS), of `queues` or of all queues
        (None)."""
        if self._database is None:
            return AccountsAnswer(state="none", message=_NONE)
        async with self._turn:
            known = self._known.get(days)
            if known is None or time.monotonic() >= known[0]:
                loop = asyncio.get_running_loop()
                answer = await loop.run_in_executor(self._thread, self._read, self._database, days)
                known = self._known[days] = (time.monotonic() + _FRESH_SECONDS, answer)
        answer = known[1]
        if queues is None:
            return answer
        return AccountsAnswer(
            state=answer.state,
            message=answer.message,
            times=answer.times,
            held={
                resource: {queue: values for queue, values in usages.items() if queue in queues}
                for resource, usages in answer.held.items()
            },
            total=answer.total,
        )

    async def query(self, read: Callable[[Connection], T]) -> T:
        """Return the answer of `read` about the database, in its thread. Raises ViewerAccessError (404 without a
        database, 503 if it cannot be read)."""
        if self._database is None:
            raise ViewerAccessError(404, NO_DATABASE)
        async with self._turn:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, _query, self._database, read)

    def close(self) -> None:
        self._thread.shutdown()

    def _read(self, database: Database, days: int) -> AccountsAnswer:
        from phalanx.accounting.database import DatabaseError
        from phalanx.accounting.queue_days import read_queue_days

        now = int(time.time())
        first = now // DAY - days + 1
        try:
            with database.reading() as connection:
                usage = read_queue_days(connection, first, days, now)
        except DatabaseError as error:
            log.warning("accounts: %s", error)
            return AccountsAnswer(state="away", message=_AWAY)
        moments = [day * DAY for day in range(first, first + days)]
        # The last day is not complete.
        seconds = [min(DAY, max(1, now - moment)) for moment in moments]
        held = {
            resource: {
                queue: [_mean(*day) for day in zip(sums, seconds, strict=True)] for queue, sums in of.items()
            }
            for resource, of in usage.items()
        }
        total = {
            resource: [
                _mean(sum(sums), lasted)
                for sums, lasted in zip(zip(*of.values(), strict=True), seconds, strict=True)
            ]
            for resource, of in usage.items()
        }
        return AccountsAnswer(state="there", times=moments, held=held, total=total)


def _query(database: Database, read: Callable[[Connection], T]) -> T:
    from phalanx.accounting.database import DatabaseError

    try:
        with database.reading() as connection:
            return read(connection)
    except DatabaseError as error:
        log.warning("accounts: %s", error)
        raise ViewerAccessError(503, "the accounting database cannot be read now") from error


def _mean(amount_seconds: int, seconds: int) -> float:
    return round(amount_seconds / seconds, 3)
