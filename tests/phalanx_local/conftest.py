from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import pytest_asyncio

from phalanx_local.server import ApiServer, ServerOptions
from tests.phalanx_local.client import Client


class FakeClock:
    """Wall time that stands still unless a test moves it."""

    def __init__(self, seconds: float = 1_800_000_000.0) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest_asyncio.fixture
async def server(clock: FakeClock) -> AsyncIterator[ApiServer]:
    """A server over plain HTTP, with a clock of its own and pods of lost nodes collected at once."""
    running = ApiServer(ServerOptions(insecure=True, clock=clock, lost_node_delay=0.0))
    await running.start()
    yield running
    await running.stop()


@pytest_asyncio.fixture
async def client(server: ApiServer) -> AsyncIterator[Client]:
    async with aiohttp.ClientSession() as session:
        yield Client(session, server.url)


Starter = Callable[[ServerOptions], Awaitable[tuple[ApiServer, Client]]]


@pytest_asyncio.fixture
async def start() -> AsyncIterator[Starter]:
    """Starts servers with options of the test's own."""
    running: list[ApiServer] = []
    async with aiohttp.ClientSession() as session:

        async def starter(options: ServerOptions) -> tuple[ApiServer, Client]:
            server = ApiServer(options)
            await server.start()
            running.append(server)
            return server, Client(session, server.url)

        yield starter
        for server in running:
            await server.stop()
