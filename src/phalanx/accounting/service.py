"""Keeps the accounts of a cluster: watch, and write down what happened, until told to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from phalanx.accounting.database import Database, DatabaseError
from phalanx.accounting.recorder import GangChange, OpenMember, Recorder
from phalanx.accounting.records import Clock
from phalanx.accounting.watch import AccountingWatch
from phalanx.dialects.options import DialectOptions
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import NAMESPACES
from phalanx.kube.errors import ApiError
from phalanx.kube.failures import Failures
from phalanx.kube.retry import Backoff

log = logging.getLogger(__name__)

T = TypeVar("T")

# Changes that come together are written together.
_GATHER = 0.5
_HEARTBEAT = 10.0
_PODS_AT_ONCE = 500
_SYSTEM = "kube-system"


class AccountingOptions(msgspec.Struct, frozen=True):
    scheduler_names: tuple[str, ...] = ("phalanx",)
    dialects: DialectOptions = DialectOptions()


class AccountingService:
    """`run` ends when `stop` is called; what is known by then is written. `ready` is set once everything that the
    cluster has is in the accounts. Raises DatabaseError where they cannot be used from the beginning; later the
    database is waited for."""

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
        self._recorder = Recorder(database)
        self._clock = clock
        self._failures = Failures()
        self._stopping = asyncio.Event()
        self._wake = asyncio.Event()
        # SQLite's connections belong to one thread each, and nothing here is to be written out of order.
        self._thread = ThreadPoolExecutor(1, "accounts")
        self._watch = AccountingWatch(
            client,
            options.scheduler_names,
            options.dialects,
            changed=self._wake.set,
            clock=clock,
            failures=self._failures,
        )

    def stop(self) -> None:
        """Ends `run`."""
        self._stopping.set()
        self._wake.set()

    async def run(self) -> None:
        try:
            await self._in_thread(self._database.upgrade)
            cluster = await self._cluster()
            last = await self._in_thread(lambda: self._recorder.adopt(cluster))
            known = await self._in_thread(self._recorder.open_members)
            self._watch.adopted = frozenset(each.uid for each in known)
            watching = asyncio.create_task(self._watch.run())
            working = asyncio.create_task(self._work(last, known))
            stopping = asyncio.create_task(self._stopping.wait())
            try:
                await asyncio.wait([watching, working, stopping], return_when=asyncio.FIRST_COMPLETED)
                if stopping.done() and self.ready.is_set():
                    await working
                if working.done():
                    working.result()
                if watching.done():
                    watching.result()
            finally:
                for task in (watching, working, stopping):
                    task.cancel()
                await asyncio.gather(watching, working, stopping, return_exceptions=True)
        finally:
            self.ready.clear()
            await asyncio.to_thread(self._thread.shutdown)

    async def _work(self, last: int, known: list[OpenMember]) -> None:
        await self._watch.synced()
        await self._fresh()
        if not await self._first(last, known):
            return
        self.ready.set()
        loop = asyncio.get_running_loop()
        beat, watched = loop.time(), True
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(_HEARTBEAT):
                    await self._wake.wait()
                    await asyncio.sleep(_GATHER)
            except TimeoutError:
                pass
            self._wake.clear()
            if not self._watch.look():
                watched = False
                continue
            if not await self._write(watched):
                return
            watched = True
            if loop.time() - beat >= _HEARTBEAT:
                beat = loop.time()
                await self._kept(lambda until=self._watch.watched_until: self._recorder.watched(until))  # type: ignore[misc]
        if self._watch.look():
            await self._write(watched)
            await self._kept(lambda: self._recorder.watched(self._watch.watched_until))

    async def _first(self, last: int, known: list[OpenMember]) -> bool:
        """What has happened since somebody watched `last`, as far as it can be told. Of what was `known` before
        the cluster was listed, what is not there now is lost."""
        there = self._watch.uids()
        for each in known:
            if each.uid not in there:
                self._watch.note_lost(each.uid, each.key, last)
        for key in await self._in_thread(self._recorder.open_gangs):
            self._watch.note_gang(key)
        if not await self._write(watched=False):
            return False
        await self._kept(lambda: self._recorder.there_are(there))
        return await self._kept(lambda: self._recorder.watched(self._watch.watched_until))

    async def _fresh(self) -> None:
        while not self._watch.look():  # noqa: ASYNC110 - what is looked at has no event of its own
            await asyncio.sleep(0.05)

    async def _write(self, watched: bool) -> bool:
        """Everything that waits; False where it is time to end and the database is away."""
        while self._watch.waiting:
            changes = self._watch.take(_PODS_AT_ONCE)
            clock = Clock(int(self._clock()), watched)
            if not await self._kept(lambda: self._record(changes, clock)):  # noqa: B023
                self._watch.put_back(changes)
                return False
            self._watch.done(changes)
        return True

    def _record(self, changes: list[GangChange], clock: Clock) -> None:
        """In the thread. A gang that cannot be recorded harms itself alone."""
        try:
            self._recorder.record(changes, clock)
        except DatabaseError as error:
            if error.unreachable or len(changes) == 1:
                raise
            self._one_by_one(changes, clock)
        except Exception:
            self._one_by_one(changes, clock)

    def _one_by_one(self, changes: list[GangChange], clock: Clock) -> None:
        for change in changes:
            try:
                self._recorder.record([change], clock)
            except DatabaseError as error:
                if error.unreachable:
                    raise
                self._failures.record_failure("accounts", str(change.key), error)
            except Exception as error:
                self._failures.record_failure("accounts", str(change.key), error)

    async def _kept(self, call: Callable[[], None]) -> bool:
        """Calls in the thread, again and again while the database is away; False where it is time to end."""
        backoff = Backoff(base=0.5, cap=30.0)
        while True:
            try:
                await self._in_thread(call)
            except DatabaseError as error:
                log.warning("%s; trying again", error)
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
        """What tells this cluster from others: the uid of its namespace kube-system."""
        try:
            found = await self._client.get(NAMESPACES.path(None, _SYSTEM))
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            log.warning("the namespace %s cannot be read, so clusters are not told apart: %s", _SYSTEM, error)
            return ""
        return str(found["metadata"]["uid"])
