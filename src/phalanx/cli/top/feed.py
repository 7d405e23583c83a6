"""The cluster as `phalanx top` sees it: the rows of the page, taken in as they change, without a server between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Generic, TypeVar

import msgspec

from phalanx.dashboard.rehearsal.process import RehearsalProcess
from phalanx.dashboard.rows.entries import ClusterSummary, GangAnswer, GangRow, NodeRow, QueueRow, SummaryRow
from phalanx.dashboard.tables import RowTable
from phalanx.dashboard.timeline import GangHistory
from phalanx.dashboard.watch import ClusterWatch, WatchOptions
from phalanx.kube.client import KubeClient
from phalanx.reports.scheduler_policy import FoundPolicy, SchedulerPolicy

R = TypeVar("R", GangRow, NodeRow, QueueRow, SummaryRow)

# So many rows are read before keys that were pressed have their turn.
_TURN = 1000


class Rows(Generic[R]):
    """One table of the page as rows by id, and how far it was read."""

    def __init__(self, table: RowTable, kind: type[R]) -> None:
        self._table, self._version = table, 0
        self._decoder: msgspec.json.Decoder[R] = msgspec.json.Decoder(kind)
        self.rows: dict[str, R] = {}

    def subscribe(self, table: RowTable) -> None:
        """The rows are those of another table from now on."""
        self._table, self._version = table, -1

    async def take_in(self) -> set[str]:
        """Reads what has changed since the last time; the ids of it."""
        delta = self._table.since(self._version, lambda scope: True) if self._version >= 0 else None
        self._version = self._table.version
        changed: set[str] = set()
        if delta is None:
            changed.update(self.rows)
            self.rows.clear()
            put = self._table.all(lambda scope: True)
        else:
            put = delta.put
            for gone in delta.gone:
                self.rows.pop(gone, None)
                changed.add(gone)
        for count, encoded in enumerate(put):
            row = self._decoder.decode(encoded)
            self.rows[row.id] = row
            changed.add(row.id)
            if count % _TURN == _TURN - 1:
                await asyncio.sleep(0)
        return changed


class Feed:
    """`told` is called with the name of each table that has changed and the ids of its rows that have."""

    def __init__(self, watch: ClusterWatch, history: GangHistory) -> None:
        self.watch, self._history = watch, history
        self.gangs = Rows(watch.tables["gangs"], GangRow)
        self.nodes = Rows(watch.tables["nodes"], NodeRow)
        self.queues = Rows(watch.tables["queues"], QueueRow)
        self._summary = Rows(watch.tables["summary"], SummaryRow)
        self._news = asyncio.Event()

    def subscribe(self, watch: ClusterWatch, history: GangHistory) -> None:
        """What is told is what this watch sees from now on."""
        self.watch, self._history = watch, history
        for name, rows in self._tables():
            rows.subscribe(watch.tables[name])
        self._news.set()

    def _tables(self) -> tuple[tuple[str, Rows[SummaryRow] | Rows[QueueRow] | Rows[GangRow] | Rows[NodeRow]], ...]:
        return ("summary", self._summary), ("queues", self.queues), ("gangs", self.gangs), ("nodes", self.nodes)

    @property
    def summary(self) -> ClusterSummary | None:
        """None before the cluster was read."""
        row = self._summary.rows.get("cluster")
        return row.summary if row is not None else None

    async def run(self, told: Callable[[str, set[str]], None]) -> None:
        """Until cancelled."""
        while True:
            watch, self._news = self.watch, self.watch.news.subscribe()
            self._news.set()
            try:
                while watch is self.watch:
                    await self._news.wait()
                    self._news.clear()
                    for name, rows in self._tables():
                        changed = await rows.take_in()
                        if changed:
                            told(name, changed)
                            await asyncio.sleep(0)
            finally:
                watch.news.unsubscribe(self._news)

    async def story(self, row: str) -> GangAnswer | None:
        """Everything about one gang, by the id of its row; None where it is not known any more.

        Raises RehearsalEnded."""
        namespace, _, name = row.partition("/")
        pod = name.startswith("pod/")
        return await self._history.answer(namespace, name.removeprefix("pod/"), pod=pod, with_events=True)

    def pods_on(self, node: str) -> list[str]:
        """Names of the pods that have room on a node, sorted."""
        row = self.watch.state.nodes.row(node)
        return sorted(record.pod.key for record in self.watch.state.pods.values() if row >= 0 and record.row == row)


@contextlib.asynccontextmanager
async def following(
    client: KubeClient, options: WatchOptions, *, errors: int | None = None
) -> AsyncIterator[tuple[Feed, asyncio.Task[None]]]:
    """A feed, and the task behind it, which ends only by failing: a watch, begun anew with each policy that the
    scheduler gets. What the rehearsing process says goes to the file descriptor `errors`. Raises PolicyError."""
    source = SchedulerPolicy(options.config)
    found = await source.read(client, options.lease_namespace, options.schedulers)
    begun: asyncio.Future[Feed] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_follow(begun, client, options, source, found, errors))
    try:
        both: list[asyncio.Future[Any]] = [begun, task]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield begun.result(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _follow(
    begun: asyncio.Future[Feed],
    client: KubeClient,
    options: WatchOptions,
    source: SchedulerPolicy,
    found: FoundPolicy,
    errors: int | None,
) -> None:
    """Lets a feed begin, and follow one watch after the other. What it has told stands until the next one has read
    the cluster."""
    while True:
        seen = msgspec.structs.replace(options, schedulers=found.scheduler_names)
        async with RehearsalProcess.running(found.text, seen.schedulers, errors=errors) as rehearsal:
            watch = ClusterWatch(client, seen, found.policy, rehearsal)
            history = GangHistory(client, watch)
            running = asyncio.create_task(watch.run())
            try:
                if begun.done():
                    await _unless_ended(running, watch.ready.wait())
                    begun.result().subscribe(watch, history)
                else:
                    begun.set_result(Feed(watch, history))
                place = options.lease_namespace
                await _unless_ended(running, source.until_another(found, client, place, options.schedulers))
            finally:
                running.cancel()
                await asyncio.wait([running])
                watch.news.close()
        found = await source.read(client, options.lease_namespace, options.schedulers)


async def _unless_ended(watching: asyncio.Task[None], awaited: Coroutine[Any, Any, object]) -> None:
    """Waits; raises what has ended the watch meanwhile."""
    waiting: asyncio.Task[Any] = asyncio.create_task(awaited)
    both: list[asyncio.Task[Any]] = [watching, waiting]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        waiting.result()
    finally:
        waiting.cancel()
