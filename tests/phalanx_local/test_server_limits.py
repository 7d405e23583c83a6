"""Limits of the embedded server: connections that send nothing, and files of absurd content."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from aiohttp import web

from phalanx_local.authentication.tokens import read_users
from phalanx_local.endpoints import http
from phalanx_local.endpoints.connections import TimedServer
from phalanx_local.server import ApiServer, ServerOptions
from phalanx_local.storage.journal import DataFileError, FileJournal


async def test_connections_without_a_complete_request_head_are_closed() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="ok")

    runner = web.ServerRunner(TimedServer(answer, max_body=1024, header_seconds=0.2))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    try:
        half_sent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
        idle_writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert (await idle_reader.readline()).startswith(b"HTTP/1.1 200")
        for _, writer in half_sent:
            writer.write(b"GET / HTTP/1.1\r\nHost:")
        async with asyncio.timeout(10):
            for reader, writer in half_sent:
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
                writer.close()
        idle_writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(10):
            assert b"200 OK" in await idle_reader.readuntil(b"ok") + await idle_reader.readuntil(b"ok")
        idle_writer.close()
    finally:
        await runner.cleanup()


async def test_body_that_does_not_arrive_ends_in_a_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_SECONDS", 0.2)
    server = ApiServer(ServerOptions(insecure=True))
    await server.start()
    try:
        address, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(address, int(port))
        writer.write(b"POST /api/v1/namespaces HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        async with asyncio.timeout(10):
            assert (await reader.readline()).startswith(b"HTTP/1.1 504")
        writer.close()
    finally:
        await server.stop()


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.symlink("/dev/zero", path)], ids=["pipe", "device"])
def test_data_file_that_is_no_regular_file_is_refused(tmp_path: Path, make: object) -> None:
    path = tmp_path / "data"
    make(path)  # type: ignore[operator]
    with pytest.raises(DataFileError, match="not a regular file"):
        FileJournal(path)


def test_token_file_with_an_absurd_field_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(f"token,{'u' * 200_000},uid\n")
    with pytest.raises(ValueError, match="field larger than field limit"):
        read_users(path)
