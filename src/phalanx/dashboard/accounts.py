"""Shares of queues over weeks, from the accounts that `phalanx accounting` keeps, where there are any."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from phalanx.dashboard.rows.entries import AccountsAnswer

if TYPE_CHECKING:
    from phalanx.accounting.database import Database

log = logging.getLogger(__name__)

DAY = 86_400
#: So many days may be asked for.
WINDOWS = (14, 30, 90)
_FRESH_SECONDS = 60.0
_NONE = (
    "No accounts are configured for this page, so it knows only what it saw since it was started. "
    "phalanx accounting run keeps them; start the dashboard with --database to show them here."
)
_AWAY = "The accounts cannot be read now: see the dashboard's log."


class Accounts:
    """Answers are kept for a minute; one question is asked at a time, in a thread of its own. With `database` None
    there are none."""

    def __init__(self, database: Database | None) -> None:
        self._database = database
        # SQLite's connections belong to one thread each.
        self._thread = ThreadPoolExecutor(1, "accounts")
        self._turn = asyncio.Lock()
        self._known: dict[int, tuple[float, AccountsAnswer]] = {}

    async def answer(self, days: int, queues: frozenset[str] | None) -> AccountsAnswer:
        """Of the last `days` (one of WINDOWS); of some queues, or of all (None)."""
        if self._database is None:
            return AccountsAnswer(state="none", message=_NONE)
        async with self._turn:
            known = self._known.get(days)
            if known is None or time.monotonic() >= known[0]:
                loop = asyncio.get_running_loop()
                found = await loop.run_in_executor(self._thread, self._read, self._database, days)
                known = self._known[days] = (time.monotonic() + _FRESH_SECONDS, found)
        found = known[1]
        if queues is None:
            return found
        return AccountsAnswer(
            state=found.state,
            message=found.message,
            times=found.times,
            held={
                resource: {queue: values for queue, values in each.items() if queue in queues}
                for resource, each in found.held.items()
            },
            total=found.total,
        )

    def close(self) -> None:
        self._thread.shutdown()

    def _read(self, database: Database, days: int) -> AccountsAnswer:
        from phalanx.accounting.database import DatabaseError
        from phalanx.accounting.queue_days import read_queue_days

        now = int(time.time())
        first = now // DAY - days + 1
        try:
            with database.reading() as connection:
                found = read_queue_days(connection, first, days, now)
        except DatabaseError as error:
            log.warning("accounts: %s", error)
            return AccountsAnswer(state="away", message=_AWAY)
        moments = [day * DAY for day in range(first, first + days)]
        # The last day is not over.
        seconds = [min(DAY, max(1, now - moment)) for moment in moments]
        held = {
            resource: {
                queue: [_mean(*each) for each in zip(sums, seconds, strict=True)] for queue, sums in of.items()
            }
            for resource, of in found.items()
        }
        total = {
            resource: [
                _mean(sum(sums), lasted)
                for sums, lasted in zip(zip(*of.values(), strict=True), seconds, strict=True)
            ]
            for resource, of in found.items()
        }
        return AccountsAnswer(state="there", times=moments, held=held, total=total)


def _mean(amount_seconds: int, seconds: int) -> float:
    return round(amount_seconds / seconds, 3)
