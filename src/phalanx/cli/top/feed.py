"""Data of `phalanx top`: the dashboard's rows, read directly without a server."""

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

# Number of rows decoded before key presses are handled.
_BATCH = 1000


class Rows(Generic[R]):
    """Rows of one dashboard table by id, with the table version that was read."""

    def __init__(self, table: RowTable, kind: type[R]) -> None:
        self._table, self._version = table, 0
        self._decoder: msgspec.json.Decoder[R] = msgspec.json.Decoder(kind)
        self.rows: dict[str, R] = {}

    def subscribe(self, table: RowTable) -> None:
        """Read the rows of another dashboard table from now on."""
        self._table, self._version = table, -1

    async def take_in(self) -> set[str]:
        """Read the table's changes since the last call and return the ids of changed and removed rows."""
        delta = self._table.since(self._version, lambda scope: True) if self._version >= 0 else None
        self._version = self._table.version
        changed: set[str] = set()
        if delta is None:
            changed.update(self.rows)
            self.rows.clear()
            put = self._table.all(lambda scope: True)
        else:
            put = delta.put
            for removed in delta.gone:
                self.rows.pop(removed, None)
                changed.add(removed)
        for count, encoded in enumerate(put):
            row = self._decoder.decode(encoded)
            self.rows[row.id] = row
            changed.add(row.id)
            if count % _BATCH == _BATCH - 1:
                await asyncio.sleep(0)
        return changed


class Feed:
    """Queues, gangs and nodes of the cluster as live tables; `run` reports changed rows."""

    def __init__(self, watch: ClusterWatch, history: GangHistory) -> None:
        self.watch, self._history = watch, history
        self.gangs = Rows(watch.tables["gangs"], GangRow)
        self.nodes = Rows(watch.tables["nodes"], NodeRow)
        self.queues = Rows(watch.tables["queues"], QueueRow)
        self._summary = Rows(watch.tables["summary"], SummaryRow)
        self._changed = asyncio.Event()

    def subscribe(self, watch: ClusterWatch, history: GangHistory) -> None:
        """Read all tables of another cluster watch from now on."""
        self.watch, self._history = watch, history
        for name, rows in self._tables():
            rows.subscribe(watch.tables[name])
        self._changed.set()

    def _tables(self) -> tuple[tuple[str, Rows[SummaryRow] | Rows[QueueRow] | Rows[GangRow] | Rows[NodeRow]], ...]:
        return ("summary", self._summary), ("queues", self.queues), ("gangs", self.gangs), ("nodes", self.nodes)

    @property
    def summary(self) -> ClusterSummary | None:
        """Summary of the cluster for the top line; None before the cluster is read."""
        row = self._summary.rows.get("cluster")
        return row.summary if row is not None else None

    async def run(self, on_change: Callable[[str, set[str]], None]) -> None:
        """Call `on_change` with the name and the changed row ids of each changed table, until cancelled."""
        while True:
            watch, self._changed = self.watch, self.watch.news.subscribe()
            self._changed.set()
            try:
                while watch is self.watch:
                    await self._changed.wait()
                    self._changed.clear()
                    for name, rows in self._tables():
                        changed = await rows.take_in()
                        if changed:
                            on_change(name, changed)
                            await asyncio.sleep(0)
            finally:
                watch.news.unsubscribe(self._changed)

    async def story(self, row: str) -> GangAnswer | None:
        """Return the details of a gang by its row id; None if it is unknown.

        Raises RehearsalEnded."""
        namespace, _, name = row.partition("/")
        pod = name.startswith("pod/")
        return await self._history.answer(namespace, name.removeprefix("pod/"), pod=pod, with_events=True)

    def pods_on(self, node: str) -> list[str]:
        """Return the sorted names of the pods on a node, including planned ones."""
        row = self.watch.state.nodes.row(node)
        return sorted(record.pod.key for record in self.watch.state.pods.values() if row >= 0 and record.row == row)


@contextlib.asynccontextmanager
async def following(
    client: KubeClient, options: WatchOptions, *, errors: int | None = None
) -> AsyncIterator[tuple[Feed, asyncio.Task[None]]]:
    """Yield a feed of live tables and its task, which ends only with an error.

    The cluster is watched anew after each policy change of the scheduler. Stderr of the dry-run process goes to the
    file descriptor `errors`. Raises PolicyError.
    """
    source = SchedulerPolicy(options.config)
    policy = await source.read(client, options.lease_namespace, options.schedulers)
    first_feed: asyncio.Future[Feed] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(_follow(first_feed, client, options, source, policy, errors))
    try:
        tasks: list[asyncio.Future[Any]] = [first_feed, task]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        yield first_feed.result(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def _follow(
    first_feed: asyncio.Future[Feed],
    client: KubeClient,
    options: WatchOptions,
    source: SchedulerPolicy,
    policy: FoundPolicy,
    errors: int | None,
) -> None:
    """Start the feed of live tables; after each policy change switch it to a new watch that has read the
    cluster."""
    while True:
        watch_options = msgspec.structs.replace(options, schedulers=policy.scheduler_names)
        async with RehearsalProcess.running(policy.text, watch_options.schedulers, errors=errors) as rehearsal:
            watch = ClusterWatch(client, watch_options, policy.policy, rehearsal)
            history = GangHistory(client, watch)
            running = asyncio.create_task(watch.run())
            try:
                if first_feed.done():
                    await _unless_ended(running, watch.ready.wait())
                    first_feed.result().subscribe(watch, history)
                else:
                    first_feed.set_result(Feed(watch, history))
                namespace = options.lease_namespace
                await _unless_ended(running, source.until_another(policy, client, namespace, options.schedulers))
            finally:
                running.cancel()
                await asyncio.wait([running])
                watch.news.close()
        policy = await source.read(client, options.lease_namespace, options.schedulers)


async def _unless_ended(watching: asyncio.Task[None], awaited: Coroutine[Any, Any, object]) -> None:
    """Wait for `awaited`; if the cluster watch ends with an error first, raise this error."""
    waiter: asyncio.Task[Any] = asyncio.create_task(awaited)
    tasks: list[asyncio.Task[Any]] = [watching, waiter]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            watching.result()
        waiter.result()
    finally:
        waiter.cancel()
