"""Streams on our own HTTP/1.1 connections, byte by byte (tests/kube/test_client.py reads them from a server)."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import socket
import ssl
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.errors import ConnectionLost, Unreachable
from phalanx.kube.http import http1_transport
from phalanx.kube.http.http1_stream import Http1Stream
from phalanx.kube.http.http1_transport import Http1Transport
from phalanx.kube.http.transport import HttpResponse
from tests.clocks import skip_time
from tests.extent import examples

LINES = b'{"a":1}\n{"b":2}\n'
SILENCE = 5.0
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class FakeSocket(asyncio.Transport):
    """Socket that records whether reading is paused."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False


class Reading:
    """A stream whose bytes a test delivers."""

    def __init__(self, limit: int = 0) -> None:
        self.socket = FakeSocket()
        self.stream = Http1Stream(limit)
        self.stream.connection_made(self.socket)
        loop = asyncio.get_running_loop()
        self.head = asyncio.ensure_future(self.stream.exchange(b"request", loop.time() + SILENCE, loop))

    async def receive(self, *pieces: bytes) -> None:
        await asyncio.sleep(0)
        for piece in pieces:
            self.stream.data_received(piece)

    async def body(self) -> bytes:
        return b"".join([piece async for piece in self.stream.pieces(SILENCE)])


@pytest.mark.parametrize(
    "raw",
    [
        CHUNKED + chunk(LINES[:3]) + chunk(LINES[3:]) + b"0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + CHUNKED + chunk(LINES) + b"0\r\nLate: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(LINES) + LINES,
        b"HTTP/1.1 200 OK\r\n\r\n" + LINES,
        CHUNKED.replace(b"OK\r\n", b"OK\r\nContent-Encoding: gzip\r\n")
        + chunk(gzip.compress(LINES))
        + b"0\r\n\r\n",
    ],
    ids=["chunked", "after an interim response", "with length", "until the end", "packed by a proxy"],
)
async def test_streamed_body_is_complete_however_its_end_is_marked(raw: bytes) -> None:
    reading = Reading()
    await reading.receive(raw)
    assert await reading.head == HttpResponse(200, b"")
    reading.stream.eof_received()
    reading.stream.connection_lost(None)
    assert await reading.body() == LINES


@pytest.mark.thorough
@settings(max_examples=examples(60))
@given(cuts=st.lists(st.integers(0, 100), max_size=12))
def test_streamed_body_is_equal_for_every_split_of_its_bytes(cuts: list[int]) -> None:
    raw = CHUNKED + chunk(LINES[:5]) + chunk(b"\r\n0\r\n\r\n") + chunk(LINES[5:]) + b"0\r\n\r\n"
    edges = sorted({0, len(raw), *(min(cut, len(raw)) for cut in cuts)})

    async def read() -> bytes:
        reading = Reading()
        await reading.receive(*(raw[start:stop] for start, stop in itertools.pairwise(edges)))
        await reading.head
        return await reading.body()

    assert asyncio.run(read()) == LINES[:5] + b"\r\n0\r\n\r\n" + LINES[5:]


async def test_error_status_of_a_stream_arrives_with_its_whole_body() -> None:
    reading = Reading()
    await reading.receive(b"HTTP/1.1 410 Gone\r\nRetry-After: 3\r\nContent-Length: 4\r\n\r\n", b"gone")
    assert await reading.head == HttpResponse(410, b"gone", "3")


@pytest.mark.parametrize(
    ("end", "problem"),
    [(b"", "in the middle of the answer"), (b"xyz\r\n", "garbled"), (b"5\r\nab", "in the middle of the answer")],
)
async def test_incomplete_stream_is_a_loss_after_its_complete_parts(end: bytes, problem: str) -> None:
    reading = Reading()
    await reading.receive(CHUNKED + chunk(LINES), end)
    await reading.head
    reading.stream.connection_lost(None)
    pieces = reading.stream.pieces(SILENCE)
    assert await anext(pieces) == LINES
    with pytest.raises(ConnectionLost, match=problem):
        await anext(pieces)


async def test_bytes_of_an_incomplete_chunk_end_the_silence() -> None:
    reading = Reading()
    await reading.receive(CHUNKED)
    await reading.head
    next_piece = asyncio.ensure_future(anext(reading.stream.pieces(SILENCE)))
    await asyncio.sleep(0)
    for _ in range(3):
        skip_time(SILENCE * 0.9)
        await reading.receive(b"5\r\nab" if not reading.stream._buffer else b"c")
        await asyncio.sleep(0)
    assert not next_piece.done()
    skip_time(SILENCE * 1.1)
    with pytest.raises(ConnectionLost, match="no answer in time"):
        await next_piece


