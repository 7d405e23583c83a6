"""Routes of `/api/v1/commands`: the answers that commands print for users without rights to the whole cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from phalanx.dashboard.access import Login, ViewerAccessError
from phalanx.dashboard.commands.turns import UserTurns
from phalanx.dashboard.commands.why import why_for
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch
from phalanx.kube.client import KubeClient
from phalanx.model.text.decoding import MAX_NAME

ScopeOf = Callable[[web.Request, str], Awaitable[Scope]]
"""Function that returns the scope of a request's viewer for a namespace. Raises ViewerAccessError."""

# A user's questions that wait for the earlier one: several shells and `--watch` work, a flood does not.
_WAITING_QUESTIONS = 8


class CommandRoutes:
    """Handlers of the commands' questions. Each answer has the type that the command itself computes where the
    user's rights suffice."""

    def __init__(
        self,
        client: KubeClient,
        login: Login,
        watch: ClusterWatch,
        scope_of: ScopeOf,
        require_ready: Callable[[], None],
    ) -> None:
        self._client, self._login, self._watch = client, login, watch
        self._scope_of, self._require_ready = scope_of, require_ready
        self._turns = UserTurns(_WAITING_QUESTIONS)

    def routes(self) -> list[web.RouteDef]:
        return [web.get("/api/v1/commands/why", self._why)]

    async def _why(self, request: web.Request) -> web.Response:
        query = request.query
        namespace, kind, name = (query.get(key, "") for key in ("namespace", "kind", "name"))
        if not namespace or not name or max(len(kind), len(name)) > MAX_NAME:
            raise ViewerAccessError(400, "write ?namespace=NAMESPACE&name=NAME, with &kind=KIND for a kind")
        scope = await self._scope_of(request, namespace)
        self._require_ready()
        async with self._turns.turn(scope.viewer):
            return _json(await why_for(self._client, self._login, self._watch, scope, (namespace, kind, name)))


def _json(content: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")
