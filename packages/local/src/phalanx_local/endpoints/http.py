"""HTTP endpoint in front of the API: authentication, authorization, and encoding of responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final
from urllib.parse import parse_qsl

from aiohttp import web

from phalanx_local.admission.webhook_calls import ROUNDS, UnansweredWebhook, WebhookClient
from phalanx_local.aggregation.aggregator import Aggregator
from phalanx_local.authentication.authenticator import Authenticator, User
from phalanx_local.authorization import SUPERUSERS, Rbac, forbidden_request
from phalanx_local.authorization.attributes import attributes_of
from phalanx_local.authorization.impersonation import impersonated
from phalanx_local.endpoints import discovery, openapi, openapi_v2
from phalanx_local.endpoints.audit import Audit
from phalanx_local.endpoints.connections import BODY_SECONDS
from phalanx_local.endpoints.faults import FaultRule, Faults
from phalanx_local.endpoints.negotiation import JSON, negotiate
from phalanx_local.endpoints.pod_logs import LogStream
from phalanx_local.endpoints.resource_handler import EncodedResponse, RequestInfo, ResourceHandler
from phalanx_local.endpoints.routes import parse_path
from phalanx_local.endpoints.watching import Watch
from phalanx_local.errors import StatusError, bad_request, internal, no_such_resource, too_large
from phalanx_local.objects import Json, encode
from phalanx_local.options import ServerOptions
from phalanx_local.registry.api import Api

log = logging.getLogger(__name__)

_NO_QUERY: Final[Mapping[str, str]] = {}
# Limits of the warnings of one response: their number (aiohttp's clients accept 128 headers), their characters
# together, and the characters of one if they exceed that.
_MAX_WARNINGS: Final = 100
_MAX_CHARACTERS: Final = 4096
_LONG_WARNING: Final = 256


class ProtocolLog(logging.LoggerAdapter[logging.Logger]):
    """Log of malformed HTTP requests: one line per request instead of aiohttp's traceback."""

    def exception(self, msg: object, *args: object, exc_info: Any = None, **more: Any) -> None:
        self.warning("malformed HTTP request: %.200s", " ".join(str(exc_info or msg).split()))


class DroppedError(Exception):
    """Request whose connection the server closes without a response, because of an injected fault."""


