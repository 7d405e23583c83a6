"""Interface of a transport: a request with its response, and a stream of response pieces."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.errors import Fenced

__all__ = [
    "ACCEPT_PACKED",
    "CONNECT_TIMEOUT",
    "IDLE_LIMIT",
    "HttpRequest",
    "HttpResponse",
    "Transport",
    "keep_alive",
]

CONNECT_TIMEOUT = 10.0
#: kube-apiserver closes idle connections after 90 s, many load balancers after 60 s: close before both.
IDLE_LIMIT = 50.0
#: API servers compress long responses such as lists to a twentieth, which also saves time on both sides.
ACCEPT_PACKED = ("Accept-Encoding", "gzip")


class HttpResponse(NamedTuple):
    """Complete HTTP response; ``retry_after`` is the raw header."""

    status: int
    body: bytes
    retry_after: str | None = None


class HttpRequest(NamedTuple):
    """One HTTP request. ``target`` is complete and escaped: the server's base path, the path, and the query."""

    method: str
    target: str
    body: bytes | None
    content_type: str
    accept: str
    #: Timeout in seconds for everything: a free connection, sending, the response.
    limit: float
    #: True if it can be sent again when a kept-alive connection turns out to be dead.
    repeatable: bool
    #: Called once the connection is open and before anything is sent: False is final (Fenced).
    may_send: Callable[[], bool] | None = None

    def check(self) -> None:
        """Raise Fenced if this write must not be sent any more because the lease has expired."""
        if self.may_send is not None and not self.may_send():
            raise Fenced("not sent: this process no longer holds the lease")


class Transport(Protocol):
    """Pool of connections to one server with one TLS identity.

    Neither method follows redirects, retries, sleeps, or reads credentials. Both raise ConnectionLost
    (Unreachable if nothing was sent) and nothing else.
    """

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        """Send one request and return its response, whatever its status."""

    def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        """Send a GET and yield the body in pieces, each in an HttpResponse; a first one with an empty body reports
        the status.

        An error status arrives as one HttpResponse with its whole body. A silence of ``read_timeout`` seconds
        raises ConnectionLost, and so does a truncated body.
        """

    async def close(self) -> None:
        """Close every connection; requests in progress fail."""


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """Enable kernel probes (TCP keep-alive) on a silent connection, so that a vanished server is detected."""
    sock = transport.get_extra_info("socket")
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):  # the options do not exist on every system
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
