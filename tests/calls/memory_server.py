"""API server in memory for one resource: answers a list, streams a watch, accepts every write."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient
from phalanx.kube.http.transport import HttpRequest, HttpResponse

_EMPTY = b'{"kind":"Status","status":"Success"}'


class MemoryServer:
    """Transport without a network. A list contains `listed`; the watch delivers `batches`, then stays open."""

    def __init__(self, listed: Sequence[object] = (), batches: Sequence[bytes] = ()) -> None:
        document = {"metadata": {"resourceVersion": "1"}, "items": list(listed)}
        self._list = HttpResponse(200, msgspec.json.encode(document))
        self._batches = batches

    def client(self) -> KubeClient:
        return KubeClient(ClusterConfig("http://memory.invalid"), transports=lambda *_, **__: self)

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        call.check()
        return self._list if call.method == "GET" else HttpResponse(201, _EMPTY)

    async def stream(
        self, target: str, identity: ClientIdentity, accept: str, read_timeout: float
    ) -> AsyncGenerator[HttpResponse, None]:
        yield HttpResponse(200, b"")
        for batch in self._batches:
            yield HttpResponse(200, batch)
        await asyncio.Event().wait()

    async def close(self) -> None:
        pass
