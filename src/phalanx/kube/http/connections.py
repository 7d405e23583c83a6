"""Choice of the transport for a request: the one with the current client certificate, while old ones finish their
requests."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientCertificate, ClientIdentity
from phalanx.kube.errors import ConfigError
from phalanx.kube.http.http1_transport import Http1Transport
from phalanx.kube.http.transport import Transport

if TYPE_CHECKING:
    from phalanx.kube.http.aiohttp_transport import AiohttpTransport

__all__ = ["Connections", "Transports", "aiohttp_transport", "default_transport"]

log = logging.getLogger(__name__)

#: Seconds between two checks of the certificate files (they are replaced days before they expire).
CERTIFICATE_PERIOD = 60.0


class Transports(Protocol):
    """Factory of a transport for a cluster and an SSL context."""

    def __call__(
        self, config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
    ) -> Transport: ...


def aiohttp_transport(
    config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
) -> AiohttpTransport:
    """Create an aiohttp transport for requests and streams."""
    # The import takes a fifth of the start of a process, and only a proxy needs it.
    from phalanx.kube.http.aiohttp_transport import AiohttpTransport

    return AiohttpTransport(
        config.server,
        context=context,
        server_name=config.tls.server_name,
        proxy_url=config.proxy_url,
        user_agent=user_agent,
        headers=config.headers,
        max_connections=max_connections,
        answer_limit=config.answer_limit,
        trusted=config.tls.trusted,
    )


def default_transport(
    config: ClusterConfig, context: ssl.SSLContext | None, *, user_agent: str, max_connections: int
) -> Transport:
    """Create the default transport: aiohttp behind a proxy, our own connections otherwise."""
    if config.proxy_url is not None:
        return aiohttp_transport(config, context, user_agent=user_agent, max_connections=max_connections)
    return Http1Transport(
        config.server,
        context=context,
        answer_limit=config.answer_limit,
        trusted=config.tls.trusted,
        server_name=config.tls.server_name,
        user_agent=user_agent,
        headers=config.headers,
        max_connections=max_connections,
    )


class _Generation:
    """Transport with its client certificate and the number of requests that still use it.

    As a context it is the use by one request; `unused` is called after the last use of a replaced generation.
    """

    __slots__ = ("certificate", "replaced", "transport", "unused", "users")

    def __init__(
        self,
        transport: Transport,
        certificate: ClientCertificate | None,
        unused: Callable[[_Generation], None],
    ) -> None:
        self.transport = transport
        self.certificate = certificate
        self.replaced = False
        self.unused = unused
        self.users = 0

    def __enter__(self) -> Transport:
        self.users += 1
        return self.transport

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.users -= 1
        if self.replaced and not self.users:
            self.unused(self)


class Connections:
    """Holder of the current transport, which is replaced when a plugin returns a new certificate or a certificate
    file changes.

    A connection keeps the certificate of its handshake, so a rotation needs new connections. The old
    transport is closed when its last request has ended; a watch can use it until the watch ends.
    """

    def __init__(
        self,
        config: ClusterConfig,
        *,
        user_agent: str,
        max_connections: int,
        clock: Callable[[], float] = time.monotonic,
        transports: Transports | None = None,
    ) -> None:
        self._config = config
        self._user_agent = user_agent
        self._max_connections = max_connections
        self._clock = clock
        self._make = transports or default_transport
        self._current: _Generation | None = None
        self._retired: set[_Generation] = set()
        self._closing: set[asyncio.Task[None]] = set()
        self._stamp: object = None
        self._look_due = float("-inf")
        self._closed = False

    def lease(self, identity: ClientIdentity) -> AbstractContextManager[Transport]:
        """Return the context of one request: the transport, which stays open at least until the context ends."""
        current, certificate = self._current, identity.certificate
        if current is not None and current.certificate == certificate and self._clock() < self._look_due:
            return current
        return self._for(certificate)

    async def close(self) -> None:
        self._closed = True
        generations = [*self._retired, *([self._current] if self._current else [])]
        self._retired.clear()
        self._current = None
        for generation in generations:
            await generation.transport.close()
        if self._closing:
            await asyncio.gather(*self._closing)

    def _for(self, certificate: ClientCertificate | None) -> _Generation:
        current = self._current
        if current is not None and current.certificate == certificate and not self._files_changed():
            return current
        if self._closed:
            raise RuntimeError("the client is closed")
        try:
            context = self._context(certificate)
        except ConfigError as error:
            if current is None or current.certificate != certificate:
                raise
            # The file is being replaced right now: the old certificate is still valid for a while.
            log.warning("keeping the old certificates: %s", error)
            return current
        transport = self._make(
            self._config, context, user_agent=self._user_agent, max_connections=self._max_connections
        )
        self._current = _Generation(transport, certificate, self._dispose)
        if current is not None:
            log.info("certificates changed, opening new connections to %s", self._config.server)
            current.replaced = True
            if current.users:
                self._retired.add(current)
            else:
                self._dispose(current)
        return self._current

    def _context(self, certificate: ClientCertificate | None) -> ssl.SSLContext | None:
        if not self._config.server.startswith("https:"):
            return None
        stamp = self._config.tls.stamp()
        context = self._config.tls.context(certificate)
        self._stamp = stamp
        self._look_due = self._clock() + CERTIFICATE_PERIOD
        return context

    def _files_changed(self) -> bool:
        if self._clock() < self._look_due:
            return False
        self._look_due = self._clock() + CERTIFICATE_PERIOD
        if not self._config.server.startswith("https:"):
            self._look_due = float("inf")
            return False
        return self._config.tls.stamp() != self._stamp

    def _dispose(self, generation: _Generation) -> None:
        self._retired.discard(generation)
        if self._closed:
            return
        task = asyncio.get_running_loop().create_task(generation.transport.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
