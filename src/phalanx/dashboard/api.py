"""Handlers of `/api/v1`. Each response contains only the data that the viewer has the rights to see."""

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
from typing import TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from phalanx.dashboard.access import Login, Viewer, ViewerAccessError
from phalanx.dashboard.accounts import WINDOWS, Accounts
from phalanx.dashboard.commands.answers import CommandAnswers
from phalanx.dashboard.commands.routes import command_routes
from phalanx.dashboard.objects import ObjectRoutes
from phalanx.dashboard.orders import MOST_ORDERS, Orders
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.renderings import Renderings
from phalanx.dashboard.rows.entries import (
    BulkOrderRequest,
    ErrorAnswer,
    HistoryAnswer,
    LoginAnswer,
    OrderRequest,
    SessionAnswer,
    WhatIfRequest,
)
from phalanx.dashboard.schema import schema
from phalanx.dashboard.scope import Scope, scope_of
from phalanx.dashboard.stream import Stream
from phalanx.dashboard.tables import RowTable
from phalanx.dashboard.timeline import GangHistory
from phalanx.dashboard.watch import ClusterWatch
from phalanx.dashboard.what_if import WhatIfError, WhatIfQuestions
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.model.text.decoding import MAX_NAME, quoted
from phalanx.views.gang_names import AmbiguousGangError

audit = logging.getLogger("phalanx.dashboard.audit")

T = TypeVar("T")

_MOST_STREAMS = 500
_LONGEST_TICKET = 256