class HttpEndpoint:
    """Request handler that aiohttp calls once per request."""

    def __init__(
        self,
        api: Api,
        resources: ResourceHandler,
        authenticator: Authenticator,
        rbac: Rbac,
        faults: Faults,
        options: ServerOptions,
        audit: Audit | None,
        address: Callable[[], str],
        webhooks: WebhookClient,
        aggregator: Aggregator,
    ) -> None:
        self._api = api
        self._resources = resources
        self._authenticator = authenticator
        self._rbac = rbac
        self._faults = faults
        self._options = options
        self._audit = audit
        self._address = address
        self._webhooks = webhooks
        self._aggregator = aggregator
        self._documents: dict[str, tuple[tuple[int, ...], bytes]] = {}
        self.watches: dict[Watch, str] = {}
        self.stopping = False

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        path, _, query_string = request.raw_path.partition("?")
        method = request.method
        rule = self._faults.match(method, path) if self._faults.rules else None
        user: User | None = None
        acting: User | None = None
        try:
            if rule is not None and not rule.after_write:
                await _inject(rule)
            user = self._authenticator.authenticate(path, request.headers.get("Authorization"), request.transport)
            acting = impersonated(user, request.headers, self._rbac)
            query = dict(parse_qsl(query_string, keep_blank_values=True)) if query_string else _NO_QUERY
            response = await self._answer(request, method, path, query, acting)
            if rule is not None and rule.after_write:
                await _inject(rule)
        except StatusError as error:
            response = _error(error)
        except web.HTTPRequestEntityTooLarge:
            response = _error(too_large(self._options.max_body))
        except RecursionError:
            # A decoder or the interpreter reached its depth limit; the message is that of kube-apiserver.
            response = _error(bad_request("exceeded max depth"))
        except DroppedError:
            response = _drop(request)
        except (asyncio.CancelledError, ConnectionError):
            raise
        except Exception as problem:
            log.exception("request failed: %s %s", method, path)
            response = _error(internal(f"{type(problem).__name__}: {problem}"))
        if self._audit is not None:
            self._audit.note(method, request.raw_path, user, response.status, request.headers, acting)
        return response

    async def _answer(
        self, request: web.BaseRequest, method: str, path: str, query: Mapping[str, str], user: User
    ) -> web.StreamResponse:
        target = parse_path(path)
        if SUPERUSERS not in user.groups:
            asked = attributes_of(method, path, target, query)
            decision = self._rbac.authorize(user, asked)
            if not decision.allowed:
                raise forbidden_request(user, asked, decision.reason)
        if target is not None and self._aggregator.serves(target.group, target.version):
            body = await _read_body(request) if method not in ("GET", "HEAD") else b""
            return await self._aggregator.forward(request, target.group, target.version, body, user)
        if target is not None and target.plural:
            body = await _read_body(request) if method not in ("GET", "HEAD") else b""
            call = RequestInfo(target, method, query, request.headers, body, user, {})
            outcome = await self._handle(call)
            if isinstance(outcome, Watch):
                return await self._stream(request, path, outcome)
            if isinstance(outcome, LogStream):
                return await _stream_log(request, outcome)
            if outcome is None:
                return _page_not_found()
            return _respond(outcome)
        if method not in ("GET", "HEAD"):
            return _page_not_found()
        accept = request.headers.get("Accept", "")
        if target is not None:
            return self._resource_list(target.group, target.version)
        return await self._meta(path.rstrip("/") or "/", accept)

    async def _handle(self, call: RequestInfo) -> EncodedResponse | Watch | LogStream | None:
        """Handle a request, and repeat it after each round of webhook calls with the responses of the webhooks."""
        for _ in range(ROUNDS):
            try:
                return self._resources.handle(call)
            except UnansweredWebhook as pending:
                await self._webhooks.answer(pending, call.answers)
        raise internal("a request needed too many rounds of admission webhooks")

    # --- watches

    async def _stream(self, request: web.BaseRequest, path: str, watch: Watch) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": JSON, "Cache-Control": "no-cache, private"})
        response.enable_chunked_encoding()
        self.watches[watch] = path
        try:
            watch.open()
            if self.stopping:
                watch.end()
            await response.prepare(request)
            async for chunk in watch.stream():
                await response.write(chunk)
            await response.write_eof()
        finally:
            watch.close()
            self.watches.pop(watch, None)
        return response

    # --- endpoints without resources

    async def _meta(self, path: str, accept: str) -> web.StreamResponse:
        registry = self._api.registry
        if path in ("/healthz", "/livez", "/readyz") or path.startswith(("/livez/", "/readyz/", "/healthz/")):
            return web.Response(text="ok")
        if path == "/version":
            return _json(discovery.version_info(self._options.git_version))
        if path in ("/api", "/apis"):
            return self._groups(path, accept)
        if path.startswith("/apis/"):
            group = path.removeprefix("/apis/")
            versions = registry.groups().get(group) or self._aggregator.groups().get(group)
            if versions is None or not group:
                return _page_not_found()
            return _json(discovery.group_document(group, versions))
        if path == "/openapi/v2":
            if openapi_v2.ACCEPTED in accept or openapi_v2.PROTOBUF in accept:
                return web.Response(body=openapi_v2.binary(), headers={"Content-Type": openapi_v2.PROTOBUF})
            return self._document(path, lambda: openapi_v2.document(registry))
        if path == "/openapi/v3":
            return self._document(path, lambda: openapi.index(registry, self._aggregator.groups()))
        if path.startswith("/openapi/v3/"):
            return await self._openapi(path)
        if path == "/":
            return _json(
                {
                    "paths": [
                        "/api",
                        "/apis",
                        "/healthz",
                        "/livez",
                        "/openapi/v2",
                        "/openapi/v3",
                        "/readyz",
                        "/version",
                    ]
                }
            )
        return _page_not_found()

    def _groups(self, path: str, accept: str) -> web.StreamResponse:
        form = negotiate(accept)
        registry, core = self._api.registry, path == "/api"
        if form.shape == "discovery":
            media = discovery.AGGREGATED.format(version=form.version)
            key = f"{path};{form.version}"
            forwarded = [] if core else self._forwarded_items()
            make = partial(discovery.aggregated, registry, form.version, core=core, forwarded=forwarded)
            return self._document(key, make, media)
        if core:
            return _json(discovery.api_versions(self._address()))
        return self._document(path, lambda: discovery.group_list(registry, self._aggregator.groups()))

    def _forwarded_items(self) -> list[Json]:
        aggregator = self._aggregator
        return [
            discovery.forwarded_item(group, {name: aggregator.resources(group, name) for name in versions})
            for group, versions in aggregator.groups().items()
        ]

    def _resource_list(self, group: str, version: str) -> web.StreamResponse:
        document = discovery.resource_list(self._api.registry, group, version)
        if document is not None:
            return _json(document)
        if any(item.group == group and not item.custom for item in self._api.registry):
            raise no_such_resource()
        return _page_not_found()

    async def _openapi(self, path: str) -> web.StreamResponse:
        parts = path.split("/")[3:]
        if len(parts) == 2 and parts[0] == "api":
            group, version = "", parts[1]
        elif len(parts) == 3 and parts[0] == "apis":
            group, version = parts[1], parts[2]
        else:
            return _page_not_found()
        registry = self._api.registry
        if self._aggregator.serves(group, version):
            return await self._aggregator.document(group, version, path)
        if not registry.served(group, version):
            return _page_not_found()
        return self._document(path, lambda: openapi.document(registry, group, version))

    def _document(self, key: str, make: Callable[[], Json], media: str = JSON) -> web.StreamResponse:
        """Return a discovery or OpenAPI document, cached until a CustomResourceDefinition or an APIService
        changes."""
        generation = (self._api.registry.generation, *self._aggregator.generation)
        known = self._documents.get(key)
        if known is None or known[0] != generation:
            known = self._documents[key] = (generation, encode(make()))
        return web.Response(body=known[1], headers={"Content-Type": media})


