"""Our own HTTP/1.1: an answer is the same however it arrives, and a connection is reused only when it is clean."""

from __future__ import annotations

import asyncio
import gc
import gzip
import hashlib
import itertools
import time
import warnings
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.errors import ConnectionLost, Unreachable
from phalanx.kube.http.http1_connection import Http1Connection
from phalanx.kube.http.http1_transport import Http1Transport
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from tests.clocks import skip_time
from tests.extent import examples

NOBODY = ClientIdentity()
# Long also when it is packed, so that a thread unpacks it.
LONG = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(1000))


def call(
    method: str = "POST", body: bytes | None = b"{}", *, limit: float = 5, repeatable: bool = False
) -> HttpRequest:
    return HttpRequest(method, "/x?y=1", body, "application/json", "application/json", limit, repeatable)


def answer(body: bytes = b"ok", *fields: str, status: str = "200 OK", length: bool = True) -> bytes:
    lines = [f"HTTP/1.1 {status}", *fields, *([f"Content-Length: {len(body)}"] if length else [])]
    return "\r\n".join([*lines, "", ""]).encode() + body


def chunked(*chunks: bytes, trailer: bytes = b"") -> bytes:
    parts = [b"%x;ext=1\r\n%b\r\n" % (len(chunk), chunk) for chunk in chunks]
    return answer(length=False, body=b"".join(parts) + b"0\r\n" + trailer + b"\r\n").replace(
        b"200 OK", b"200 OK\r\nTransfer-Encoding: chunked"
    )


