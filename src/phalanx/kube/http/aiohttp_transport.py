"""Transport on aiohttp: for streams, and for all requests through a proxy."""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

import aiohttp
from yarl import URL

from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.auth.tls import certificate_fault
from phalanx.kube.errors import ConnectionLost, Unreachable
from phalanx.kube.http.transport import (
    ACCEPT_PACKED,
    CONNECT_TIMEOUT,
    IDLE_LIMIT,
    HttpRequest,
    HttpResponse,
    keep_alive,
)

__all__ = ["AiohttpTransport"]

_READ_BUFFER = 2**18


class AiohttpTransport:
    """Transport on aiohttp sessions: requests share ``max_connections``; streams last minutes and have their own
    connections."""

    def __init__(
        self,
        server: str,
        *,
        context: ssl.SSLContext | None,
        server_name: str | None = None,
        proxy_url: str | None = None,
        user_agent: str = "phalanx",
        headers: tuple[tuple[str, str], ...] = (),
        max_connections: int = 64,
        answer_limit: int = 0,
        trusted: str = "",
    ) -> None:
        """Create the transport. `trusted` names the accepted authorities of the server's certificate, for
        messages."""
        self._trusted = trusted
        self._server = server
        self._limit = answer_limit
        self._proxy = proxy_url
        self._server_name = server_name
        fixed = [("User-Agent", user_agent), *headers]
        self._requests = self._session([*fixed, ACCEPT_PACKED], context, max_connections)
        self._streams = self._session([*fixed, ("Accept-Encoding", "identity")], context, 0)

    @staticmethod
    def _session(
        headers: list[tuple[str, str]], context: ssl.SSLContext | None, limit: int
    ) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=limit, ssl=context if context is not None else True, keepalive_timeout=IDLE_LIMIT
            ),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER,
            # Also for streams, which request no compression: a proxy can compress nevertheless.
            auto_decompress=True,
            skip_auto_headers=("Content-Type",),
        )
        # aiohttp repeats PUT and DELETE by itself on a dead kept-alive connection. A repeated DELETE that had
        # succeeded could delete a successor of the same name; HttpRequest.repeatable decides instead.
        session._retry_connection = False
        return session

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        headers = {"Accept": call.accept}
        if call.body is not None:
            headers["Content-Type"] = call.content_type
        if identity.authorization is not None:
            headers["Authorization"] = identity.authorization
        url = URL(self._server + call.target, encoded=True)
        limits = aiohttp.ClientTimeout(total=call.limit, sock_connect=CONNECT_TIMEOUT)
        for last_try in (not call.repeatable, True):
            try:
                call.check()
                with _translated(call.method, call.target, self._trusted):
                    async with self._requests.request(
                        call.method,
                        url,
                        data=call.body,
                        headers=headers,
                        allow_redirects=False,
                        proxy=self._proxy,
                        server_hostname=self._server_name,
                        timeout=limits,
                    ) as response:
                        return HttpResponse(
                            response.status, await self._whole(response), response.headers.get("Retry-After")
                        )
            except _Stale:
                if last_try:
                    raise
        raise AssertionError("the last try returns or raises")

    async def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        headers = {"Accept": accept}
        if identity.authorization is not None:
            headers["Authorization"] = identity.authorization
        with _translated("GET", target, self._trusted):
            async with self._streams.get(
                URL(self._server + target, encoded=True),
                headers=headers,
                allow_redirects=False,
                proxy=self._proxy,
                server_hostname=self._server_name,
                # No total timeout: a watch has no fixed length. Silence ends it.
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=read_timeout),
            ) as response:
                if not 200 <= response.status < 300:
                    body = await self._whole(response)
                    yield HttpResponse(response.status, body, response.headers.get("Retry-After"))
                    return
                if response.connection is not None and response.connection.transport is not None:
                    keep_alive(response.connection.transport)
                yield HttpResponse(response.status, b"")
                line = 0
                while piece := await response.content.readany():
                    end = piece.rfind(b"\n")
                    line = line + len(piece) if end < 0 else len(piece) - end - 1
                    if self._limit and line > self._limit:
                        raise ConnectionLost(
                            f"GET {target.partition('?')[0]}: a line of more than {self._limit} bytes"
                        )
                    yield HttpResponse(response.status, piece)

    async def _whole(self, response: aiohttp.ClientResponse) -> bytes:
        if not self._limit:
            return await response.read()
        body = bytearray()
        while piece := await response.content.readany():
            body += piece
            if len(body) > self._limit:
                raise ConnectionLost(f"an answer of more than {self._limit} bytes")
        return bytes(body)

    async def close(self) -> None:
        await self._requests.close()
        await self._streams.close()


class _Stale(ConnectionLost):
    """Connection that the server closed without a byte of a response: typical after a long idle time."""


@contextmanager
def _translated(method: str, target: str, trusted: str) -> Iterator[None]:
    request = f"{method} {target.partition('?')[0]}"
    try:
        yield
    except aiohttp.ClientConnectorCertificateError as error:
        fault = error.certificate_error
        if not isinstance(fault, ssl.SSLCertVerificationError):
            raise Unreachable(f"{request}: {error}") from error
        place = f"{error.host}:{error.port}"
        raise Unreachable(f"{request}: {certificate_fault(fault, place, trusted)}") from error
    except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
        raise Unreachable(f"{request}: {error}") from error
    except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
        raise _Stale(f"{request}: {error or 'connection closed by the server'}") from error
    except TimeoutError as error:
        raise ConnectionLost(f"{request}: no answer in time") from error
    except aiohttp.ClientPayloadError as error:
        # The text of aiohttp mentions a status 400, which no server sent.
        raise ConnectionLost(f"{request}: the connection ended in the middle of the answer") from error
    except (aiohttp.ClientError, ssl.SSLError, OSError) as error:
        raise ConnectionLost(f"{request}: {error or type(error).__name__}") from error
