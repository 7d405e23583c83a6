"""The clock of end-to-end tests: an idle hour needs no time, and work beside the loop needs real time."""

from __future__ import annotations

import asyncio
import time

import pytest

from phalanx.kube.reflector import Reflector
from tests.e2e.clock import CLOCK, monotonic

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="session")]

HOUR = 3600.0
TRUE = {"monotonic": time.monotonic, "wall": time.time}


async def test_an_idle_hour_passes_at_once_on_every_clock() -> None:
    loop, begun = asyncio.get_running_loop(), TRUE["monotonic"]()
    with CLOCK.passing():
        before = (loop.time(), time.monotonic(), time.time())
        await asyncio.sleep(HOUR)
        passed = [
            now - then for now, then in zip((loop.time(), time.monotonic(), time.time()), before, strict=True)
        ]
    assert all(HOUR <= seconds < HOUR + 60 for seconds in passed), passed
    assert TRUE["monotonic"]() - begun < 60
    assert {"monotonic": time.monotonic, "wall": time.time} == TRUE


async def test_data_of_a_socket_arrives_before_a_later_timer() -> None:
    """A hundred answers in turn, each awaited for a second of the clock."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    with CLOCK.passing():
        async with await asyncio.start_server(echo, "127.0.0.1", 0) as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            for number in range(100):
                writer.write(b"%d\n" % number)
                async with asyncio.timeout(1.0):
                    assert await reader.readline() == b"%d\n" % number
            writer.close()
            await writer.wait_closed()


async def test_time_is_real_while_a_thread_or_a_child_works() -> None:
    with CLOCK.passing():
        sleeping = asyncio.create_task(asyncio.sleep(HOUR))
        await asyncio.to_thread(time.sleep, 0.05)
        child = await asyncio.create_subprocess_exec("sleep", "0.05")
        assert await child.wait() == 0
        assert not sleeping.done()
        await sleeping


async def test_defaults_of_parameters_are_this_clock() -> None:
    with CLOCK.passing():
        assert (Reflector.__init__.__kwdefaults__ or {})["clock"] is monotonic
