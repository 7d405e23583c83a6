"""One loopback port for HTTP and HTTPS: a real API server calls kubelets over TLS, the embedded one over HTTP.

The first byte selects the protocol: a TLS handshake starts with 0x16, an HTTP request never does.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine

_HANDSHAKE = b"\x16"


class DualPort:
    """Listener on a free port of `host` that serves each connection with a protocol from `factory`.

    `authorities()` returns the PEM certificates of the authorities of client certificates; a client without a
    certificate is accepted too. A connection without a first byte or a TLS handshake is closed after
    `greeting_timeout` seconds.
    """

    def __init__(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        authorities: Callable[[], Awaitable[str]],
        *,
        greeting_timeout: float,
    ) -> None:
        self._factory = factory
        self._authorities = authorities
        self._greeting_timeout = greeting_timeout
        self._context: ssl.SSLContext | None = None
        self._listener = socket.create_server((host, 0), backlog=128)
        self._listener.setblocking(False)
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = int(self._listener.getsockname()[1])

    def start(self) -> None:
        self._spawn(self._accept())

    async def close(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._listener.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError:  # the caller disconnected, or the process has no free file descriptor
                await asyncio.sleep(0.1)
                continue
            self._spawn(self._detect_protocol(connection))

    async def _detect_protocol(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._greeting_timeout):
                await _readable(connection)
                secure = connection.recv(1, socket.MSG_PEEK) == _HANDSHAKE
                context = await self._secure_context() if secure else None
                await loop.connect_accepted_socket(self._factory, connection, ssl=context)
        except (OSError, TimeoutError, asyncio.CancelledError):
            connection.close()

    async def _secure_context(self) -> ssl.SSLContext:
        """Return a TLS context with a self-made certificate; API servers verify it only if configured to do so."""
        if self._context is None:
            from phalanx_local.authentication.certificates import Authority

            authorities = await self._authorities()
            context = Authority().server_context("127.0.0.1")
            context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
            if authorities.strip():
                context.load_verify_locations(cadata=authorities)
            self._context = context
        return self._context


async def _readable(connection: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(connection, arrived)
    try:
        await ready
    finally:
        loop.remove_reader(connection)
