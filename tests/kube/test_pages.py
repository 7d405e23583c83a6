"""Lists in pages: pages are requested ahead of the reader."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest

from phalanx.kube.client import Params
from phalanx.kube.errors import ApiError
from phalanx.kube.pages import ListPages


class Server:
    """Pages of one object each, of which `broken` answers with an error."""

    def __init__(self, pages: int, *, head_first: bool = True, broken: int = -1, size: int = 0) -> None:
        self.pages, self.head_first, self.broken, self.size = pages, head_first, broken, size
        self.asked: list[str] = []
        self.cancelled = 0

    async def request(self, method: str, path: str, *, params: Params, timeout: float) -> bytes:  # noqa: ASYNC109
        token = str(params.get("continue") or "0")
        self.asked.append(token)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        number = int(token)
        if number == self.broken:
            raise ApiError(410, "Expired", "gone", request="list")
        # Items contain text of tenants, which must not be read as metadata of the list.
        item = {"metadata": {"name": f"o{number}", "annotations": {"continue": "9", "x": "y" * self.size}}}
        metadata: dict[str, Any] = {"resourceVersion": "10"}
        if number + 1 < self.pages:
            metadata |= {"continue": str(number + 1), "remainingItemCount": self.pages - number - 1}
        parts = [("metadata", metadata), ("items", [item])]
        return json.dumps(dict(parts if self.head_first else reversed(parts))).encode()


def pages_of(server: Server) -> ListPages[Any]:
    return ListPages(server, "/api/v1/things", {})  # type: ignore[arg-type]


async def names(server: Server) -> list[str]:
    found = []
    async with aclosing(pages_of(server).read(1)) as pages:
        async for page in pages:
            found += [json.loads(bytes(item))["metadata"]["name"] for item in page.items]
    return found


@pytest.fixture(autouse=True)
def no_list_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.kube.pages.WHOLE_LIST", 0)


@pytest.mark.parametrize("head_first", [True, False])
@pytest.mark.parametrize("count", [1, 2, 7])
async def test_all_pages_come_in_their_order(count: int, head_first: bool) -> None:
    server = Server(count, head_first=head_first)
    assert await names(server) == [f"o{number}" for number in range(count)]
    assert server.asked == [str(number) for number in range(count)]


async def test_next_page_is_requested_while_the_reader_processes_one() -> None:
    server = Server(20)
    async with aclosing(pages_of(server).read(1)) as pages:
        await anext(pages)
        for _ in range(200):
            await asyncio.sleep(0)
    assert server.asked == [str(number) for number in range(20)]


async def test_pages_are_requested_only_up_to_the_buffer_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.kube.pages.MOST_AHEAD", 5_000)
    server = Server(20, size=1_000)
    found = 0
    async with aclosing(pages_of(server).read(1)) as pages:
        async for _ in pages:
            found += 1
            for _ in range(200):
                await asyncio.sleep(0)
            assert len(server.asked) <= found + 5
    assert found == 20


async def test_error_of_a_page_is_raised_when_the_reader_reaches_it() -> None:
    server, found = Server(9, broken=3), []
    async with aclosing(pages_of(server).read(1)) as pages:
        for _ in range(3):
            found.append(await anext(pages))
            await asyncio.sleep(0.001)
        with pytest.raises(ApiError):
            await anext(pages)
    assert len(found) == 3


async def test_cancelled_reader_leaves_no_request_running() -> None:
    server = Server(1000)
    async with aclosing(pages_of(server).read(1)) as pages:
        await anext(pages)
        await anext(pages)
    await asyncio.sleep(0)
    asked = len(server.asked)
    await asyncio.sleep(0.01)
    assert len(server.asked) == asked
    assert server.cancelled <= 1
