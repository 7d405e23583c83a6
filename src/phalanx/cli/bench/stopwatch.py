"""Times at which a benchmark's pods are created and bound, from a watch of the API server."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

import msgspec

from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ConnectionLost


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    resource_version: str = ""


class _Pod(msgspec.Struct, frozen=True):
    metadata: _Metadata
    spec: _Spec = _Spec()


class _Event(msgspec.Struct, frozen=True):
    type: str
    object: _Pod


class Stopwatch:
    """Creation time and binding time of each pod by name, in seconds of one clock.

    The creator reports creation times through `made`. The pods are watched while the context is entered.
    """

    def __init__(
        self, client: KubeClient, namespace: str, on_progress: Callable[[int], None] = lambda bound: None
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._on_progress = on_progress
        self.made_at: dict[str, float] = {}
        self.bound_at: dict[str, float] = {}
        self._watching: asyncio.Task[None] | None = None
        self._open = asyncio.Event()
        self._more = asyncio.Event()

    async def __aenter__(self) -> Self:
        self._watching = asyncio.create_task(self._watch())
        opened = asyncio.create_task(self._open.wait())
        await asyncio.wait({self._watching, opened}, return_when=asyncio.FIRST_COMPLETED)
        opened.cancel()
        if self._watching.done():
            self._watching.result()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._watching is not None
        self._watching.cancel()
        with contextlib.suppress(asyncio.CancelledError, ConnectionLost):
            await self._watching

    def made(self, name: str) -> None:
        self.made_at[name] = time.perf_counter()

    async def all_bound(self, count: int, seconds: float) -> None:
        """Wait until `count` pods are bound. Raises TimeoutError after `seconds` without a new binding."""
        assert self._watching is not None
        while len(self.bound_at) < count:
            self._more.clear()
            more = asyncio.create_task(self._more.wait())
            done, _ = await asyncio.wait(
                {more, self._watching}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
            more.cancel()
            if self._watching in done:
                self._watching.result()
                raise ConnectionLost("the watch of pods ended")
            if not done:
                raise TimeoutError(
                    f"timeout: no new pod was bound for {seconds:g} seconds "
                    f"({len(self.bound_at)} of {count} are bound)"
                )

    async def _watch(self) -> None:
        decoder = msgspec.json.Decoder(_Event)
        path = PODS.path(self._namespace)
        version = (await self._client.get(path, {"limit": 1}))["metadata"]["resourceVersion"]
        while True:
            # The server ends slow watches: the next watch resumes at the last version.
            params = {"watch": True, "resourceVersion": version}
            async with contextlib.aclosing(self._client.stream_batches(path, params, read_timeout=600)) as stream:
                async for lines in stream:
                    self._open.set()
                    now = time.perf_counter()
                    for line in lines:
                        pod = decoder.decode(line).object
                        version = pod.metadata.resource_version or version
                        if pod.spec.node_name:
                            self.bound_at.setdefault(pod.metadata.name, now)
                    if lines:
                        self._on_progress(len(self.bound_at))
                        self._more.set()
            await asyncio.sleep(0.1)