class Api:
    """HTTP handlers of all paths below `/api/v1`.

    A handler authenticates the viewer first and checks the rights before it reveals that an object exists.
    """

    def __init__(
        self,
        watch: ClusterWatch,
        login: Login,
        gangs: GangHistory,
        questions: WhatIfQuestions,
        accounts: Accounts,
        orders: Orders,
        client: KubeClient,
    ) -> None:
        self._watch, self._login, self._gangs, self._questions = watch, login, gangs, questions
        self._accounts, self._orders = accounts, orders
        self.renderings = Renderings(watch.tables, watch.news)
        self._schema = msgspec.json.encode(schema())
        self._streams = 0
        self.commands = CommandAnswers(
            client, login, watch, questions, accounts, self._scope_of, self._require_ready
        )
        self._objects = ObjectRoutes(client, self._viewer, self._scope)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/schema.json", self._schema_json),
            web.post("/api/v1/login", self._login_by_ticket),
            web.get("/api/v1/session", self._session),
            web.get("/api/v1/tables/{table}", self._table),
            web.get("/api/v1/stream", self._stream),
            web.get("/api/v1/gangs/{namespace}/{name}", self._gang),
            web.get("/api/v1/pods/{namespace}/{name}", self._pod),
            web.get("/api/v1/history", self._history),
            web.get("/api/v1/accounts", self._of_accounts),
            web.post("/api/v1/what-if", self._what_if),
            web.post("/api/v1/orders/{verb}", self._order),
            *command_routes(self.commands, self._viewer),
            web.post("/api/v1/bulk-orders/{verb}", self._bulk_order),
            *self._objects.routes(),
        ]

    # viewers

    async def _viewer(self, request: web.Request) -> Viewer:
        kind, _, token = request.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            raise ViewerAccessError(401, "log in first")
        return await self._login.viewer(token.strip())

    async def _scope(self, request: web.Request, namespace: str | None = None, *, again: bool = False) -> Scope:
        viewer = await self._viewer(request)
        asked = request.query.get("namespace", "") if namespace is None else namespace
        return await self._scope_of(viewer, asked, request.path, again=again)

    async def _scope_of(self, viewer: Viewer, namespace: str, path: str, *, again: bool = False) -> Scope:
        try:
            return await scope_of(self._login, viewer, namespace, self._watch, again=again)
        except ViewerAccessError as error:
            if error.status == 403:
                audit.warning("refused: user=%r namespace=%r path=%r", viewer.name, namespace, path)
            raise

    # handlers

    async def _schema_json(self, request: web.Request) -> web.Response:
        return web.Response(body=self._schema, content_type="application/schema+json")

    async def _login_by_ticket(self, request: web.Request) -> web.Response:
        ticket = (await request.content.read(_LONGEST_TICKET + 1)).decode("utf-8", "replace")
        if len(ticket) > _LONGEST_TICKET:
            raise ViewerAccessError(400, "invalid login ticket")
        try:
            token = self._login.exchange(ticket)
        except ViewerAccessError:
            audit.warning("login refused: address=%s", request.remote)
            raise
        audit.info("login: address=%s", request.remote)
        return _json(LoginAnswer(token=token))

    async def _session(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        if self._login.name == "token":
            audit.info("login: user=%r namespace=%r address=%s", scope.viewer.name, scope.namespace, request.remote)
        return _json(
            SessionAnswer(
                user=scope.viewer.name,
                login=self._login.name,
                namespace=scope.namespace,
                everything=scope.everything,
                version=importlib.metadata.version("phalanx-scheduler"),
                schedulers=list(self._watch.options.schedulers),
                what_if=scope.everything,
                writes=self._orders.enabled,
                hub=self._watch.clusters.hub and (scope.clusters or scope.dispatches),
                namespaces=sorted(self._watch.tables["gangs"].scopes()) if scope.everything else None,
            )
        )

    async def _table(self, request: web.Request) -> web.StreamResponse:
        scope = await self._scope(request)
        table = self._named_table(request.match_info["table"])
        self._require_ready()
        body = await self.renderings.table(scope, table.name)
        if body.packed and "gzip" in request.headers.get("Accept-Encoding", ""):
            headers = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            return web.Response(body=body.packed, content_type="application/json", headers=headers)
        return web.Response(body=body.plain, content_type="application/json")

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        await self._scope(request)
        self._require_ready()
        if self._streams >= _MOST_STREAMS:
            raise ViewerAccessError(503, "too many pages are open: close one or try again later")
        self._streams += 1
        try:
            return await Stream(self._watch, self, request).run()
        finally:
            self._streams -= 1

    async def scope_again(self, request: web.Request) -> Scope:
        """Return the data that the viewer of an open stream can see now. Raises ViewerAccessError."""
        return await self._scope(request, again=True)

    async def _gang(self, request: web.Request) -> web.Response:
        return await self._history_of(request, pod=False)

    async def _pod(self, request: web.Request) -> web.Response:
        return await self._history_of(request, pod=True)

    async def _history_of(self, request: web.Request, *, pod: bool) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        scope = await self._scope(request, namespace)
        self._require_ready()
        if len(name) > MAX_NAME:
            raise ViewerAccessError(400, "invalid name of a gang")
        try:
            answer = await self._gangs.answer(namespace, name, pod=pod, with_events=scope.evictions)
        except AmbiguousGangError as error:
            raise ViewerAccessError(400, str(error)) from error
        if answer is None:
            raise ViewerAccessError(
                404, f"there is no {'pod' if pod else 'gang'} {quoted(name)} in namespace {namespace}"
            )
        return _json(Redaction(scope).gang(answer))

    async def _history(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        queues = set(scope.queues) if scope.queues is not None else None
        response = _json(HistoryAnswer(series=self._watch.history.series(queues)))
        response.enable_compression()
        return response

    async def _of_accounts(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        days = request.query.get("days", "30")
        if days not in map(str, WINDOWS):
            raise ViewerAccessError(400, f"write ?days= with one of {', '.join(map(str, WINDOWS))}")
        response = _json(await self._accounts.answer(int(days), scope.queues))
        response.enable_compression()
        return response

    async def _what_if(self, request: web.Request) -> web.Response:
        scope = await self._scope(request, "")
        if not scope.everything:
            raise ViewerAccessError(
                403, "what-if answers cover all namespaces: you lack the right to list pods in all namespaces"
            )
        try:
            question = msgspec.json.decode(await request.read(), type=WhatIfRequest)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ViewerAccessError(400, f"invalid question: {error}") from error
        audit.info("what-if: user=%r", scope.viewer.name)
        async with self.commands.rehearsals.turn(scope.viewer):
            answer = await self._questions.answer(question)
        return _json(Redaction(scope).what_if(answer))

    async def _order(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        order = await _decoded_order(request, OrderRequest)
        if not order.namespace:
            raise ViewerAccessError(400, "the order needs a namespace")
        await self._scope(request, order.namespace)
        return _json(await self._orders.give(viewer, request.match_info["verb"], order))

    async def _bulk_order(self, request: web.Request) -> web.Response:
        viewer = await self._viewer(request)
        orders = (await _decoded_order(request, BulkOrderRequest)).orders
        if not 0 < len(orders) <= MOST_ORDERS:
            raise ViewerAccessError(400, f"send 1 to {MOST_ORDERS} orders at a time")
        if not all(order.namespace for order in orders):
            raise ViewerAccessError(400, "the order needs a namespace")
        for namespace in {order.namespace for order in orders}:
            await self._scope(request, namespace)
        return _json(await self._orders.give_all(viewer, request.match_info["verb"], orders))

    def _named_table(self, name: str) -> RowTable:
        if name not in self._watch.tables:
            raise ViewerAccessError(404, "unknown table")
        return self._watch.tables[name]

    def _require_ready(self) -> None:
        if not self._watch.ready.is_set():
            if self._watch.forbidden:
                raise ViewerAccessError(
                    503,
                    f"the dashboard lacks the right to list {self._watch.forbidden} of the whole cluster: "
                    "for a view of one namespace use a dashboard that runs in the cluster (--login token)",
                )
            raise ViewerAccessError(503, "the cluster is being read: try again in a moment")


@web.middleware
async def refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn every refusal of a handler into an ErrorAnswer. An internal error is logged and reported without
    details."""
    try:
        return await handler(request)
    except ViewerAccessError as error:
        return _json(ErrorAnswer(error=str(error)), error.status)
    except WhatIfError as error:
        return _json(ErrorAnswer(error=str(error)), error.status)
    except (ApiError, ConnectionLost):
        logging.getLogger(__name__).warning("%s: the API server did not answer", request.path, exc_info=True)
        return _json(ErrorAnswer(error="the API server did not answer as expected: see the dashboard's log"), 502)
    except web.HTTPException as error:
        if not request.path.startswith("/api/"):
            raise
        return _json(ErrorAnswer(error=error.reason), error.status)
    except asyncio.CancelledError:
        raise
    except Exception:
        logging.getLogger(__name__).exception("%s", request.path)
        return _json(ErrorAnswer(error="internal error of the dashboard: see its log"), 500)


async def _decoded_order(request: web.Request, kind: type[T]) -> T:
    """Return the order in a request's body. Raises ViewerAccessError."""
    # Browsers send this content type across origins only after a preflight request, which the server refuses.
    if request.content_type != "application/json":
        raise ViewerAccessError(415, "the content type of an order must be application/json")
    try:
        return msgspec.json.decode(await request.read(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ViewerAccessError(400, f"invalid order: {error}") from error


def _json(content: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json", status=status)
