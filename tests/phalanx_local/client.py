"""A bare HTTP client for the tests: it adds nothing that a server could hide behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

Json = dict[str, Any]

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


class Reply(NamedTuple):
    status: int
    body: Any
    headers: Mapping[str, str]
    warnings: list[str]

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))

    @property
    def causes(self) -> list[tuple[str, str]]:
        """(field, reason) of each cause of a refusal."""
        found = (self.body.get("details") or {}).get("causes", [])
        return [(item.get("field", ""), item["reason"]) for item in found]


class Stream:
    """An open watch."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status

    async def next(self) -> Json | None:
        """The next event, None at the end of the stream."""
        async with asyncio.timeout(60):
            line = await self._response.content.readline()
        return json.loads(line) if line else None

    async def event(self) -> tuple[str, str]:
        """The next event as (type, name of the object)."""
        event = await self.next()
        assert event is not None, "the stream ended"
        return event["type"], event["object"].get("metadata", {}).get("name", "")

    async def quiet(self) -> bool:
        """Return whether nothing arrives after all written events were delivered."""
        try:
            async with asyncio.timeout(0.05):
                line = await self._response.content.readline()
        except TimeoutError:
            return True
        raise AssertionError(f"unexpected event {line!r}")

    async def rest(self) -> list[Json]:
        """All events until the server ends the stream."""
        found = []
        while (event := await self.next()) is not None:
            found.append(event)
        return found


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session = session
        self.url = url

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
        **query: Any,
    ) -> Reply:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        sent = dict(headers or {})
        if data is not None:
            sent["Content-Type"] = content_type
        async with self.session.request(method, self.url + path, data=data, headers=sent, params=query) as response:
            raw = await response.read()
            is_json = response.headers.get("Content-Type", "").startswith("application/json")
            parsed = json.loads(raw) if is_json else raw.decode()
            return Reply(response.status, parsed, response.headers, response.headers.getall("Warning", []))

    async def ok(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        """The body of an answer that must be a success."""
        reply = await self.call(method, path, body, **more)
        assert reply.status < 300, reply.body
        return reply.body

    async def get(self, path: str, **query: str) -> Any:
        return await self.ok("GET", path, **query)

    async def create(self, path: str, body: Json, **query: str) -> Json:
        found: Json = await self.ok("POST", path, body, **query)
        return found

    async def merge(self, path: str, patch: Json, **query: str) -> Any:
        return await self.ok("PATCH", path, patch, content_type="application/merge-patch+json", **query)

    async def names(self, path: str, **query: str) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.get(path, **query))["items"]]

    @asynccontextmanager
    async def watch(
        self, path: str, headers: Mapping[str, str] | None = None, **query: str
    ) -> AsyncIterator[Stream]:
        async with self.session.get(
            self.url + path, params={"watch": "1", **query}, headers=headers or {}
        ) as response:
            yield Stream(response)

    async def gone_or_other(self, path: str, uid: str) -> None:
        """Wait until no object with this uid is at the path."""
        async with asyncio.timeout(60):
            while True:
                reply = await self.call("GET", path)
                if reply.status == 404 or reply.body["metadata"]["uid"] != uid:
                    return
                await asyncio.sleep(0.005)

    async def gone(self, path: str) -> None:
        """Waits until an object is gone."""
        async with asyncio.timeout(60):
            while (await self.call("GET", path)).status != 404:  # noqa: ASYNC110 - the state is the server's
                await asyncio.sleep(0.005)

    async def until(self, path: str, *keys: str, equals: Any) -> Json:
        """Waits until the value at a path of keys is the given one; the object then."""
        async with asyncio.timeout(60):
            while True:
                obj: Json = await self.get(path)
                value: Any = obj
                for key in keys:
                    value = value.get(key) if isinstance(value, dict) else None
                if value == equals:
                    return obj
                await asyncio.sleep(0.005)


def pod(name: str = "", *, labels: Json | None = None, **spec: Any) -> Json:
    """A pod with one container."""
    meta: Json = {"name": name} if name else {"generateName": "pod-"}
    if labels:
        meta["labels"] = labels
    containers = spec.pop("containers", [{"name": "main", "image": "busybox"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": containers, **spec}}


def node(name: str, **status: Any) -> Json:
    capacity = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True"}
    return {
        "metadata": {"name": name},
        "status": {"capacity": capacity, "conditions": [ready], **status},
    }


def config_map(name: str, **data: str) -> Json:
    return {"metadata": {"name": name}, "data": data}


def binding(name: str, target: str, **meta: Any) -> Json:
    return {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": target}}
