"""Promised starts in a user's own list come from the page's server where the scheduler's record is not readable."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import web
from tests.cli.test_server import Published, serving

from phalanx.cli.connection import ClientOptions
from phalanx.cli.invocation import Invocation
from phalanx.cli.jobs.server_starts import with_server_starts
from phalanx.daemon.gang_entries import GangEntry, ListedGangs
from phalanx.views.gang_state import GangState
from phalanx.views.promises import PromiseOrigin, PromiseSource

START = "2026-11-29T04:00:00Z"
ORIGIN = PromiseOrigin(PromiseSource.STORED, "7", START)


def entry(name: str, state: GangState = GangState.PENDING, **fields: Any) -> GangEntry:
    return GangEntry(kind="vcjob", namespace="ours", name=name, state=state, **fields)


def completed(entries: list[GangEntry], answers: list[GangEntry], status: int = 200) -> list[GangEntry] | None:
    """Return the entries after the answer of a server with this status."""

    async def answer(request: web.Request) -> web.Response:
        assert request.query["namespace"] == "ours"
        return web.Response(status=status, body=msgspec.json.encode(ListedGangs(START, answers)))

    async def run() -> list[GangEntry] | None:
        async with serving(answer) as url:
            client = Published(data={"url": url})
            return await with_server_starts(Invocation(client=ClientOptions()), client, "ours", entries)

    return asyncio.run(run())


def test_waiting_gang_gets_the_start_of_the_gang_with_its_kind_and_name() -> None:
    own = [entry("big", uid="own"), entry("other"), entry("done", GangState.RUNNING)]
    known = [
        entry("big", uid="of its group", start=START, expected=START, promise=ORIGIN),
        entry("done", start=START, promise=ORIGIN),
    ]
    big, other, done = completed(own, known) or []
    assert (big.start, big.expected, big.promise, big.uid) == (START, START, ORIGIN, "own")
    assert (other.start, done.start) == ("", "")


@pytest.mark.parametrize("status", [401, 403, 429, 503])
def test_server_without_an_answer_leaves_the_list_without_starts(status: int) -> None:
    assert completed([entry("big")], [], status) is None


def test_list_without_waiting_gangs_asks_no_server() -> None:
    assert completed([entry("done", GangState.RUNNING)], [], 503) == [entry("done", GangState.RUNNING)]
