"""Waiting for an API server that does not answer yet, or that is not the one that is meant."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from phalanx.kube import api_server
from phalanx.kube.api_server import until_reachable
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.tls import TlsSettings
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ConfigError
from phalanx.kube.leadership import Leadership
from phalanx.kube.process import LeadingService
from phalanx.kube.retry import Backoff

from .certificates import Authority
from .stub_server import StubServer


class Service(LeadingService):
    """A service without a lease; `served` is set while it serves."""

    def __init__(self, client: KubeClient) -> None:
        super().__init__(Leadership(client, None))
        self.served = asyncio.Event()

    async def serve(self) -> None:
        self.served.set()
        await asyncio.Event().wait()


async def until_told(caplog: pytest.LogCaptureFixture, words: str) -> None:
    async with asyncio.timeout(60):
        while words not in caplog.text:  # noqa: ASYNC110 - nothing tells of lines
            await asyncio.sleep(0.01)


async def test_server_of_an_unknown_authority_is_logged_once_and_awaited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The authority may be replaced yet: its file is."""
    caplog.set_level(logging.INFO)
    pauses = 0

    class ShortBackoff(Backoff):
        def next(self, retry_after: float | None = None) -> float:
            nonlocal pauses
            pauses += 1
            return 0.01

    monkeypatch.setattr(api_server, "Backoff", ShortBackoff)
    file, authority = tmp_path / "ca.pem", Authority()
    file.write_bytes(Authority("stranger").pem)
    now = 0.0
    async with StubServer(authority.server_context(tmp_path, "127.0.0.1")) as server:
        config = ClusterConfig(server.url, tls=TlsSettings(authority_file=str(file)))
        async with KubeClient(config, clock=lambda: now) as client:
            service, beside = Service(client), Service(client)
            running = [asyncio.create_task(each.run()) for each in (service, beside)]
            await until_told(caplog, "waiting for the API server")
            async with asyncio.timeout(60):
                while pauses < 6:  # noqa: ASYNC110 - nothing tells of attempts
                    await asyncio.sleep(0.01)
            assert not service.served.is_set()
            (told,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
            assert told.levelno == logging.WARNING
            assert server.url in told.getMessage()
            assert f"is not signed by the certificate authority in {file}" in told.getMessage()
            file.write_bytes(authority.pem)
            now = 100.0
            async with asyncio.timeout(60):
                await service.served.wait()
                await beside.served.wait()
            assert caplog.text.count(f"the API server at {server.url} answers") == 1
            for each in (service, beside):
                each.stop()
            await asyncio.gather(*running)


async def test_wait_for_a_server_can_be_stopped(caplog: pytest.LogCaptureFixture) -> None:
    async with KubeClient(ClusterConfig("http://127.0.0.1:1")) as client:
        service = Service(client)
        running = asyncio.create_task(service.run())
        await until_told(caplog, "waiting for the API server")
        service.stop()
        async with asyncio.timeout(60):
            await running
        assert not service.served.is_set()


@pytest.mark.parametrize(
    "authority", [b"no certificate", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"]
)
async def test_an_authority_that_cannot_be_read_is_not_waited_for(authority: bytes) -> None:
    config = ClusterConfig("https://127.0.0.1:1", tls=TlsSettings(authority=authority, origin="kubeconfig k"))
    async with KubeClient(config) as client:
        for waiting in (until_reachable(client), Service(client).run()):
            with pytest.raises(ConfigError, match=r"^kubeconfig k: cannot load the certificate authority data: "):
                await waiting
