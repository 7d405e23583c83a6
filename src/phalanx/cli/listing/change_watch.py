"""When a list is worth another look: told by the API server's watches, not by a clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient, Params
    from phalanx.kube.paths import Resource

# The API server ends a watch after so long, and it is begun anew; without a bookmark for much longer it is lost.
_WATCH_SECONDS, _SILENCE = 240, 330.0
_PAUSE = 2.0
# Time alone changes ages, and what has ended leaves the list: it is looked at anyway after so long.
_MOST_PAUSE = 60.0


class _Metadata(msgspec.Struct, rename="camel", frozen=True):
    resource_version: str = ""


class _List(msgspec.Struct):
    metadata: _Metadata = _Metadata()


class ChangeWatch:
    """Watches some kinds in a namespace (None: in all). `complain` is told once if one of them cannot be watched;
    then the list is looked at again and again."""

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
        """What has changed since before this is told (the first look may be made within)."""
        made = cls(client, resources, namespace, complain)
        begun = [asyncio.Event() for _ in resources]
        tasks = [
            asyncio.create_task(made._follow(resource, there))
            for resource, there in zip(resources, begun, strict=True)
        ]
        try:
            await asyncio.gather(*(there.wait() for there in begun))
            yield made
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def changes(self, interval: float) -> None:
        """Returns after the next change, and not before so many seconds: what comes together is looked at once."""
        await asyncio.sleep(interval)
        if not self._polls:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MOST_PAUSE):
                    await self._changed.wait()
        self._changed.clear()

    async def _follow(self, resource: Resource, begun: asyncio.Event) -> None:
        from phalanx.kube.errors import ApiError, ConnectionLost

        path = resource.path(self._namespace)
        first = True
        try:
            while True:
                try:
                    body = await self._client.request("GET", path, params={"limit": 1})
                    version = msgspec.json.decode(body, type=_List).metadata.resource_version
                    begun.set()
                    if not first:  # what has changed meanwhile is not told
                        self._changed.set()
                    first = False
                    params: Params = {"watch": True, "resourceVersion": version, "timeoutSeconds": _WATCH_SECONDS}
                    stream = self._client.stream_batches(path, params, read_timeout=_SILENCE)
                    async with contextlib.aclosing(stream):
                        async for lines in stream:
                            if lines:
                                self._changed.set()
                except ApiError as error:
                    if error.status in (401, 403, 405):
                        self._poll(f"{resource.plural} cannot be watched ({error.message})")
                        return
                    if error.status == 404:  # it is not served any more
                        return
                except (ConnectionLost, msgspec.DecodeError):
                    pass
                # (Whoever looks again says what is the matter.)
                self._changed.set()
                await asyncio.sleep(_PAUSE)
        finally:
            begun.set()

    def _poll(self, why: str) -> None:
        if not self._polls:
            self._polls = True
            self._complain(f"{why}: the list is read again every --interval instead")
        self._changed.set()
