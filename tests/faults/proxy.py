"""A proxy before an API server that disturbs requests and watches as networks and servers do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from aiohttp import web

from .fault import REASONS, Fault, Watch
from .requests import Asked, asked

_HOP_BY_HOP = frozenset({"connection", "transfer-encoding", "host", "keep-alive", "content-length"})


@dataclass
class Exchange:
    """One request that arrived `at` (loop time).

    `status` is the server's answer, 0 before it arrives; `told` is the client's answer, 0 where its connection
    was cut.
    """

    asked: Asked
    body: bytes
    at: float = 0.0
    status: int = 0
    told: int = 0
    faults: tuple[Fault, ...] = ()

    def binding(self) -> Any:
        return json.loads(self.body)

    def __str__(self) -> str:
        verb, resource, namespace, name = self.asked
        return f"{verb} {resource} {namespace}/{name}: {self.status} {self.told}"


@dataclass
class Hold:
    """Requests of a verb for a resource wait at the door until `release` is called."""

    verb: str
    resource: str
    waiting: int = 0
    opened: asyncio.Event = field(default_factory=asyncio.Event)

    def release(self) -> None:
        self.opened.set()


class _Dropped(Exception):  # noqa: N818 - what happens to the connection
    pass


class _OpenWatch:
    """A running watch; `harm` is its fault after `left` more lines."""

    def __init__(self, request: Asked) -> None:
        self.asked = request
        self.harm: Watch | None = None
        self.left = 0
        self.struck = asyncio.Event()

    def strike(self, harm: Watch, lines: int = 0) -> None:
        self.harm, self.left = harm, lines
        if not lines:
            self.struck.set()


class Proxy:
    """Plain HTTP on a port of its own, before `upstream` (http://host:port).

    `faults` affect the requests; `exchanges` records them. Faults with a probability are drawn from a `seed`.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.faults: list[Fault] = []
        self.exchanges: list[Exchange] = []
        self._draw = random.Random(0)
        self._holds: list[Hold] = []
        self._away = False
        self._unknown: frozenset[str] = frozenset()
        self._watches: set[_OpenWatch] = set()
        self._connections: set[asyncio.Transport] = set()
        self._under_way: set[asyncio.Task[web.StreamResponse]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._runner: web.ServerRunner | None = None
        self._port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def start(self) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        timeout = aiohttp.ClientTimeout(total=None)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        server = web.Server(self._answer, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.2)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, backlog=1024).start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        self.cut_connections()
        for task in list(self._under_way):
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)
        if self._runner is not None:
            await self._runner.cleanup()
        if self._session is not None:
            await self._session.close()

    def write_kubeconfig(self, path: Path) -> Path:
        cluster = {"name": "c", "cluster": {"server": self.url}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        document = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}]}
        path.write_text(yaml.safe_dump({**document, "current-context": "c"}), "utf-8")
        return path

    # Faults

    def seed(self, number: int) -> None:
        self._draw = random.Random(number)

    def add(self, *faults: Fault) -> None:
        self.faults.extend(faults)

    def hold(self, verb: str, resource: str) -> Hold:
        made = Hold(verb, resource)
        self._holds.append(made)
        return made

    def heal(self) -> None:
        """End all faults; delayed requests continue."""
        self.faults.clear()
        for hold in self._holds:
            hold.release()
        self._holds.clear()
        self._away = False

    def strike_watches(self, harm: Watch, resource: str = "*", lines: int = 0) -> int:
        """Harms the watches that run; how many."""
        chosen = [watch for watch in self._watches if fnmatchcase(watch.asked.resource, resource)]
        for watch in chosen:
            watch.strike(harm, lines)
        return len(chosen)

    def cut_connections(self) -> None:
        for transport in list(self._connections):
            transport.abort()
        self._connections.clear()

    @contextlib.contextmanager
    def outage(self) -> Any:
        """Act as a restarting server: cut connections, and refuse new ones."""
        self._away = True
        self.cut_connections()
        try:
            yield
        finally:
            self._away = False

    @contextlib.contextmanager
    def beginning(self, groups: Iterable[str]) -> Any:
        """Act as a server that has just started: watches end, and discovery lacks custom kinds (their `groups`)
        until it has read their definitions.
        """
        self._unknown = frozenset(groups)
        self.cut_connections()
        try:
            yield
        finally:
            self._unknown = frozenset()

    # Observations

    def count(self, verb: str, resource: str = "*") -> int:
        return len(list(self.seen(verb, resource)))

    def seen(self, verb: str, resource: str = "*") -> Iterable[Exchange]:
        for exchange in self.exchanges:
            matches = exchange.asked.writes if verb == "write" else verb in ("*", exchange.asked.verb)
            if matches and fnmatchcase(exchange.asked.resource, resource):
                yield exchange

    # inside

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        transport = request.transport
        assert isinstance(transport, asyncio.Transport)
        self._connections.add(transport)
        try:
            if self._away:
                raise _Dropped
            path, _, query = request.raw_path.partition("?")
            now = asyncio.get_running_loop().time()
            exchange = Exchange(asked(request.method, path, query), await request.read(), now)
            self.exchanges.append(exchange)
            if exchange.asked.verb == "watch":
                return await self._serve(request, exchange)
            # A request under way arrives, also after its client is closed.
            task = asyncio.create_task(self._serve(request, exchange))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            return await asyncio.shield(task)
        except (_Dropped, aiohttp.ClientError):
            transport.abort()
            return web.Response(status=500)
        finally:
            if transport.is_closing():
                self._connections.discard(transport)

    async def _serve(self, request: web.BaseRequest, exchange: Exchange) -> web.StreamResponse:
        about = exchange.asked
        for hold in self._holds:
            if hold.verb in ("*", about.verb) and fnmatchcase(about.resource, hold.resource):
                hold.waiting += 1
                await hold.opened.wait()
        faults = exchange.faults = tuple(fault for fault in self.faults if fault.strikes(about, self._draw))
        for fault in faults:
            if fault.latency:
                await asyncio.sleep(fault.latency)
        final = next((fault for fault in faults if fault.drop or fault.status), None)
        if final is not None and not final.after:
            return self._refuse(exchange, final)
        if request.path.removeprefix("/apis/").partition("/")[0] in self._unknown:
            return self._refuse(exchange, Fault(status=503))
        if about.verb == "watch":
            harm = next((fault for fault in faults if fault.watch is not None), None)
            return await self._watch(request, exchange, harm)
        assert self._session is not None
        async with self._session.request(
            request.method, self.upstream + request.raw_path, data=exchange.body or None, headers=_headers(request)
        ) as answer:
            body = await answer.read()
            exchange.status = answer.status
            if final is not None:
                return self._refuse(exchange, final)
            exchange.told = answer.status
            if request.path == "/apis" and self._unknown:
                body = _without(json.loads(body), self._unknown)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in _HOP_BY_HOP}
            return web.Response(body=body, status=answer.status, headers=kept)

    def _refuse(self, exchange: Exchange, fault: Fault) -> web.Response:
        if fault.drop:
            raise _Dropped
        exchange.told = fault.status
        headers = {"Content-Type": "application/json"}
        if fault.retry_after is not None:
            headers["Retry-After"] = str(fault.retry_after)
        return web.Response(body=_status(fault.status), status=fault.status, headers=headers)

    async def _watch(self, request: web.BaseRequest, exchange: Exchange, fault: Fault | None) -> web.StreamResponse:
        assert self._session is not None
        watch = _OpenWatch(exchange.asked)
        if fault is not None and fault.watch is not None:
            watch.strike(fault.watch, fault.lines)
        async with self._session.get(self.upstream + request.raw_path, headers=_headers(request)) as answer:
            exchange.status = exchange.told = answer.status
            response = web.StreamResponse(status=answer.status, headers={"Content-Type": "application/json"})
            response.enable_chunked_encoding()
            await response.prepare(request)
            self._watches.add(watch)
            try:
                async for line in _lines(answer, watch):
                    await response.write(line)
                if watch.struck.is_set():
                    await self._harm(watch, response)
            finally:
                self._watches.discard(watch)
            await response.write_eof()
            return response

    async def _harm(self, watch: _OpenWatch, response: web.StreamResponse) -> None:
        match watch.harm:
            case Watch.GONE:
                await response.write(b'{"type":"ERROR","object":' + _status(410) + b"}\n")
            case Watch.TRUNCATED:
                await response.write(b'{"type":"MODIFIED","object":{"kind":"Pod","metadata":{"na')
                raise _Dropped
            case Watch.RESET:
                raise _Dropped
            case Watch.SILENT:
                await asyncio.Event().wait()


