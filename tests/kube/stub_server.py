"""An API server with scripted answers and faults."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from aiohttp import web

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Recorded:
    """One request as it came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    peer: object
    #: Common name of the client's certificate.
    certificate: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Json:
    """A whole answer."""

    body: Any
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Text:
    """An answer that is not JSON."""

    body: str
    status: int = 200


@dataclass(frozen=True)
class Watch:
    """A watch stream: events (objects, or lines as they are), then an end.

    end: "clean" closes properly, "reset" is a TCP reset, "hang" stays silent, "cut" ends inside the last line.
    """

    events: tuple[Any, ...] = ()
    end: str = "hang"


@dataclass(frozen=True)
class Hangup:
    """Closes the connection without a byte of answer."""


Reply = Json | Text | Watch | Hangup | Callable[[Recorded], "Json | Text | Watch | Hangup"]


def status(code: int, reason: str, message: str = "", **details: Any) -> JsonObject:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message or reason,
        "reason": reason,
        "details": details,
        "code": code,
    }


def refusal(code: int, reason: str, message: str = "", *, retry_after: str | None = None, **details: Any) -> Json:
    headers = {"Retry-After": retry_after} if retry_after is not None else {}
    return Json(status(code, reason, message, **details), code, headers)


def thing(name: str, version: int, *, uid: str = "", namespace: str = "ns", **fields: Any) -> JsonObject:
    metadata = {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, **fields}


def page(version: int, *items: Any, token: str = "", remaining: int = 0) -> Json:
    metadata: JsonObject = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    metadata |= {"remainingItemCount": remaining} if remaining else {}
    return Json({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": list(items)})


def event(kind: str, obj: Any) -> JsonObject:
    return {"type": kind, "object": obj}


def bookmark(version: int) -> JsonObject:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


class StubServer:
    """A server whose `on` registers answers: replies are used in order, and the last one repeats."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.requests: list[Recorded] = []
        self.url = ""
        self._replies: dict[tuple[str, str, bool], list[Reply]] = {}
        self._runner: web.ServerRunner | None = None
        self._hanging = asyncio.Event()

    def on(self, method: str, path: str, *replies: Reply, watch: bool = False) -> None:
        self._replies[method, path, watch] = list(replies)

    def seen(self, method: str, path: str, *, watch: bool | None = None) -> list[Recorded]:
        return [
            request
            for request in self.requests
            if request.method == method
            and request.path == path
            and (watch is None or watch == ("watch" in request.query))
        ]

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle, access_log=None), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context)
        await site.start()
        assert site._server is not None
        assert isinstance(site._server, asyncio.Server)
        host, port = site._server.sockets[0].getsockname()[:2]
        self.url = f"{'https' if self._context else 'http'}://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._hanging.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        recorded = Recorded(
            request.method,
            request.raw_path.partition("?")[0],
            dict(request.query),
            request.headers.copy(),
            await request.read(),
            request.transport.get_extra_info("peername"),
            _common_name(request.transport.get_extra_info("peercert")),
        )
        self.requests.append(recorded)
        replies = self._replies.get((recorded.method, recorded.path, "watch" in recorded.query))
        if not replies:
            return web.Response(status=404, text="404 page not found")
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        if callable(reply):
            reply = reply(recorded)
        match reply:
            case Json(body, code, headers):
                return web.json_response(body, status=code, headers=dict(headers))
            case Text(text, code):
                return web.Response(text=text, status=code)
            case Hangup():
                request.transport.abort()
                return web.Response()
            case Watch():
                return await self._watch(request, reply)

    async def _watch(self, request: web.BaseRequest, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for item in watch.events:
            line = item if isinstance(item, bytes) else json.dumps(item, separators=(",", ":")).encode() + b"\n"
            await response.write(
                line[: len(line) // 2] if watch.end == "cut" and item is watch.events[-1] else line
            )
        if watch.end == "hang":
            await self._hanging.wait()
        elif watch.end == "reset":
            assert request.transport is not None
            sock: socket.socket = request.transport.get_extra_info("socket")
            # Linger 0 makes close() send RST instead of FIN.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await asyncio.sleep(0.01)
            request.transport.abort()
        with suppress(ConnectionError):
            await response.write_eof()
        return response


def _common_name(certificate: Any) -> str:
    subject = dict(pair for part in (certificate or {}).get("subject", ()) for pair in part)
    return str(subject.get("commonName", ""))
