"""Transport on plain HTTP/1.1 connections, at a fifth of aiohttp's cost for a small write."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TypeVar
from urllib.parse import urlsplit

from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.auth.tls import certificate_fault
from phalanx.kube.errors import ConnectionLost, Unreachable
from phalanx.kube.http.deadlines import Deadlines
from phalanx.kube.http.http1_connection import Http1Connection, StaleConnection
from phalanx.kube.http.http1_stream import Http1Stream
from phalanx.kube.http.sockets import ACCEPT_PACKED, CONNECT_TIMEOUT, IDLE_LIMIT
from phalanx.kube.http.transport import HttpRequest, HttpResponse

__all__ = ["Http1Transport"]

C = TypeVar("C", bound=Http1Connection)
T = TypeVar("T")


class Http1Transport:
    """Pool of up to ``max_connections`` kept-alive connections for requests; each stream has its own connection.

    Whole responses are read into memory, which fits every request except a watch.
    """

    def __init__(
        self,
        server: str,
        *,
        context: ssl.SSLContext | None,
        server_name: str | None = None,
        user_agent: str = "phalanx",
        headers: tuple[tuple[str, str], ...] = (),
        max_connections: int = 64,
        answer_limit: int = 0,
        trusted: str = "",
    ) -> None:
        """Create the pool. `trusted` names the accepted authorities of the server's certificate, for messages."""
        self._trusted = trusted
        self._answer_limit = answer_limit
        parts = urlsplit(server)
        assert parts.hostname is not None
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path.rstrip("/")
        # asyncio races the addresses of a name. With one address a race is useless, and its cancellation at a bad
        # moment leaks a connected socket (asyncio.staggered, Python 3.11).
        self._race_after = None if _is_address(parts.hostname) else 0.25
        # Address of the server that has accepted a connection last, on an event loop that does not race.
        self._reached = ""
        self._context = context if parts.scheme == "https" else None
        self._server_name = (server_name or parts.hostname) if self._context is not None else None
        self._limit = max_connections
        fixed = [("Host", parts.netloc), ("User-Agent", user_agent), *headers]
        self._fixed_for_streams = _lines([*fixed, ("Accept-Encoding", "identity")])
        self._fixed = _lines([*fixed, ACCEPT_PACKED])
        #: The fixed headers plus those of the identity that was used last.
        self._prepared: tuple[ClientIdentity | None, str] = (None, "")
        self._deadlines = Deadlines()
        #: Kept-alive connections, most recently used last.
        self._idle: list[Http1Connection] = []
        #: All of its connections, those that serve a request included.
        self._connected: set[Http1Connection] = set()
        self._streams: set[Http1Stream] = set()
        #: Number of connections that are open or being opened, at most the limit.
        self._open = 0
        #: Requests that wait for a connection: each gets one, or None as the permission to open one.
        self._waiting: deque[asyncio.Future[Http1Connection | None]] = deque()
        self._reaper: asyncio.TimerHandle | None = None
        self._closed = False

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        request = self._written(call, identity)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + call.limit
        try:
            for last_try in (not call.repeatable, True):
                connection = self._pop_idle(loop.time()) or await self._acquire(deadline)
                try:
                    if call.may_send is not None:
                        call.check()
                    return await connection.exchange(request, deadline, loop, head_only=call.method == "HEAD")
                except StaleConnection:
                    if last_try:
                        raise
                finally:
                    connection.idle_since = loop.time()
                    self._release(connection)
        except ConnectionLost as error:
            error.args = (f"{call.method} {call.target.partition('?')[0]}: {error}",)
            raise
        raise AssertionError("the last try returns or raises")

    async def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        lines = self._fixed_for_streams + _authorization(identity)
        request = f"GET {self._path}{target} HTTP/1.1\r\n{lines}Accept: {accept}\r\n\r\n".encode("latin-1")
        try:
            stream = await self._connect(Http1Stream)
            self._streams.add(stream)
            try:
                loop = asyncio.get_running_loop()
                head = await stream.exchange(request, loop.time() + read_timeout, loop)
                yield head
                if 200 <= head.status < 300:
                    async with aclosing(stream.pieces(read_timeout)) as pieces:
                        async for piece in pieces:
                            yield HttpResponse(head.status, piece)
            finally:
                self._streams.discard(stream)
                stream.abort()
        except ConnectionLost as error:
            error.args = (f"GET {target.partition('?')[0]}: {error}",)
            raise

    async def close(self) -> None:
        self._closed = True
        self._deadlines.close()
        if self._reaper is not None:
            self._reaper.cancel()
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_exception(ConnectionLost("the client is closed"))
        self._waiting.clear()
        for connection in (*self._connected, *self._streams):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the event loop closes the sockets of aborted connections in its next round

    # -- inside ------------------------------------------------------------------------------------------

    def _written(self, call: HttpRequest, identity: ClientIdentity) -> bytes:
        if self._prepared[0] is not identity:
            self._prepared = (identity, self._fixed + _authorization(identity))
        head = f"{call.method} {self._path}{call.target} HTTP/1.1\r\n{self._prepared[1]}Accept: {call.accept}\r\n"
        if call.body is None and call.method in ("GET", "HEAD"):
            return f"{head}\r\n".encode("latin-1")
        body = call.body or b""
        head = f"{head}Content-Type: {call.content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode("latin-1") + body

    def _pop_idle(self, now: float) -> Http1Connection | None:
        """Return a usable kept-alive connection; None if there is none. The most recently used one is tried
        first."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable and connection.idle_since > now - IDLE_LIMIT:
                return connection
            self._drop(connection)
        return None

    async def _acquire(self, deadline: float) -> Http1Connection:
        """Return a connection as soon as one of the pool is free or can be opened. Raises Unreachable after
        `deadline`."""
        try:
            async with asyncio.timeout_at(deadline):
                if self._open < self._limit:
                    self._open += 1
                else:
                    connection = await self._wait_for_connection()
                    if connection is not None:
                        return connection
                try:
                    connection = await self._connect(Http1Connection)
                    self._connected.add(connection)
                    return connection
                except BaseException:
                    self._return_slot(None)
                    raise
        except TimeoutError as error:
            raise Unreachable("no free connection in time") from error

    async def _wait_for_connection(self) -> Http1Connection | None:
        """Wait in line for a free connection of the pool, or for the permission (None) to open one."""
        waiter: asyncio.Future[Http1Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            return await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._return_slot(waiter.result())
            raise

    async def _connect(self, kind: type[C]) -> C:
        if self._closed:
            raise ConnectionLost("the client is closed")
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT):
                loop = asyncio.get_running_loop()
                connect = partial(
                    loop.create_connection,
                    partial(kind, self._answer_limit, self._deadlines),
                    port=self._port,
                    ssl=self._context,
                    server_hostname=self._server_name,
                )
                connection: C
                if self._race_after is None:
                    _, connection = await connect(host=self._host)
                elif isinstance(loop, asyncio.BaseEventLoop):
                    _, connection = await connect(host=self._host, happy_eyeballs_delay=self._race_after)
                else:
                    # uvloop raises TypeError for this option (its issue 406), and does not race.
                    _, connection = await self._connect_in_turn(connect)
        except TimeoutError as error:
            raise Unreachable(f"no connection to {self._host}:{self._port} in time") from error
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(certificate_fault(error, f"{self._host}:{self._port}", self._trusted)) from error
        except OSError as error:  # refused, unknown host, TLS: all before a byte of the request was sent
            raise Unreachable(f"cannot connect to {self._host}:{self._port}: {error}") from error
        return connection

    async def _connect_in_turn(self, connect: Callable[..., Awaitable[T]]) -> T:
        """Connect to the addresses of the host one after the other, each in its share of the time. The address that
        was reached last is first, so only one connection waits for a silent one."""
        found = await asyncio.get_running_loop().getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        addresses = sorted(
            {str(entry[4][0]): None for entry in found}, key=lambda address: address != self._reached
        )
        failure = OSError("the name has no address")
        for address in addresses:
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT / len(addresses)):
                    connected = await connect(host=address)
            except ssl.SSLError:
                raise
            except OSError as error:  # refused, or silent (TimeoutError)
                failure = error
            else:
                self._reached = address
                return connected
        raise failure

    def _release(self, connection: Http1Connection) -> None:
        if not connection.usable or self._closed:
            self._drop(connection)
        elif not self._waiting or not self._hand_over(connection):
            self._idle.append(connection)
            if self._reaper is None:
                self._reap()

    def _drop(self, connection: Http1Connection) -> None:
        self._connected.discard(connection)
        connection.abort()
        self._return_slot(None)

    def _return_slot(self, connection: Http1Connection | None) -> None:
        """Return a slot to the pool: a usable connection, or None for the permission to open a new connection."""
        if connection is not None:
            self._release(connection)
        elif not self._hand_over(None):
            self._open -= 1

    def _hand_over(self, connection: Http1Connection | None) -> bool:
        while self._waiting:
            waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(connection)
                return True
        return False

    def _reap(self) -> None:
        """Close the connections that are idle for too long, before the server or a load balancer closes them."""
        loop = asyncio.get_running_loop()
        oldest = loop.time() - IDLE_LIMIT
        expired = [
            connection for connection in self._idle if connection.idle_since <= oldest or not connection.usable
        ]
        self._idle = [connection for connection in self._idle if connection not in expired]
        for connection in expired:
            self._drop(connection)
        self._reaper = loop.call_later(IDLE_LIMIT / 2, self._reap) if self._idle else None


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _lines(headers: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{name}: {_checked(value)}\r\n" for name, value in headers)


def _authorization(identity: ClientIdentity) -> str:
    return "" if identity.authorization is None else _lines([("Authorization", identity.authorization)])


def _checked(value: str) -> str:
    if "\r" in value or "\n" in value or "\0" in value:
        raise ValueError("a header value must be one line")
    return value
