"""Container logs over HTTP, as a kubelet serves them: GET /containerLogs/NAMESPACE/POD/CONTAINER.

The server listens on loopback only. Other users of the machine can connect, so each caller needs the rights that
`LogAccess` requires.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from aiohttp import web

from phalanx.model.text.decoding import parse_whole, quoted
from phalanx_local.nodeagent.core_v1 import V1Pod
from phalanx_local.nodeagent.log_access import LogAccess
from phalanx_local.nodeagent.pod_runtime.dual_port import DualPort

_HOST = "127.0.0.1"
_FOLLOW_PERIOD = 0.2
_CHUNK = 64 * 1024
# Seconds after which a connection without a complete request is closed.
_IDLE_SECONDS = 10.0
# Query parameters that need times, which the agent does not record.
_UNSUPPORTED = ("timestamps", "sinceSeconds", "sinceTime")


class LogError(Exception):
    """Error for a missing log; the text is the reason."""


class LogSource(Protocol):
    """Source of the logs of a pod's containers."""

    def log(self, pod: V1Pod, container: str, *, previous: bool) -> bytes | Path:
        """Return a container's log as bytes, or the file that contains the log. Raise LogError if the log is
        missing."""

    def growing(self, pod: V1Pod, container: str) -> bool:
        """Return whether the log of the container can still grow."""


class LogServer:
    """HTTP server for container logs on a free loopback `port` (from `start` on); serves logs after `connect`."""

    def __init__(self, access: LogAccess) -> None:
        self._access = access
        self._source: LogSource | None = None
        self._find: Callable[[str, str], Awaitable[V1Pod | None]] | None = None
        self._runner: web.AppRunner | None = None
        self._listener: DualPort | None = None
        self.port = 0

    def connect(self, source: LogSource, find: Callable[[str, str], Awaitable[V1Pod | None]]) -> None:
        """Set the source of the logs. `find(namespace, name)` returns a pod of this agent's nodes, or None."""
        self._source, self._find = source, find

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._serve)
        app.router.add_get("/healthz", self._healthz)
        self._runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.5, keepalive_timeout=_IDLE_SECONDS, handler_cancellation=True
        )
        await self._runner.setup()
        assert self._runner.server is not None
        self._listener = DualPort(
            self._runner.server, _HOST, self._access.client_authorities, greeting_timeout=_IDLE_SECONDS
        )
        self._listener.start()
        self.port = self._listener.port

    async def close(self) -> None:
        if self._listener is not None:
            await self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, request: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        certificate = request.transport.get_extra_info("peercert") if request.transport is not None else None
        refusal = await self._access.refuse(request.headers.get("Authorization"), certificate)
        if refusal is not None:
            return web.Response(status=refusal.status, text=f"{refusal.text}\n")
        part, source, find = request.match_info, self._source, self._find
        if source is None or find is None:
            return web.Response(status=503, text="the node agent is starting\n")
        try:
            query = _read_query(request.query)
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        pod = await find(part["namespace"], part["pod"])
        if pod is None:
            return web.Response(status=404, text=f'pod "{part["namespace"]}/{part["pod"]}" is not on this node\n')
        container = part["container"]
        names = [spec.name for spec in [*pod.spec.containers, *(pod.spec.init_containers or ())]]
        if container not in names:
            return web.Response(status=404, text=f'container "{container}" is not in pod "{part["pod"]}"\n')
        try:
            log = source.log(pod, container, previous=query["previous"])
        except LogError as error:
            return web.Response(status=400, text=f"{error}\n")
        response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8"})
        await response.prepare(request)
        async for chunk in _chunks(source, log, pod, container, query):
            await response.write(chunk)
        return response


async def _chunks(
    source: LogSource, log: bytes | Path, pod: V1Pod, container: str, query: Mapping[str, Any]
) -> AsyncIterator[bytes]:
    limit, follow, lines = query["limitBytes"], query["follow"], query["tailLines"]
    if isinstance(log, bytes):
        start = tail_offset(log, lines)
        yield log[start : None if limit is None else start + limit]
        while follow and source.growing(pod, container):  # noqa: ASYNC110 - two runtimes, no common event
            await asyncio.sleep(_FOLLOW_PERIOD)
        return
    sent = 0
    with log.open("rb") as file:
        file.seek(file_tail_offset(log, lines))
        while limit is None or sent < limit:
            # Read the state before the chunk: text written before the end of the container is still sent.
            growing = follow and source.growing(pod, container)
            chunk = file.read(_CHUNK if limit is None else min(_CHUNK, limit - sent))
            sent += len(chunk)
            if chunk:
                yield chunk
            elif growing:
                await asyncio.sleep(_FOLLOW_PERIOD)
            else:
                return


def tail_offset(text: bytes, lines: int | None) -> int:
    """Return the byte offset of the last `lines` lines of a log."""
    if lines is None:
        return 0
    if lines == 0:
        return len(text)
    at = len(text) - 1 if text.endswith(b"\n") else len(text)
    for _ in range(lines):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def file_tail_offset(path: Path, lines: int | None) -> int:
    """Return the byte offset of the last `lines` lines of a file; read its end in blocks, one at a time."""
    if lines is None:
        return 0
    end = size = path.stat().st_size
    if lines == 0:
        return size
    with path.open("rb") as file:
        while end > 0:
            start = max(0, end - _CHUNK)
            file.seek(start)
            block = file.read(end - start)
            # A line break at the end of the file ends the last line and starts none.
            at = len(block) - 1 if end == size and block.endswith(b"\n") else len(block)
            breaks = block.count(b"\n", 0, at)
            if breaks >= lines:
                for _ in range(lines):
                    at = block.rfind(b"\n", 0, at)
                return start + at + 1
            lines -= breaks
            end = start
    return 0


def _read_query(query: Mapping[str, str]) -> dict[str, Any]:
    for name in _UNSUPPORTED:
        if query.get(name) not in (None, "", "false"):
            raise ValueError(f"{name}: the node agent does not record when a line was written")
    read: dict[str, Any] = {name: query.get(name) == "true" for name in ("follow", "previous")}
    for name in ("tailLines", "limitBytes"):
        text = query.get(name)
        read[name] = None if text is None else parse_whole(text, 0)
        if text is not None and read[name] is None:
            raise ValueError(f"{name}: {quoted(text)} is not a number")
    return read