class FakeSocket(asyncio.Transport):
    """The socket that a connection writes to."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self.aborted = True


async def exchange(pieces: list[bytes], *, end: bool = False, head_only: bool = False) -> tuple[HttpResponse, bool]:
    """The answer that the pieces make, and whether the connection may be used again."""
    connection, socket = Http1Connection(), FakeSocket()
    connection.connection_made(socket)
    loop = asyncio.get_running_loop()
    sent = connection.exchange(b"request", loop.time() + 5, loop, head_only=head_only)
    waiting = asyncio.ensure_future(sent)
    await asyncio.sleep(0)
    assert socket.written == [b"request"]
    for piece in pieces:
        connection.data_received(piece)
    if end:
        connection.eof_received()
        connection.connection_lost(None)
    return await waiting, connection.usable


@pytest.mark.parametrize(
    ("raw", "expected", "reusable"),
    [
        (answer(b"body"), HttpResponse(200, b"body"), True),
        (answer(b""), HttpResponse(200, b""), True),
        (answer(b"x", "retry-AFTER: 7", status="429 Too Many"), HttpResponse(429, b"x", "7"), True),
        (
            answer(b"x", "Retry-After: Thu, 01 Jan 1970 00:00:00 GMT", status="503 No"),
            HttpResponse(503, b"x", "Thu, 01 Jan 1970 00:00:00 GMT"),
            True,
        ),
        (answer(b"x", "Connection: Close"), HttpResponse(200, b"x"), False),
        (answer(b"x").replace(b"1.1", b"1.0"), HttpResponse(200, b"x"), False),
        (answer(b"x", "Connection: keep-alive").replace(b"1.1", b"1.0"), HttpResponse(200, b"x"), True),
        (answer(b"", status="204 No Content", length=False), HttpResponse(204, b""), True),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"x"), HttpResponse(200, b"x"), True),
        (chunked(b"one", b"two" * 100), HttpResponse(200, b"one" + b"two" * 100), True),
        (chunked(), HttpResponse(200, b""), True),
        (chunked(b"x", trailer=b"Late: 1\r\nLater: 2\r\n"), HttpResponse(200, b"x"), True),
        (answer(gzip.compress(b"packed"), "Content-Encoding: gzip"), HttpResponse(200, b"packed"), True),
        (answer(zlib.compress(b"packed"), "Content-Encoding: deflate"), HttpResponse(200, b"packed"), True),
        (answer(gzip.compress(LONG), "Content-Encoding: gzip"), HttpResponse(200, LONG), True),
        (answer(b"x") + b"HTTP/1.1 200", HttpResponse(200, b"x"), False),
    ],
    ids=range(16),
)
async def test_an_answer(raw: bytes, expected: HttpResponse, reusable: bool) -> None:
    assert await exchange([raw]) == (expected, reusable)


@pytest.mark.thorough
@settings(max_examples=examples(100))
@given(
    raw=st.sampled_from(
        [
            answer(b"body" * 30, "X: y"),
            chunked(b"one", b"\r\n0\r\n\r\n", b"three" * 10, trailer=b"Late: 1\r\n"),
            b"HTTP/1.1 103 Early\r\nA: b\r\n\r\n" + answer(b"x\r\n\r\ny"),
        ]
    ),
    cuts=st.lists(st.integers(0, 250), max_size=12),
)
def test_answer_is_parsed_alike_for_every_split_into_chunks(raw: bytes, cuts: list[int]) -> None:
    edges = sorted({0, len(raw), *(min(cut, len(raw)) for cut in cuts)})
    pieces = [raw[start:stop] for start, stop in itertools.pairwise(edges)]
    assert asyncio.run(exchange(pieces)) == asyncio.run(exchange([raw]))


async def test_a_body_without_a_length_ends_with_the_connection() -> None:
    assert await exchange([answer(b"until ", length=False), b"the end"], end=True) == (
        HttpResponse(200, b"until the end"),
        False,
    )


async def test_the_answer_to_head_has_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n"
    assert await exchange([head], head_only=True) == (HttpResponse(200, b""), True)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "garbled: not HTTP/1"),
        (b"HTTP/1.1 abc\r\n\r\n", "garbled"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "garbled: a negative length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", "garbled"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "garbled"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n", "garbled: a chunk without its end"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "garbled: a negative chunk"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20000, "garbled: no end of the header"),
        (answer(b"x", "Content-Encoding: br"), "garbled: content encoding 'br'"),
        (answer(b"x", "Content-Encoding: gzip"), "garbled"),
        (answer(gzip.compress(LONG)[:-1], "Content-Encoding: gzip"), "garbled"),
        (answer(gzip.compress(LONG)[:-4] + b"\xff\xff\xff\xff", "Content-Encoding: gzip"), "garbled"),
    ],
)
async def test_malformed_answer_is_a_lost_connection(raw: bytes, text: str) -> None:
    with pytest.raises(ConnectionLost, match=text):
        await exchange([raw])


@pytest.mark.parametrize("raw", [b"HTTP/1.1 200", answer(b"body")[:-1], chunked(b"body")[:-2]])
async def test_half_an_answer_is_a_loss(raw: bytes) -> None:
    with pytest.raises(ConnectionLost, match="in the middle of the answer"):
        await exchange([raw], end=True)


async def test_unexpected_bytes_end_the_connection() -> None:
    connection, socket = Http1Connection(), FakeSocket()
    connection.connection_made(socket)
    connection.data_received(answer(b"", status="408 Request Timeout"))
    assert socket.aborted
    assert not connection.usable


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 - what happens on the other side of a socket has no event here
            await asyncio.sleep(0.001)


# -- the pool --------------------------------------------------------------------------------------------


class RawServer:
    """A server that counts connections; ``behave`` gets each request (connection number, bytes) and returns the
    bytes to write.
    """

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.requests: list[tuple[int, bytes]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.behave: Callable[[int], bytes | None] = lambda number: answer()
        self.writers: list[asyncio.StreamWriter] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self.writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length:")), 0
                )
                self.requests.append((number, head + await reader.readexactly(length)))
                await self.gate.wait()
                reply = self.behave(number)
                if reply is None:
                    break
                writer.write(reply)
        writer.close()


@asynccontextmanager
async def pool(limit: int = 2) -> AsyncIterator[tuple[RawServer, Http1Transport]]:
    raw = RawServer()
    server = await asyncio.start_server(raw.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    raw.url = f"http://127.0.0.1:{port}"
    transport = Http1Transport(raw.url, context=None, max_connections=limit)
    try:
        yield raw, transport
    finally:
        raw.gate.set()
        await transport.close()
        server.close()
        for writer in raw.writers:
            writer.close()
        await asyncio.sleep(0.01)


async def test_the_request_as_it_is_sent() -> None:
    async with pool() as (server, transport):
        assert await transport.request(call(), ClientIdentity("Bearer t")) == HttpResponse(200, b"ok")
        await transport.request(call("GET", None), NOBODY)
    host = server.url.removeprefix("http://").encode()
    assert [request for _, request in server.requests] == [
        b"POST /x?y=1 HTTP/1.1\r\nHost: " + host + b"\r\nUser-Agent: phalanx\r\nAccept-Encoding: gzip\r\n"
        b"Authorization: Bearer t\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\n\r\n{}",
        b"GET /x?y=1 HTTP/1.1\r\nHost: " + host + b"\r\nUser-Agent: phalanx\r\nAccept-Encoding: gzip\r\n"
        b"Accept: application/json\r\n\r\n",
    ]


async def test_a_clean_connection_is_used_again() -> None:
    async with pool() as (server, transport):
        for _ in range(3):
            await transport.request(call(), NOBODY)
        assert server.connections == 1


async def test_a_connection_that_the_server_closes_is_not() -> None:
    async with pool() as (server, transport):
        server.behave = lambda number: answer(b"ok", "Connection: close")
        for _ in range(3):
            await transport.request(call(), NOBODY)
        assert server.connections == 3


async def test_one_closed_while_idle_is_noticed_without_harm_to_a_post() -> None:
    async with pool() as (server, transport):
        await transport.request(call(), NOBODY)
        server.writers[0].close()
        await until(lambda: not any(connection.usable for connection in transport._idle))
        await transport.request(call(), NOBODY)
        assert server.connections == 2


async def test_idle_connections_are_closed_before_the_server_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("phalanx.kube.http.http1_transport.IDLE_LIMIT", 0.02)
    async with pool() as (server, transport):
        await transport.request(call(), NOBODY)
        await until(lambda: server.writers[0].is_closing())
        await transport.request(call(), NOBODY)
        assert server.connections == 2


async def test_connection_that_idled_too_long_during_a_long_cycle_is_not_used(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("phalanx.kube.http.http1_transport.IDLE_LIMIT", 0.02)
    async with pool() as (server, transport):
        await transport.request(call(), NOBODY)
        time.sleep(0.03)  # noqa: ASYNC251 - the event loop stands still, and with it the timer that closes
        await transport.request(call(), NOBODY)
        assert server.connections == 2


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_dead_connection(repeatable: bool) -> None:
    async with pool() as (server, transport):
        server.behave = lambda number: answer() if number > 1 else None
        if repeatable:
            assert await transport.request(call(repeatable=True), NOBODY) == HttpResponse(200, b"ok")
        else:
            with pytest.raises(ConnectionLost, match=r"^POST /x: connection closed by the server$"):
                await transport.request(call(), NOBODY)
        assert server.connections == (2 if repeatable else 1)


async def test_half_an_answer_is_not_repeated_even_where_it_might_be() -> None:
    async with pool() as (server, transport):
        server.behave = lambda number: answer(b"body")[:-1]
        asking = asyncio.create_task(transport.request(call(repeatable=True), NOBODY))
        await until(lambda: len(server.requests) > 0)
        await asyncio.sleep(0.01)
        server.writers[0].close()
        with pytest.raises(ConnectionLost, match="in the middle"):
            await asking
        assert server.connections == 1


async def test_requests_beyond_the_limit_wait_their_turn() -> None:
    async with pool(limit=2) as (server, transport):
        server.gate.clear()
        asking = [asyncio.create_task(transport.request(call(), NOBODY)) for _ in range(6)]
        await until(lambda: len(server.requests) == 2)
        await asyncio.sleep(0.01)
        assert len(server.requests) == 2
        server.gate.set()
        assert await asyncio.gather(*asking) == [HttpResponse(200, b"ok")] * 6
        assert server.connections == 2


async def test_a_place_is_not_lost_by_failures_and_cancellations() -> None:
    async with pool(limit=1) as (server, transport):
        server.gate.clear()
        asking = [asyncio.create_task(transport.request(call(limit=60), NOBODY)) for _ in range(4)]
        await until(lambda: len(server.requests) > 0)
        asking[1].cancel()  # waits for its turn
        asking[0].cancel()  # has been sent
        server.gate.set()
        server.behave = lambda number: None
        for lost in asking[2:]:
            with pytest.raises(ConnectionLost):
                await lost
        server.behave = lambda number: answer()
        assert await transport.request(call(), NOBODY) == HttpResponse(200, b"ok")
        assert server.connections == 4


async def test_caller_cancelled_while_connecting_leaves_no_socket_open() -> None:
    async with pool(limit=1) as (server, transport):
        server.gate.clear()
        for rounds in range(15):
            asking = asyncio.create_task(transport.request(call(), NOBODY))
            for _ in range(rounds):
                await asyncio.sleep(0)
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking
        await until(lambda: len(server.requests) > 0)  # the last ones came as far as to send
        del asking
        await asyncio.sleep(0.01)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            gc.collect()
        assert [str(each.message) for each in told] == []


async def test_connection_handed_to_a_caller_cancelled_at_that_moment_serves_the_next_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pool(limit=1) as (server, transport):
        server.gate.clear()
        _, second, third = (asyncio.create_task(transport.request(call(limit=60), NOBODY)) for _ in range(3))
        await until(lambda: len(server.requests) > 0)
        hand_over = transport._hand_over

        def and_cancel(connection: Http1Connection | None) -> bool:
            handed = hand_over(connection)
            second.cancel()  # after the caller got the connection, before it ran
            return handed

        monkeypatch.setattr(transport, "_hand_over", and_cancel)
        server.gate.set()
        assert await third == HttpResponse(200, b"ok")
        assert server.connections == 1
        assert len(server.requests) == 2


async def test_place_in_the_pool_is_not_lost_when_connecting_fails() -> None:
    transport = Http1Transport("http://127.0.0.1:1", context=None, max_connections=1)
    for _ in range(2):
        with pytest.raises(Unreachable, match=r"^POST /x: cannot connect to 127.0.0.1:1: "):
            await transport.request(call(limit=60), NOBODY)
    await transport.close()


async def test_time_counts_the_wait_for_a_place_and_for_the_answer() -> None:
    async with pool(limit=1) as (server, transport):
        server.gate.clear()
        sent = asyncio.create_task(transport.request(call(limit=90), NOBODY))
        await until(lambda: len(server.requests) > 0)
        waits = asyncio.create_task(transport.request(call(limit=30), NOBODY))
        await asyncio.sleep(0)
        skip_time(30)
        with pytest.raises(Unreachable, match=r"POST /x: no free connection in time"):
            await waits
        assert not sent.done()
        skip_time(60)
        with pytest.raises(ConnectionLost, match=r"^POST /x: no answer in time") as caught:
            await sent
        assert not isinstance(caught.value, Unreachable)


async def test_close_ends_running_requests() -> None:
    async with pool(limit=1) as (server, transport):
        server.gate.clear()
        asking = [asyncio.create_task(transport.request(call(), NOBODY)) for _ in range(2)]
        await until(lambda: len(server.requests) > 0)
        await transport.close()
        for lost in asking:
            with pytest.raises(ConnectionLost):
                await lost


async def test_headers_cannot_be_smuggled() -> None:
    async with pool() as (server, transport):
        with pytest.raises(ValueError, match="one line"):
            await transport.request(call(), ClientIdentity("Bearer t\r\nX: y"))
        assert server.requests == []


@pytest.mark.parametrize(
    "raw",
    [
        answer(b"x" * 200_000),
        chunked(*[b"x" * 1000] * 200),
        answer(gzip.compress(b"x" * 200_000), "Content-Encoding: gzip"),
    ],
    ids=["whole", "in chunks", "packed"],
)
async def test_an_answer_beyond_the_limit_is_not_taken(raw: bytes) -> None:
    connection, socket = Http1Connection(answer_limit=100_000), FakeSocket()
    connection.connection_made(socket)
    loop = asyncio.get_running_loop()
    waiting = asyncio.ensure_future(connection.exchange(b"request", loop.time() + 5, loop))
    await asyncio.sleep(0)
    connection.data_received(raw)
    with pytest.raises(ConnectionLost, match="larger than 100000 bytes"):
        await waiting
    assert not connection.usable
