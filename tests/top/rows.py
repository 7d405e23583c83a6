"""A feed with tables filled by hand: names that no API server would accept, and very many of them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import cast

from phalanx.cli.top.feed import Feed
from phalanx.daemon.policy_file import read_policy
from phalanx.dashboard.rehearsal.process import RehearsalProcess
from phalanx.dashboard.rows.entries import GangAnswer, GangRow, Mark, MemberLine, NodeRow, QueueRow
from phalanx.dashboard.timeline import GangHistory
from phalanx.dashboard.watch import ClusterWatch, WatchOptions
from phalanx.kube.client import KubeClient
from phalanx.reports.account_entries import FirstWaiting, QueueEntry
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_state import GangState


class HandFeed(Feed):
    """A feed whose `put` and `drop` publish changes like those of the cluster."""

    def __init__(self) -> None:
        # No API server and no rehearsing process exists here.
        client = KubeClient.__new__(KubeClient)
        nobody = RehearsalProcess(cast(asyncio.subprocess.Process, None))
        watch = ClusterWatch(client, WatchOptions(), read_policy(""), nobody)
        super().__init__(watch, GangHistory(client, watch))

    def put(self, table: str, rows: Iterable[GangRow | NodeRow | QueueRow]) -> None:
        for row in rows:
            self.watch.tables[table].put(row.id, row)
        self.watch.news.tell()

    def drop(self, table: str, row: str) -> None:
        self.watch.tables[table].drop(row)
        self.watch.news.tell()

    async def story(self, row: str) -> GangAnswer | None:
        """Return an answer about any row, with its name in every field for names."""
        found = self.gangs.rows.get(row)
        if found is None:
            return None
        why = WhyAnswer("Gang", row, GangState.PENDING, f"told by {row}", reason=row, change=f"rename {row}")
        members = [MemberLine(name=row, state=row, node=row, created="2026-01-01T00:00:00Z", told=row, cause=row)]
        marks = [Mark(when="2026-01-01T00:00:00Z", what=row, message=row)]
        return GangAnswer(row=found, why=why, members=members, marks=marks, problem="", omitted=[row])


def gang(number: int, name: str = "", *, state: GangState = GangState.RUNNING, message: str = "") -> GangRow:
    name = name or f"gang-{number:05}"
    return GangRow(
        id=f"ns/{name}", kind="gang", namespace="ns", name=name, queue="default", state=state, minimum=1,
        running=1, placed=1, created="2026-01-01T00:00:00Z", message=message,
    )  # fmt: skip


def node(number: int, name: str = "", *, rack: str = "", free: int = 0) -> NodeRow:
    name = name or f"node-{number}"
    rack = rack or f"rack-{number // 40}"
    return NodeRow(id=name, rack=rack, offered={"cpu": 8000}, free={"cpu": free}, pods=1)


def queue(place: int, name: str) -> QueueRow:
    first = FirstWaiting(name=name, reason=name, message=name, change=name)
    entry = QueueEntry(
        name=name, used={}, share=50.0, own_share=25.0, borrowed={"cpu": "1"}, dominant=name, first=first,
        state="Open", weight=1,
    )  # fmt: skip
    return QueueRow(id=f"queue/{name}", place=place, queue=entry)