async def _lines(answer: aiohttp.ClientResponse, watch: _OpenWatch) -> AsyncIterator[bytes]:
    """The lines of a watch until it is struck or over."""
    struck = asyncio.ensure_future(watch.struck.wait())
    reading: asyncio.Future[bytes] | None = None
    try:
        while True:
            reading = asyncio.ensure_future(answer.content.readline())
            await asyncio.wait({reading, struck}, return_when=asyncio.FIRST_COMPLETED)
            if struck.done():
                return
            line = reading.result()
            if not line:
                return
            yield line
            if watch.harm is not None:
                watch.left -= 1
                if watch.left <= 0:
                    watch.struck.set()
                    return
    finally:
        for task in (struck, reading):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, aiohttp.ClientError):
                    await task


def _headers(request: web.BaseRequest) -> dict[str, str]:
    return {name: value for name, value in request.headers.items() if name.lower() not in _HOP_BY_HOP}


def _without(discovered: Any, groups: frozenset[str]) -> bytes:
    discovered["items"] = [each for each in discovered["items"] if each["metadata"]["name"] not in groups]
    return json.dumps(discovered).encode()


def _status(code: int) -> bytes:
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": REASONS.get(code, "InternalError"),
        "message": "injected fault",
    }
    return json.dumps(body).encode()
