"""Relay between Dask's client and the scheduler's pod."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator

import pytest

from phalanx.dask.relay import Relay


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read(100))
    await writer.drain()
    writer.close()


@pytest.mark.parametrize("ending", [False, True])
async def test_connection_during_a_restart_waits_for_the_new_scheduler(ending: bool) -> None:
    asked = 0
    new, old = asyncio.Event(), None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        place = ("127.0.0.1", int(probe.getsockname()[1]))
    if ending:
        old = await asyncio.start_server(lambda reader, writer: writer.close(), *place)

    @contextlib.asynccontextmanager
    async def reach() -> AsyncIterator[tuple[str, int]]:
        nonlocal asked
        asked += 1
        if asked == 2:
            # The old scheduler refused the connection, or closed it.
            new.set()
        yield place

    relay = Relay(reach)
    address = await relay.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", int(address.rsplit(":", 1)[1]))
    writer.write(b"hello")
    await asyncio.wait_for(new.wait(), 10)
    if old is not None:
        old.close()
    server = await asyncio.start_server(_echo, *place)
    assert await asyncio.wait_for(reader.read(100), 10) == b"hello"
    writer.close()
    await relay.close()
    server.close()