async def test_slow_reader_pauses_the_connection_until_it_has_read() -> None:
    reading = Reading()
    await reading.receive(CHUNKED, *[chunk(b"x" * 400_000)] * 3)
    await reading.head
    assert reading.socket.paused
    assert len(await anext(reading.stream.pieces(SILENCE))) == 1_200_000
    assert not reading.socket.paused


async def test_line_beyond_the_limit_ends_the_stream() -> None:
    reading = Reading(limit=1000)
    await reading.receive(CHUNKED, *[chunk(b"x" * 400)] * 3)
    await reading.head
    with pytest.raises(ConnectionLost, match="a line of more than 1000 bytes"):
        await reading.body()


class _LoopWithoutRaces:
    """Event loop like uvloop's: it is no asyncio.BaseEventLoop, and refuses the option for races. `answers` are the
    connections or errors of the addresses of each name, None for an address that never answers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, answers: dict[str, object]) -> None:
        self._loop = loop
        self._answers = answers
        self.tried: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    async def getaddrinfo(self, host: str, port: int, *, type: int) -> list[tuple[Any, ...]]:
        return [(socket.AF_INET, type, 6, "", (address, port)) for address in self._answers]

    async def create_connection(
        self, protocol: Any, host: str, port: int, *, ssl: ssl.SSLContext | None, server_hostname: str | None
    ) -> Any:
        self.tried.append(host)
        answer = self._answers[host]
        if isinstance(answer, Exception):
            raise answer
        return None, answer if answer is not None else await asyncio.Event().wait()


def _transport_without_races(
    monkeypatch: pytest.MonkeyPatch, answers: dict[str, object]
) -> tuple[Http1Transport, _LoopWithoutRaces]:
    loop = _LoopWithoutRaces(asyncio.get_running_loop(), answers)
    transport = Http1Transport("http://server.example:1", context=None)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(http1_transport, "CONNECT_TIMEOUT", 0.05)
    return transport, loop


async def test_refusal_of_the_last_address_is_reported_on_a_loop_without_races(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport, loop = _transport_without_races(
        monkeypatch, {"192.0.2.1": OSError("refused"), "192.0.2.2": OSError("closed")}
    )
    with pytest.raises(Unreachable, match=r"server\.example:1: closed"):
        await transport._connect(Http1Stream)
    assert loop.tried == ["192.0.2.1", "192.0.2.2"]


async def test_silent_address_is_tried_last_once_another_one_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: object = object()
    transport, loop = _transport_without_races(monkeypatch, {"192.0.2.1": None, "192.0.2.2": reached})
    assert await transport._connect(Http1Stream) is reached
    assert await transport._connect(Http1Stream) is reached
    assert loop.tried == ["192.0.2.1", "192.0.2.2", "192.0.2.2"]


async def test_certificate_fault_of_one_address_is_not_hidden_by_another_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    transport, loop = _transport_without_races(
        monkeypatch, {"192.0.2.1": ssl.SSLError("wrong version number"), "192.0.2.2": object()}
    )
    with pytest.raises(Unreachable, match="wrong version number"):
        await transport._connect(Http1Stream)
    assert loop.tried == ["192.0.2.1"]


async def test_closed_transport_ends_its_streams() -> None:
    finished = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(CHUNKED + chunk(LINES))
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        finished.set()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, family=socket.AF_INET)
    transport = Http1Transport(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", context=None)
    stream = transport.stream("/w", ClientIdentity(), "application/json", SILENCE)
    assert [await anext(stream), await anext(stream)] == [HttpResponse(200, b""), HttpResponse(200, LINES)]
    await transport.close()
    with pytest.raises(ConnectionLost, match="GET /w: the connection ended"):
        await anext(stream)
    await finished.wait()
    server.close()
    await server.wait_closed()


def test_scheduler_process_starts_without_the_import_of_aiohttp() -> None:
    modules = (
        "phalanx.cli.services.scheduler, phalanx.daemon.service, phalanx.daemon.telemetry, phalanx.kube.client"
    )
    code = f"import sys, {modules}; print('aiohttp' in sys.modules)"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout == "False\n"
