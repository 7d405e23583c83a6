"""A new certificate opens new connections, and old connections are closed after their last use."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator

import pytest

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientCertificate, ClientIdentity
from phalanx.kube.http.connections import Connections
from phalanx.kube.http.transport import HttpRequest, HttpResponse


class FakeTransport:
    closed = False

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        raise NotImplementedError

    def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        raise NotImplementedError

    async def close(self) -> None:
        self.closed = True


@pytest.fixture
def made() -> list[FakeTransport]:
    return []


@pytest.fixture
def connections(made: list[FakeTransport]) -> Connections:
    def make(
        config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
    ) -> FakeTransport:
        made.append(FakeTransport())
        return made[-1]

    return Connections(ClusterConfig("http://x"), user_agent="t", max_connections=1, transports=make)


FIRST, SECOND = (ClientIdentity(certificate=ClientCertificate(word, word)) for word in (b"first", b"second"))


async def test_one_certificate_one_transport(connections: Connections, made: list[FakeTransport]) -> None:
    with connections.lease(FIRST) as one, connections.lease(FIRST) as other:
        assert one is other
    # A new token is not a new certificate.
    with connections.lease(ClientIdentity("Bearer t", FIRST.certificate)) as same:
        assert same is made[0]
    assert len(made) == 1


async def test_connection_in_use_is_closed_after_its_last_user(
    connections: Connections, made: list[FakeTransport]
) -> None:
    with connections.lease(FIRST) as one:
        with connections.lease(FIRST), connections.lease(SECOND) as two:
            assert one is not two
        await asyncio.sleep(0)
        assert [transport.closed for transport in made] == [False, False]
    await asyncio.sleep(0)
    assert [transport.closed for transport in made] == [True, False]


async def test_unused_connection_is_closed_at_once(connections: Connections, made: list[FakeTransport]) -> None:
    with connections.lease(FIRST):
        pass
    with connections.lease(SECOND):
        await asyncio.sleep(0)
        assert [transport.closed for transport in made] == [True, False]


async def test_closing_closes_everything(connections: Connections, made: list[FakeTransport]) -> None:
    with connections.lease(FIRST), connections.lease(SECOND):
        await connections.close()
        assert [transport.closed for transport in made] == [True, True]
    with pytest.raises(RuntimeError, match="the client is closed"), connections.lease(FIRST):
        pass
