"""Accounting service: watches a cluster and records the usage of gangs until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec

from phalanx.accounting.database import Database, DatabaseError
from phalanx.accounting.notices import DatabaseOutbox
from phalanx.accounting.promise_watch import late_promises
from phalanx.accounting.recorder import GangChange, OpenMember, Recorder
from phalanx.accounting.records import Clock
from phalanx.accounting.served_names import ServedNames
from phalanx.accounting.sums import DAY
from phalanx.accounting.watch import AccountingWatch
from phalanx.dialects.options import DialectOptions
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NAMESPACES
from phalanx.kube.errors import ApiError
from phalanx.kube.failures import Failures
from phalanx.kube.retry import Backoff
from phalanx.notifications.delivery import SEND_PERIOD, Delivery
from phalanx.notifications.settings import Settings

log = logging.getLogger(__name__)

T = TypeVar("T")

# Seconds for which changes are collected before they are written together.
_GATHER = 0.5
_HEARTBEAT = 10.0
_PROMISE_PERIOD = 15.0
_PODS_AT_ONCE = 500
_SYSTEM = "kube-system"


class AccountingOptions(msgspec.Struct, frozen=True):
    """Options of the service. Without `scheduler_names` it records the pods of all names that the schedulers
    publish in `lease_namespace`. Records older than `keep` seconds are removed once a day; None keeps all.
    With `notifications` events of runs are sent to their targets."""

    scheduler_names: tuple[str, ...] = ()
    lease_namespace: str = "kube-system"
    dialects: DialectOptions = DialectOptions()
    keep: int | None = None
    notifications: Settings | None = None


class AccountingService:
    """Service that records the usage of a cluster's gangs. `run` ends when `stop` is called, after pending changes
    are written.

    `ready` is set once the present state of the cluster is recorded. Raises DatabaseError if the database is
    unusable at the start; later the service waits for it.
    """

    def __init__(
        self,
        client: KubeClient,
        database: Database,
        options: AccountingOptions,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.ready = asyncio.Event()
        self._client = client
        self._database = database
        self._recorder = Recorder(database, options.notifications)
        self._options = options
        self._names = ServedNames(client, options.scheduler_names, options.lease_namespace)
        self._clock = clock
        self._failures = Failures()
        self._stopping = asyncio.Event()
        # The end of the present watch: the service stops, or other scheduler names are served.
        self._ending = asyncio.Event()
        self._wake = asyncio.Event()
        self._pruned = 0
        # An SQLite connection belongs to one thread, and changes must be written in order.
        self._thread = ThreadPoolExecutor(1, "accounts")
        self._watch: AccountingWatch

    def stop(self) -> None:
        """Request the end of `run`."""
        self._stopping.set()
        self._ending.set()
        self._wake.set()

    async def run(self) -> None:
        sending: list[asyncio.Task[None]] = []
        try:
            await self._in_thread(self._database.upgrade)
            cluster = await self._cluster()
            sending = await self._start_notifications()
            while not self._stopping.is_set():
                last = await self._in_thread(lambda: self._recorder.adopt(cluster))
                await self._watch_names(await self._names.read(), last)
        finally:
            self.ready.clear()
            for task in sending:
                task.cancel()
            await asyncio.gather(*sending, return_exceptions=True)
            await asyncio.to_thread(self._thread.shutdown)

    async def _start_notifications(self) -> list[asyncio.Task[None]]:
        settings = self._options.notifications
        if settings is None:
            return []
        await self._in_thread(lambda: self._recorder.enable_notices(int(self._clock())))
        outbox = DatabaseOutbox(self._database, self._in_thread)
        delivery = Delivery(settings, outbox, self._clock)
        loops = (delivery.send_due, self._note_late_promises, lambda: outbox.forget(int(self._clock())))
        periods = (SEND_PERIOD, _PROMISE_PERIOD, DAY)
        return [
            asyncio.create_task(self._repeat(loop, period)) for loop, period in zip(loops, periods, strict=True)
        ]

    async def _repeat(self, work: Callable[[], Awaitable[object]], period: float) -> None:
        """Do `work` again and again. A failure does not end it: the next attempt is a pause later."""
        while True:
            try:
                busy = await work()
            except Exception as error:
                busy = False
                self._failures.record_failure("notifications", type(error).__name__, error)
            if not busy:
                await asyncio.sleep(period)

    async def _note_late_promises(self) -> None:
        now = int(self._clock())
        late = await late_promises(self._client, self._options.lease_namespace, now)
        await self._in_thread(lambda: self._recorder.note_late(late, now))

    async def _watch_names(self, names: tuple[str, ...], last: int) -> None:
        """Record the pods of these scheduler names until the service stops or other names are served."""
        known = await self._in_thread(self._recorder.open_members)
        self._ending.clear()
        if self._stopping.is_set():
            return
        self._watch = AccountingWatch(
            self._client,
            names,
            self._options.dialects,
            changed=self._wake.set,
            clock=self._clock,
            failures=self._failures,
        )
        self._watch.adopted = frozenset(member.uid for member in known)
        watching = asyncio.create_task(self._watch.run())
        working = asyncio.create_task(self._work(last, known))
        ending = asyncio.create_task(self._ending.wait())
        changing = asyncio.create_task(self._names.until_changed(names))
        tasks: tuple[asyncio.Task[Any], ...] = (watching, working, ending, changing)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if changing.done():
                log.info("other scheduler names are served: reading the cluster again")
                self._ending.set()
                self._wake.set()
            if self._ending.is_set() and self.ready.is_set():
                await working
            for task in (working, watching, changing):
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _work(self, last: int, known: list[OpenMember]) -> None:
        await self._watch.synced()
        await self._wait_until_fresh()
        if not await self._record_gap(last, known):
            return
        self.ready.set()
        loop = asyncio.get_running_loop()
        beat, watched = loop.time(), True
        while not self._ending.is_set():
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    await self._wake.wait()
                    await asyncio.sleep(_GATHER)
            except TimeoutError:
                pass
            self._wake.clear()
            if not self._watch.refresh():
                watched = False
                continue
            if not await self._write(watched):
                return
            watched = True
            await self._prune()
            if loop.time() - beat >= _HEARTBEAT:
                beat = loop.time()
                await self._retry(
                    lambda until=self._watch.watched_until: self._recorder.record_watched_until(until)  # type: ignore[misc]
                )
        if self._watch.refresh():
            await self._write(watched)
            await self._retry(lambda: self._recorder.record_watched_until(self._watch.watched_until))

    async def _record_gap(self, last: int, known: list[OpenMember]) -> bool:
        """Record the changes since `last`, the time of the last watch, that a restart missed. Return False if the
        service has to end.

        Pods that were `known` before the cluster was listed, and are not listed now, are lost.
        """
        listed = self._watch.uids()
        for member in known:
            if member.uid not in listed:
                self._watch.note_lost(member.uid, member.key, last)
        for key in await self._in_thread(self._recorder.open_gangs):
            self._watch.note_gang(key)
        if not await self._write(watched=False):
            return False
        await self._retry(lambda: self._recorder.prune_forgotten(listed))
        return await self._retry(lambda: self._recorder.record_watched_until(self._watch.watched_until))

    async def _prune(self) -> None:
        """Remove records beyond their age, once a day."""
        now, keep = int(self._clock()), self._options.keep
        if keep is not None and now >= self._pruned + DAY:
            self._pruned = now
            await self._retry(lambda: self._recorder.prune(now - keep, now))

    async def _wait_until_fresh(self) -> None:
        while not self._watch.refresh():  # noqa: ASYNC110 - the watch has no event for this state
            await asyncio.sleep(0.05)

    async def _write(self, watched: bool) -> bool:
        """Write all pending changes to the database. Return False if the service has to end while the database is
        unreachable."""
        while self._watch.waiting:
            changes = self._watch.take(_PODS_AT_ONCE)
            clock = Clock(int(self._clock()), watched)
            if not await self._retry(lambda: self._record(changes, clock)):  # noqa: B023
                self._watch.requeue(changes)
                return False
            self._watch.confirm(changes)
        return True

    def _record(self, changes: list[GangChange], clock: Clock) -> None:
        """Write changes of gangs to the database, in the writer thread. A gang that cannot be recorded does not
        affect other gangs."""
        try:
            self._recorder.record(changes, clock)
        except DatabaseError as error:
            if error.unreachable or len(changes) == 1:
                raise
            self._record_singly(changes, clock)
        except Exception:
            self._record_singly(changes, clock)

    def _record_singly(self, changes: list[GangChange], clock: Clock) -> None:
        for change in changes:
            try:
                self._recorder.record([change], clock)
            except DatabaseError as error:
                if error.unreachable:
                    raise
                self._failures.record_failure("accounts", str(change.key), error)
            except Exception as error:
                self._failures.record_failure("accounts", str(change.key), error)

    async def _retry(self, call: Callable[[], None]) -> bool:
        """Call a function in the writer thread, and retry while the database is unreachable. Return False if the
        service was stopped."""
        backoff = Backoff(base=0.5, cap=30.0)
        while True:
            try:
                await self._in_thread(call)
            except DatabaseError as error:
                log.warning("%s; retrying", error)
                if self._stopping.is_set():
                    return False
                try:
                    async with asyncio.timeout(backoff.next()):
                        await self._stopping.wait()
                except TimeoutError:
                    continue
            else:
                return True

    async def _in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    async def _cluster(self) -> str:
        """Return the identity of the watched cluster: the uid of its namespace kube-system, "" if unreadable."""
        try:
            namespace = await self._client.get(NAMESPACES.path(None, _SYSTEM))
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            log.warning("cannot read the namespace %s, so another cluster is not detected: %s", _SYSTEM, error)
            return ""
        return str(namespace["metadata"]["uid"])
