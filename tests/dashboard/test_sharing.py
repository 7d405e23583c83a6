"""Many viewers: equal views are rendered once, and rights are checked by one request at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from phalanx.dashboard.access import ALLOWED_FOR, REFUSED_FOR, Right, TokenLogin, Viewer
from phalanx.dashboard.news import News
from phalanx.dashboard.renderings import Renderings
from phalanx.dashboard.rows.entries import NodeRow
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.tables import Tables
from phalanx.kube.client import KubeClient

pytestmark = pytest.mark.asyncio

ADA, BOB = Viewer("ada"), Viewer("bob")


class World:
    def __init__(self) -> None:
        self.tables, self.news = Tables(), News(pause=0.0)
        self.renderings = Renderings(self.tables, self.news)

    def put(self, name: str, pods: int = 0) -> None:
        self.tables["nodes"].put(name, NodeRow(id=name, pods=pods))

    async def told(self) -> None:
        """Publish the change."""
        event = self.news.subscribe()
        self.news.tell()
        async with asyncio.timeout(30):
            await event.wait()
        self.news.unsubscribe(event)


async def test_change_is_rendered_once_for_all_viewers_of_the_same_rows() -> None:
    world = World()
    world.put("a")
    await world.told()
    everybody = [Scope(ADA), Scope(BOB), Scope(Viewer("eve"))]
    told = [world.renderings.delta(scope, "nodes", 0) for scope in everybody]
    assert len(set(told)) == 1
    assert b'"id":"a"' in told[0][1]
    assert (world.renderings.deltas, world.renderings.shared) == (1, 2)
    nobody = world.renderings.delta(Scope(ADA, nodes=False), "nodes", 0)
    assert nobody == (told[0][0], b"")
    assert world.renderings.deltas == 2


async def test_viewer_woken_by_a_change_gets_its_content() -> None:
    """A delta that was made between two tellings is none for the second."""
    world = World()
    await world.told()
    version, event = world.renderings.delta(Scope(ADA), "nodes", 0)
    assert event == b""
    world.put("a")
    await world.told()
    reached, event = world.renderings.delta(Scope(BOB), "nodes", version)
    assert b'"id":"a"' in event
    assert reached == world.tables["nodes"].version


async def test_simultaneous_changes_are_published_together() -> None:
    news = News(pause=3600.0)
    event = news.subscribe()
    news.tell()
    async with asyncio.timeout(30):
        await event.wait()
    event.clear()
    for _ in range(10):
        news.tell()
    await asyncio.sleep(0)
    assert (news.number, event.is_set()) == (1, False)
    news.close()


async def test_list_is_complete_and_the_stream_continues_from_it() -> None:
    world = World()
    for number in range(300):
        world.put(f"node-{number:03}", number)
    lists = await asyncio.gather(*(world.renderings.table(Scope(each), "nodes") for each in (ADA, BOB)))
    assert lists[0] is lists[1]
    assert lists[0].plain.count(b'"id":') == 300
    assert len(lists[0].packed) < len(lists[0].plain) / 4


class Api:
    """Counts the reviews that it is asked for."""

    def __init__(self, *, allowed: bool) -> None:
        self.allowed, self.asked = allowed, 0

    async def create(self, path: str, body: Any) -> Any:
        self.asked += 1
        await asyncio.sleep(0)
        return {"status": {"allowed": self.allowed}}


async def test_a_right_is_asked_for_once_however_many_pages_want_to_know() -> None:
    api = Api(allowed=True)
    client: KubeClient = api  # type: ignore[assignment]
    login = TokenLogin(client, clock=lambda: 0.0)
    answers = await asyncio.gather(*(login.may(ADA, Right("list", "pods")) for _ in range(50)))
    assert (set(answers), api.asked) == ({True}, 1)
    await login.may(BOB, Right("list", "pods"))
    assert api.asked == 2


async def test_open_page_does_not_repeat_a_question_refused_a_moment_ago() -> None:
    api, now = Api(allowed=False), [0.0]
    client: KubeClient = api  # type: ignore[assignment]
    login, right = TokenLogin(client, clock=lambda: now[0]), Right("list", "nodes")
    assert not await login.may(ADA, right)
    now[0] = REFUSED_FOR + 1
    assert not await login.may(ADA, right, again=True)
    assert api.asked == 1
    assert not await login.may(ADA, right)
    assert api.asked == 2
    now[0] += ALLOWED_FOR + 1
    assert not await login.may(ADA, right, again=True)
    assert api.asked == 3
