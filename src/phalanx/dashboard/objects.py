"""Objects and logs of one gang for the page, read from the API server with the viewer's own rights."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import msgspec
import yaml
from aiohttp import web

from phalanx.dashboard.access import Viewer, ViewerAccessError
from phalanx.dashboard.rows.entries import LogAnswer, ObjectsAnswer, ShownObject
from phalanx.kube.auth.credentials import StaticCredentials
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.model.text.decoding import MAX_NAME
from phalanx.orders.errors import OrderError
from phalanx.orders.target import Target, TargetFinder, text_of_row

Json = dict[str, Any]
ViewerOf = Callable[[web.Request], Awaitable[Viewer]]
CheckScope = Callable[[web.Request, str], Awaitable[object]]

# Bounds of one answer.
_MOST_OBJECTS, _LONGEST_OBJECT = 20, 100_000
_MOST_LINES, _MOST_BYTES = 1000, 512_000
_REFUSED = frozenset({401, 403, 404, 429})
_PASSED_ON = frozenset({400, 401, 403, 404, 429})


class ObjectRoutes:
    """Handlers of the manifests and the logs of gangs.

    A viewer who logged in with a token reads with this token: the API server decides.
    """

    def __init__(self, client: KubeClient, viewer: ViewerOf, scope: CheckScope) -> None:
        self._client, self._viewer, self._scope = client, viewer, scope

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/objects/{namespace}/{name}", self._objects),
            web.get("/api/v1/logs/{namespace}/{pod}", self._log),
        ]

    async def _objects(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        named = text_of_row(name, pod=request.query.get("pod") == "true")
        async with self._reading(request, namespace, name) as client:
            try:
                target = await TargetFinder(client, namespace).find(named)
            except OrderError as error:
                raise ViewerAccessError(404, error.message) from error
        found = list(_objects_of(target))
        shown = [_shown(kind_of_object, document) for kind_of_object, document in found[:_MOST_OBJECTS]]
        return _json(ObjectsAnswer(objects=shown, omitted=len(found) - len(shown)))

    async def _log(self, request: web.Request) -> web.Response:
        namespace, pod = request.match_info["namespace"], request.match_info["pod"]
        query = {
            "tailLines": _MOST_LINES,
            "limitBytes": _MOST_BYTES,
            "container": request.query.get("container") or None,
            "previous": True if request.query.get("previous") == "true" else None,
        }
        async with self._reading(request, namespace, pod) as client:
            document = await client.get(PODS.path(namespace, pod))
            containers = [
                str(container.get("name"))
                for part in ("containers", "initContainers")
                for container in document.get("spec", {}).get(part) or ()
            ]
            query["container"] = query["container"] or next(iter(containers), None)
            text, problem = b"", ""
            try:
                text = await client.request("GET", PODS.path(namespace, pod, "log"), params=query, accept="*/*")
            except ApiError as error:
                if error.status in _REFUSED:
                    raise
                # The container has not started, or its kubelet does not answer.
                problem = error.message
        return _json(LogAnswer(text=text.decode("utf-8", "replace"), containers=containers, problem=problem))

    @contextlib.asynccontextmanager
    async def _reading(self, request: web.Request, namespace: str, name: str) -> AsyncIterator[KubeClient]:
        """Yield an API client with the viewer's rights. Raises ViewerAccessError, also for errors of the reads."""
        viewer = await self._viewer(request)
        await self._scope(request, namespace)
        if not name or len(name) > MAX_NAME:
            raise ViewerAccessError(400, "invalid name of an object")
        try:
            if viewer.trusted:
                yield self._client
                return
            token = request.headers.get("Authorization", "").partition(" ")[2].strip()
            async with KubeClient(self._as_bearer(token), user_agent="phalanx-dashboard") as client:
                yield client
        except ApiError as error:
            status = error.status if error.status in _PASSED_ON else 502
            # 401 would end the session: a token for an audience of the page is no token for the API server.
            raise ViewerAccessError(403 if status == 401 else status, error.message) from error
        except ConnectionLost as error:
            raise ViewerAccessError(502, "the API server did not answer: try again in a moment") from error
        except (ConfigError, ValueError) as error:
            raise ViewerAccessError(400, f"invalid request: {error}") from error

    def _as_bearer(self, token: str) -> Any:
        """Return the settings of this process's client with the viewer's token in place of its own identity."""
        config = self._client.config
        tls = dataclasses.replace(config.tls, certificate=None, certificate_file=None, key_file=None)
        credentials = StaticCredentials.token(token)
        return dataclasses.replace(config, tls=tls, credentials=lambda: credentials, headers=())


def _objects_of(target: Target) -> Iterator[tuple[str, Json]]:
    """Yield the job, the PodGroups and the pods of a gang with their kinds, each once."""
    seen: set[str] = set()
    top = [(target.resource.kind, target.document)] if target.resource and target.document is not None else []
    groups = [(resource.kind, document) for resource, document in target.groups]
    for kind, document in (*top, *groups, *(("Pod", pod) for pod in target.members)):
        uid = str((document.get("metadata") or {}).get("uid"))
        if uid not in seen:
            seen.add(uid)
            yield kind, document


def _shown(kind: str, document: Json) -> ShownObject:
    metadata = dict(document.get("metadata") or {})
    metadata.pop("managedFields", None)
    text = yaml.safe_dump({**document, "kind": kind, "metadata": metadata}, sort_keys=True, allow_unicode=True)
    return ShownObject(kind=kind, name=str(metadata.get("name", "")), yaml=text[:_LONGEST_OBJECT])


def _json(content: object) -> web.Response:
    response = web.Response(body=msgspec.json.encode(content), content_type="application/json")
    response.enable_compression()
    return response
