"""Refreshes of a list on the command line, after changes that watches of the API server report."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient, Params
    from phalanx.kube.paths import Resource

# A watch ends after 240 s and is restarted; without any bookmark for 330 s the connection counts as lost.
_WATCH_SECONDS, _READ_TIMEOUT = 240, 330.0
_PAUSE = 2.0
# Ages change and ended objects leave the list without any event, so it is refreshed at least this often.
_MAX_PAUSE = 60.0


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _List(msgspec.Struct):
    metadata: _Metadata = _Metadata()


class ChangeWatch:
    """Watch of several kinds in a namespace (None: all namespaces).

    If a kind cannot be watched, `complain` is called once, and the list is polled instead.
    """

    def __init__(
        self,
        client: KubeClient,
        resources: Sequence[Resource],
        namespace: str | None,
        complain: Callable[[str], object],
    ) -> None:
        self._client = client
        self._resources = resources
        self._namespace = namespace
        self._complain = complain
        self._changed = asyncio.Event()
        self._polls = False

    @classmethod
    @contextlib.asynccontextmanager
    async def running(
        cls,
        client: KubeClient,
        resources: Sequence[Resource],
        namespace: str | None,
        complain: Callable[[str], object],
    ) -> AsyncIterator[ChangeWatch]:
        """Start the watches of the kinds. Changes from now on are reported, so the list is first read inside the
        context."""
        watch = cls(client, resources, namespace, complain)
        started = [asyncio.Event() for _ in resources]
        tasks = [
            asyncio.create_task(watch._follow(resource, event))
            for resource, event in zip(resources, started, strict=True)
        ]
        try:
            await asyncio.gather(*(event.wait() for event in started))
            yield watch
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def changes(self, interval: float) -> None:
        """Wait at least `interval` seconds and until the next change, so that several changes cause one refresh."""
        await asyncio.sleep(interval)
        if not self._polls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MAX_PAUSE):
                    await self._changed.wait()
        self._changed.clear()

    async def _follow(self, resource: Resource, started: asyncio.Event) -> None:
        from phalanx.kube.errors import ApiError, ConnectionLost

        path = resource.path(self._namespace)
        first_watch = True
        try:
            while True:
                try:
                    body = await self._client.request("GET", path, params={"limit": 1})
                    version = msgspec.json.decode(body, type=_List).metadata.resource_version
                    started.set()
                    if not first_watch:  # changes between two watches have no event
                        self._changed.set()
                    first_watch = False
                    params: Params = {"watch": True, "resourceVersion": version, "timeoutSeconds": _WATCH_SECONDS}
                    stream = self._client.stream_batches(path, params, read_timeout=_READ_TIMEOUT)
                    async with contextlib.aclosing(stream):
                        async for lines in stream:
                            if lines:
                                self._changed.set()
                except ApiError as error:
                    if error.status in (401, 403, 405):
                        self._poll(f"{resource.plural} cannot be watched ({error.message})")
                        return
                    if error.status == 404:  # the kind is no longer served
                        return
                except (ConnectionLost, msgspec.DecodeError):
                    pass
                # (The refresh of the list reports the error.)
                self._changed.set()
                await asyncio.sleep(_PAUSE)
        finally:
            started.set()

    def _poll(self, problem: str) -> None:
        if not self._polls:
            self._polls = True
            self._complain(f"{problem}; the list is polled every --interval instead")
        self._changed.set()