async def _read_body(request: web.BaseRequest) -> bytes:
    """Return the body of a request. Raise 504 if the client does not send the whole body in time."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError:
        raise StatusError(504, "Timeout", "request did not complete within the allotted timeout") from None


async def _stream_log(request: web.BaseRequest, log_stream: LogStream) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    response.enable_chunked_encoding()
    async for chunk in log_stream.chunks():
        if not response.prepared:
            await response.prepare(request)
        await response.write(chunk)
    if not response.prepared:
        await response.prepare(request)
    await response.write_eof()
    return response


async def _inject(rule: FaultRule) -> None:
    if rule.delay:
        await asyncio.sleep(rule.delay)
    if rule.drop:
        raise DroppedError
    if rule.status:
        raise rule.error()


def _drop(request: web.BaseRequest) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


def _respond(answer: EncodedResponse) -> web.Response:
    response = web.Response(body=answer.body, status=answer.status, headers={"Content-Type": answer.content_type})
    for warning in _limited(answer.warnings):
        quoted = warning.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{quoted}"')
    return response


def _limited(warnings: Sequence[str]) -> list[str]:
    """Return the distinct warnings of a response, shortened or with the last ones omitted to stay within the limits
    of HTTP headers."""
    distinct = list(dict.fromkeys(warnings))[:_MAX_WARNINGS]
    if sum(map(len, distinct)) <= _MAX_CHARACTERS:
        return distinct
    remaining = _MAX_CHARACTERS
    for count, warning in enumerate(distinct):
        if remaining <= 0:
            return [warning[:_LONG_WARNING] for warning in distinct[:count]]
        remaining -= min(len(warning), _LONG_WARNING)
    return [warning[:_LONG_WARNING] for warning in distinct]


def _json(document: Json) -> web.Response:
    return web.Response(body=encode(document), headers={"Content-Type": JSON})


def _error(error: StatusError) -> web.Response:
    headers = {"Content-Type": JSON, **error.headers}
    return web.Response(body=encode(error.status), status=error.code, headers=headers)


def _page_not_found() -> web.Response:
    return web.Response(status=404, text="404 page not found\n")
