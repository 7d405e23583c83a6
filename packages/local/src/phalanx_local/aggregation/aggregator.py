"""Forwarding of requests to the servers of APIServices, and the checks whether these answer."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import ssl
from collections.abc import Mapping
from typing import Final

import aiohttp
import msgspec
from aiohttp import web
from yarl import URL

from phalanx.model.text.decoding import decode_json
from phalanx_local.aggregation.front_proxy import FrontProxyIdentity, forwarded_headers, user_headers
from phalanx_local.aggregation.services import (
    API_SERVICES,
    ServedGroup,
    UnresolvedServiceError,
    address_of,
    served_group,
    served_groups,
)
from phalanx_local.authentication.authenticator import User
from phalanx_local.endpoints.subresources import set_condition
from phalanx_local.objects import Json, mapping, sequence
from phalanx_local.registry.api import Api

log = logging.getLogger(__name__)

#: Seconds between checks of the servers.
CHECK_SECONDS: Final = 1.0
_CHECK_TIMEOUT: Final = 5.0
_SUPERUSER: Final = User("system:kube-aggregator", ("system:masters",))
_READER: Final = User("system:aggregator", ())
_KEPT_HEADERS: Final = ("Content-Type", "Retry-After", "Warning", "Cache-Control", "Etag")
_UNAVAILABLE: Final = "service unavailable\n"
_CUT: Final = 300


class Aggregator:
    """Front proxy of the API server."""

    def __init__(self, api: Api, identity: FrontProxyIdentity) -> None:
        self._api, self._identity = api, identity
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._resources: dict[tuple[str, str], list[Json]] = {}
        self._checking: asyncio.Task[None] | None = None
        self._discovered = 0

    @property
    def generation(self) -> tuple[int, int]:
        """Value that changes with the APIServices and the resources of their servers."""
        collection = self._api.store.collections.get(API_SERVICES)
        return self._discovered, collection.changed if collection is not None else 0

    def start(self) -> None:
        """Check the servers of all APIServices from now on."""
        self._checking = asyncio.create_task(self._check_all())

    async def stop(self) -> None:
        if self._checking is not None:
            self._checking.cancel()
            await asyncio.wait([self._checking])
        if self._session is not None:
            await self._session.close()
            self._session = None

    def serves(self, group: str, version: str) -> bool:
        """Return whether an APIService serves a group version through a Service."""
        return served_group(self._api, group, version) is not None

    def groups(self) -> dict[str, list[str]]:
        """Return the served groups with their versions."""
        groups: dict[str, list[str]] = {}
        for served in served_groups(self._api):
            groups.setdefault(served.group, []).append(served.version)
        return groups

    def resources(self, group: str, version: str) -> tuple[list[Json], bool]:
        """Return the last known resources of a group version, as in its discovery, and whether its server
        answers."""
        served = served_group(self._api, group, version)
        return self._resources.get((group, version), []), served is not None and served.available

    async def forward(
        self, request: web.BaseRequest, group: str, version: str, body: bytes, user: User
    ) -> web.StreamResponse:
        """Forward a request of `user` and return the answer of the server, 503 if it cannot be reached."""
        served = served_group(self._api, group, version)
        if served is None or not served.available:
            return web.Response(status=503, text=_UNAVAILABLE)
        headers = forwarded_headers(request.headers, user)
        try:
            status, kept, content = await self._send(served, request.method, request.raw_path, headers, body)
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError, UnresolvedServiceError) as error:
            return web.Response(status=503, text=f"error trying to reach service: {error}\n")
        return web.Response(body=content, status=status, headers=kept)

    async def document(self, group: str, version: str, path: str) -> web.StreamResponse:
        """Return a document of a server that all users can read, such as OpenAPI."""
        served = served_group(self._api, group, version)
        if served is None or not served.available:
            return web.Response(status=404, text="404 page not found\n")
        try:
            status, kept, content = await self._send(served, "GET", path, user_headers(_READER), b"")
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError, UnresolvedServiceError):
            return web.Response(status=503, text=_UNAVAILABLE)
        return web.Response(body=content, status=status, headers=kept)

    async def _send(
        self, served: ServedGroup, method: str, path: str, headers: list[tuple[str, str]], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, connect=_CHECK_TIMEOUT)
            self._session = aiohttp.ClientSession(timeout=timeout)
        async with self._session.request(
            method,
            URL(f"https://{address_of(self._api, served)}{path}", encoded=True),
            headers=headers,
            data=body or None,
            ssl=self._context(served),
            server_hostname=served.server_name,
            allow_redirects=False,
        ) as answer:
            kept = {name: answer.headers[name] for name in _KEPT_HEADERS if name in answer.headers}
            return answer.status, kept, await answer.read()

    def _context(self, served: ServedGroup) -> ssl.SSLContext:
        key = (served.authorities, served.insecure)
        context = self._contexts.get(key)
        if context is None:
            try:
                bundle = base64.b64decode(served.authorities, validate=True).decode()
            except (binascii.Error, UnicodeDecodeError) as error:
                raise ValueError(f"unable to load root certificates: {error}") from None
            context = ssl.create_default_context(cadata=bundle or None)
            if served.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._identity.load_into(context)
            self._contexts[key] = context
        return context

    # --- availability

    async def _check_all(self) -> None:
        while True:
            for served in served_groups(self._api):
                try:
                    problem = await self._check(served)
                except Exception as error:
                    log.exception("check of APIService %s.%s", served.version, served.group)
                    problem = str(error)
                self._publish(served, problem)
            known = {(served.group, served.version) for served in served_groups(self._api)}
            for key in self._resources.keys() - known:
                del self._resources[key]
                self._discovered += 1
            await asyncio.sleep(CHECK_SECONDS)

    async def _check(self, served: ServedGroup) -> str:
        """Read the resources of a server. Return why it is not available, "" if it is."""
        path = f"/apis/{served.group}/{served.version}"
        headers = [*user_headers(_SUPERUSER), ("Accept", "application/json")]
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT):
                status, _, content = await self._send(served, "GET", path, headers, b"")
            listed = mapping(decode_json(content)) if status == 200 else {}
        except (aiohttp.ClientError, OSError, ValueError, TimeoutError, UnresolvedServiceError) as error:
            return f"failing or missing response from {path}: {str(error)[:_CUT] or type(error).__name__}"
        except msgspec.DecodeError as error:
            return f"the answer of {path} is no JSON: {error}"
        if not 200 <= status < 300:
            return f"failing or missing response from {path}: bad status: {status}"
        resources = [mapping(item) for item in sequence(listed.get("resources"))]
        if self._resources.get((served.group, served.version)) != resources:
            self._resources[(served.group, served.version)] = resources
            self._discovered += 1
        return ""

    def _publish(self, served: ServedGroup, problem: str) -> None:
        """Write the condition Available of an APIService if it has changed."""
        type_ = self._api.registry.by_storage()[API_SERVICES]
        record = self._api.collection(type_).records.get(("", f"{served.version}.{served.group}"))
        if record is None:
            return
        condition = {
            "type": "Available",
            "status": "False" if problem else "True",
            "reason": "FailedDiscoveryCheck" if problem else "Passed",
            "message": problem or "all checks passed",
        }
        obj = record.load()
        set_condition(mapping(obj.setdefault("status", {})), condition, self._api.now())
        self._api.save(type_, record, obj, record.load(), self._api.write())
