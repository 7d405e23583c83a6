"""Reads that are sent before their reader exists: each response has one reader, and a failure none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import Unreachable
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.pages import ListPages, first_page


class Server:
    """Transport that numbers its responses; the first `failing` requests fail."""

    def __init__(self, failing: int = 0) -> None:
        self.targets: list[str] = []
        self._failing = failing

    def client(self) -> KubeClient:
        return KubeClient(ClusterConfig("http://memory.invalid"), transports=lambda *_, **__: self)

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        self.targets.append(call.target)
        await asyncio.sleep(0)
        if len(self.targets) <= self._failing:
            raise Unreachable("refused")
        return HttpResponse(200, b'{"metadata":{"resourceVersion":"%d"},"items":[]}' % len(self.targets))

    async def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        yield HttpResponse(200, b"")

    async def close(self) -> None:
        pass


async def version(client: KubeClient, path: str = "/api/v1/pods") -> str:
    answer: str = (await client.get(path))["metadata"]["resourceVersion"]
    return answer


async def test_read_ahead_is_delivered_to_the_next_equal_request_only() -> None:
    server = Server()
    async with server.client() as client:
        client.read_ahead("/api/v1/pods")
        copied = client.fenced(lambda: True)
        assert [await version(copied), await version(copied)] == ["1", "2"]
    assert len(server.targets) == 2


async def test_read_ahead_of_other_parameters_is_not_delivered() -> None:
    server = Server()
    async with server.client() as client:
        client.read_ahead("/api/v1/pods", {"limit": 1})
        await asyncio.sleep(0.01)
        assert await version(client) == "2"


async def test_first_page_of_a_list_is_read_ahead() -> None:
    server = Server()
    async with server.client() as client:
        client.read_ahead(PODS.path(), first_page())
        pages = [page async for page in ListPages[object](client, PODS.path(), {}).read(4000)]
    assert [page.version for page in pages] == ["1"]
    assert len(server.targets) == 1


async def test_request_is_sent_again_after_a_failed_read_ahead() -> None:
    server = Server(failing=1)
    async with server.client() as client:
        client.read_ahead("/api/v1/pods")
        assert await version(client) == "2"


async def test_failure_of_the_request_itself_is_raised() -> None:
    async with Server(failing=2).client() as client:
        client.read_ahead("/api/v1/pods")
        with pytest.raises(Unreachable):
            await client.get("/api/v1/pods")


async def test_client_that_closes_cancels_a_read_without_a_reader() -> None:
    client = Server().client()
    client.read_ahead("/api/v1/pods")
    await client.close()
    assert len(asyncio.all_tasks()) == 1


async def test_read_ahead_is_counted_once() -> None:
    answers: list[tuple[str, str, int]] = []
    async with Server().client() as client:
        client.read_ahead("/api/v1/pods")
        client.answered = lambda method, path, status, seconds: answers.append((method, path, status))
        await version(client)
    assert answers == [("GET", "/api/v1/pods", 200)]
