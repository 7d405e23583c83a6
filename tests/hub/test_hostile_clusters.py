"""Clusters with endless, missing or malformed answers affect only themselves."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from phalanx.hub import process
from tests.hub.federation import Federation, federation

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.asyncio]

Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


async def endless(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while not writer.is_closing():
        await asyncio.sleep(0.001)
        writer.write(b"10000\r\n" + b'{"items": [' * 5957 + b'"' * 9 + b"\r\n")
        await writer.drain()


async def silent(writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def nonsense(writer: asyncio.StreamWriter) -> None:
    body = b'[{"metadata": "\\u001b[31m"}]'
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


@contextlib.asynccontextmanager
async def hostile(three: Federation, name: str, answer: Answer) -> AsyncIterator[None]:
    """Start a member cluster of that name, whose TLS certificate the hub trusts."""
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await answer(writer)
        writer.close()

    authority = three.hub.server.authority
    assert authority is not None
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=authority.server_context("127.0.0.1"))
    config = three.hub.server.kubeconfig()
    port = server.sockets[0].getsockname()[1]
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
    await three.secret(name, json.dumps(config))
    await three.member_cluster(name)
    try:
        yield
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_hostile_clusters_harm_only_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_ANSWER_BYTES", 2**20)
    async with federation(tmp_path) as three:
        await three.members["north"].node("n1", "8")
        await three.join("north")
        behaviours = {"endless": endless, "silent": silent, "nonsense": nonsense}
        async with contextlib.AsyncExitStack() as stack:
            for name, answer in behaviours.items():
                await stack.enter_async_context(hostile(three, name, answer))
            await three.secret("malformed", "{")
            await three.member_cluster("malformed")
            await three.member_cluster("absent")
            await three.start_hub(patience=2)
            await three.gang()
            await three.until_bound("north", "train-0", "train-1")
            await three.members["north"].phase("Succeeded", "train-0", "train-1")
            await three.until_record(phase="Ended", cluster="north")
            await three.until_member("malformed", "False", "InvalidKubeconfig")
            await three.until_member("absent", "False", "NoSecret")
            told = await three.until_member("endless", "Unknown", "Unreachable")
            assert "larger than" in told["message"]
            await three.kill_hub()
