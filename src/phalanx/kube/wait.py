"""Wait for a state of the cluster, for the command line and for tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from phalanx.kube.changes import Change, Delete, Key, Synced, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.paths import Resource
from phalanx.kube.reflector import Reflector

__all__ = ["wait_until"]


async def wait_until(
    client: KubeClient,
    resource: Resource,
    holds: Callable[[Mapping[Key, dict[str, Any]]], bool],
    *,
    seconds: float,
    namespace: str | None = None,
    label_selector: str | None = None,
    field_selector: str | None = None,
) -> Mapping[Key, dict[str, Any]]:
    """Wait until ``holds`` returns True for the selected objects (by key). Return these objects.

    ``holds`` is called after the first complete list and after every change, and its exceptions are raised. Raises
    TimeoutError, with the number of objects, after ``seconds``.
    """
    objects: dict[Key, dict[str, Any]] = {}
    reached: asyncio.Future[dict[Key, dict[str, Any]]] = asyncio.get_running_loop().create_future()
    listed = False

    def sink(change: Change[dict[str, Any]]) -> None:
        nonlocal listed
        match change:
            case Upsert(obj, _, key):
                objects[key] = obj
            case Delete(key):
                objects.pop(key, None)
            case Synced():
                listed = True
        if not listed or reached.done():
            return
        try:
            if holds(objects):
                reached.set_result(dict(objects))
        except Exception as error:
            reached.set_exception(error)

    reflector: Reflector[dict[str, Any]] = Reflector(
        client,
        resource,
        msgspec.json.Decoder(dict[str, Any]).decode,
        sink,
        namespace=namespace,
        label_selector=label_selector,
        field_selector=field_selector,
        absent_period=1.0,
    )
    running = asyncio.create_task(reflector.run())
    outcomes: set[asyncio.Future[Any]] = {running, reached}
    try:
        await asyncio.wait(outcomes, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if reached.done():
            return reached.result()
        raise TimeoutError(
            f"{resource.plural}: not reached within {seconds:g} s ({reflector.state.value}, {len(objects)} objects)"
        )
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await running
