"""What a transport does for the client: one request, one answer; and a stream of pieces."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple, Protocol

from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.errors import Fenced

__all__ = ["HttpRequest", "HttpResponse", "Transport"]


class HttpResponse(NamedTuple):
    """A complete HTTP answer; ``retry_after`` is the raw header."""

    status: int
    body: bytes
    retry_after: str | None = None


class HttpRequest(NamedTuple):
    """One request. ``target`` is complete and escaped: the server's own path, and the query."""

    method: str
    target: str
    body: bytes | None
    content_type: str
    accept: str
    #: Seconds for everything: a free connection, sending, the answer.
    limit: float
    #: May be sent again when a kept-alive connection turns out to be dead.
    repeatable: bool
    #: Asked when the connection is there and nothing has been sent yet: a no is final (Fenced).
    may_send: Callable[[], bool] | None = None

    def check(self) -> None:
        """Raises Fenced where the request must not be sent any more."""
        if self.may_send is not None and not self.may_send():
            raise Fenced("not sent: this process may not write any more")


class Transport(Protocol):
    """A pool of connections to one server with one TLS identity.

    Neither method follows redirects, retries, sleeps, or reads credentials; both raise ConnectionLost
    (Unreachable when nothing was sent) and nothing else.
    """

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        """One request, one answer, whatever its status."""

    def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        """GET whose body arrives in pieces, each in an Answer; a first Answer with an empty body is the head.

        An error status comes as one Answer with its whole body. A silence of ``read_timeout`` seconds is a
        ConnectionLost; so is an end before the end.
        """

    async def close(self) -> None:
        """Close every connection; requests under way fail."""
