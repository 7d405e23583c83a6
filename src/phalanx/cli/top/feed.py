"""The cluster as `phalanx top` sees it: the rows of the page, taken in as they change, without a server between."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Generic, TypeVar

import msgspec

from phalanx.dashboard.rehearsal.process import RehearsalProcess
from phalanx.dashboard.rows.entries import ClusterSummary, GangAnswer, GangRow, NodeRow, QueueRow, SummaryRow
from phalanx.dashboard.tables import Table
from phalanx.dashboard.timeline import GangHistory
from phalanx.dashboard.watch import ClusterWatch, WatchOptions
from phalanx.kube.client import KubeClient
from phalanx.reports.scheduler_policy import SchedulerPolicy

R = TypeVar("R", GangRow, NodeRow, QueueRow, SummaryRow)

# So many rows are read before keys that were pressed have their turn.
_TURN = 1000


class Rows(Generic[R]):
    """One table of the page as rows by id, and how far it was read."""

    def __init__(self, table: Table, kind: type[R]) -> None:
        self._table, self._version = table, 0
        self._decoder: msgspec.json.Decoder[R] = msgspec.json.Decoder(kind)
        self.rows: dict[str, R] = {}

    async def take_in(self) -> set[str]:
        """Reads what has changed since the last time; the ids of it."""
        delta = self._table.since(self._version, lambda scope: True)
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
        self.watch = watch
        self.gangs = Rows(watch.tables["gangs"], GangRow)
        self.nodes = Rows(watch.tables["nodes"], NodeRow)
        self.queues = Rows(watch.tables["queues"], QueueRow)
        self._summary = Rows(watch.tables["summary"], SummaryRow)
        self._history = history

    @property
    def summary(self) -> ClusterSummary | None:
        """None before the cluster was read."""
        row = self._summary.rows.get("cluster")
        return row.summary if row is not None else None

    async def run(self, told: Callable[[str, set[str]], None]) -> None:
        """Until cancelled."""
        news = self.watch.news.subscribe()
        news.set()
        try:
            while True:
                await news.wait()
                news.clear()
                for name, rows in (
                    ("summary", self._summary),
                    ("queues", self.queues),
                    ("gangs", self.gangs),
                    ("nodes", self.nodes),
                ):
                    changed = await rows.take_in()
                    if changed:
                        told(name, changed)
                        await asyncio.sleep(0)
        finally:
            self.watch.news.unsubscribe(news)

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
    """A feed, and the watch behind it: a task that ends only by failing. What the rehearsing process says goes
    to the file descriptor `errors`. Raises PolicyError."""
    found = await SchedulerPolicy(options.config).read(client, options.lease_namespace, options.schedulers)
    async with RehearsalProcess.running(found.text, options.schedulers, errors=errors) as rehearsal:
        watch = ClusterWatch(client, options, found.policy, rehearsal)
        task = asyncio.create_task(watch.run())
        try:
            yield Feed(watch, GangHistory(client, watch)), task
        finally:
            task.cancel()
            await asyncio.wait([task])
