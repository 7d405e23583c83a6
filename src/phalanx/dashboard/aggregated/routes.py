"""Routes of the aggregated API: answers to commands, discovery and health checks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from phalanx.dashboard.access import Login, Right, Viewer, ViewerAccessError
from phalanx.dashboard.aggregated import documents
from phalanx.dashboard.aggregated.front_proxy import SUPERUSERS
from phalanx.dashboard.commands.answers import CommandAnswers, CommandQuestion
from phalanx.dashboard.limits import RateLimits
from phalanx.dashboard.what_if import WhatIfError
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.text.decoding import quoted
from phalanx.reports.aggregated_names import EVERYWHERE, GROUP, GROUP_VERSION, KIND, RESOURCE

log = logging.getLogger(__name__)

ProxyViewer = Callable[[web.Request], Viewer]
"""Function that returns the user for whom the front proxy sends a request. Raises ViewerAccessError (401)."""

_LARGEST_BODY = 512 * 1024
_ROOT = f"/apis/{GROUP_VERSION}"
_HEALTH = ("/healthz", "/livez", "/readyz")
_VERBS = {"GET": "get", "POST": "create"}
_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    413: "RequestEntityTooLarge",
    429: "TooManyRequests",
    503: "ServiceUnavailable",
}


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    creation: None = msgspec.field(name="creationTimestamp", default=None)


class _Answer(msgspec.Struct, kw_only=True):
    kind: str = KIND
    api_version: str = msgspec.field(name="apiVersion", default=GROUP_VERSION)
    metadata: _Metadata
    answer: msgspec.Raw


def application(
    answers: CommandAnswers,
    login: Login,
    viewer_of: ProxyViewer,
    is_ready: Callable[[], bool],
    limits: RateLimits,
) -> web.Application:
    """Return the web application. `limits` count the requests of each user: all come from the API server."""
    routes = _Routes(answers, login, is_ready)
    app = web.Application(middlewares=[_statuses, _guard(viewer_of, limits)], client_max_size=_LARGEST_BODY)
    app.add_routes(
        [
            *(web.get(path, routes.health) for path in _HEALTH),
            web.get("/apis", routes.groups),
            *(web.get(path, _document(make())) for path, make in _DOCUMENTS.items()),
            web.route("*", f"{_ROOT}/namespaces/{{namespace}}/{RESOURCE}/{{name}}", routes.answer),
            web.route("*", f"{_ROOT}/namespaces/{{namespace}}/{RESOURCE}", routes.collection),
            web.route("*", f"{_ROOT}/{RESOURCE}", routes.collection),
        ]
    )
    return app


_DOCUMENTS = {
    f"/apis/{GROUP}": documents.api_group,
    _ROOT: documents.resource_list,
    "/openapi/v2": documents.openapi_v2,
    "/openapi/v3": documents.openapi_v3_index,
    f"/openapi/v3{_ROOT}": documents.openapi_v3,
}
_VIEWER = "viewer"


class _Routes:
    def __init__(self, answers: CommandAnswers, login: Login, is_ready: Callable[[], bool]) -> None:
        self._answers, self._login, self._is_ready = answers, login, is_ready

    async def health(self, request: web.Request) -> web.Response:
        ready = request.path != "/readyz" or self._is_ready()
        return web.Response(text="ok" if ready else "not synced", status=200 if ready else 503)

    async def groups(self, request: web.Request) -> web.Response:
        if documents.AGGREGATED in request.headers.get("Accept", "").replace(" ", ""):
            body = msgspec.json.encode(documents.aggregated_discovery())
            return web.Response(body=body, headers={"Content-Type": documents.AGGREGATED})
        return _json(documents.group_list())

    async def collection(self, request: web.Request) -> web.Response:
        raise ViewerAccessError(405, f"name a command: {RESOURCE}/{', '.join(self._answers.commands)}")

    async def answer(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        viewer: Viewer = request[_VIEWER]
        command = self._answers.commands.get(name)
        if command is None:
            known = ", ".join(self._answers.commands)
            raise ViewerAccessError(404, f"unknown command {quoted(name)}; expected one of {known}")
        if command.method != request.method:
            raise ViewerAccessError(405, f"{RESOURCE}/{name} needs the method {command.method}")
        await self._authorize(viewer, request.method, namespace, name)
        params = {key: value for key, value in request.query.items() if key not in ("namespace", "own")}
        # The namespace of the path is the one that the API server has authorized.
        everywhere = params.pop(EVERYWHERE, "") == "true"
        params |= {"namespace": "", "own": namespace} if everywhere else {"namespace": namespace}
        body = await command.answer(CommandQuestion(viewer, params, request.read, request.path))
        return _json(_Answer(metadata=_Metadata(name, namespace), answer=msgspec.Raw(body)))

    async def _authorize(self, viewer: Viewer, method: str, namespace: str, name: str) -> None:
        """Raise ViewerAccessError (403) without the right to the answer itself. The API server has reviewed it
        before; an extension API server reviews it again. The data of the answer need further rights."""
        if SUPERUSERS in viewer.groups:
            return
        right = Right(_VERBS[method], RESOURCE, GROUP, namespace, name)
        if not await self._login.may(viewer, right):
            raise ViewerAccessError(403, f"user {quoted(viewer.name)} lacks the right to {right.words}")


def _guard(viewer_of: ProxyViewer, limits: RateLimits) -> Middleware:
    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in _HEALTH:
            viewer = request[_VIEWER] = viewer_of(request)
            if not limits.allow(viewer.name):
                raise ViewerAccessError(429, "too many requests: try again in a moment")
        return await handler(request)

    return guard


@web.middleware
async def _statuses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every refusal into a Status object, which kubectl prints. An internal error is logged and reported
    without details."""
    try:
        return await handler(request)
    except (ViewerAccessError, WhatIfError) as error:
        response = _status(error.status, str(error))
        if error.status == 401:
            # The next connection is verified by the present authorities.
            response.force_close()
        return response
    except (ApiError, ConnectionLost):
        log.warning("%s: the API server did not answer", request.path, exc_info=True)
        return _status(502, "the API server did not answer as expected: see the log of the page's server")
    except web.HTTPException as error:
        return _status(error.status, error.reason)
    except asyncio.CancelledError:
        raise
    except Exception:
        log.exception("%s", request.path)
        return _status(500, "internal error of the page's server: see its log")


def _document(content: documents.Json) -> Handler:
    body = msgspec.json.encode(content)

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type="application/json")

    return answer


def _status(code: int, message: str) -> web.Response:
    return _json(
        {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": _REASONS.get(code, "InternalError"),
            "code": code,
        },
        code,
    )


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json", status=status)
