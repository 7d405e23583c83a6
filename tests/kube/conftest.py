from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.client import KubeClient

from .stub_server import StubServer


class FakeTime:
    """A clock that advances only by sleeps, and records their durations."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds
        await asyncio.sleep(0)


@pytest.fixture
def fake_time() -> FakeTime:
    return FakeTime()


@pytest.fixture
async def server() -> AsyncIterator[StubServer]:
    async with StubServer() as running:
        yield running


@pytest.fixture
async def client(server: StubServer) -> AsyncIterator[KubeClient]:
    async with KubeClient(ClusterConfig(server.url)) as connected:
        yield connected
