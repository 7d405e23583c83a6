"""Routes of `/api/v1/commands`: the answers that commands print for users without rights to the whole cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

<<<<<<< HEAD
from phalanx.accounting.questions import ReportQuestion, RunFilter
from phalanx.daemon.policy_file import dialect_options
from phalanx.dashboard.access import Login, ViewerAccessError
from phalanx.dashboard.accounts import Accounts
from phalanx.dashboard.commands.jobs import JobList
from phalanx.dashboard.commands.lists import WaitingLists
from phalanx.dashboard.commands.nodes import NodeRoomReader
from phalanx.dashboard.commands.turns import UserTurns
from phalanx.dashboard.commands.usage import UsageAnswers
from phalanx.dashboard.commands.what_if import answer_command
from phalanx.dashboard.commands.why import why_for
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch
from phalanx.dashboard.what_if import WhatIfQuestions
from phalanx.kube.client import KubeClient
from phalanx.model.text.decoding import MAX_NAME
from phalanx.reports.published_policy import PublicSettings
from phalanx.reports.whatif.remote import WhatIfCommand

audit = logging.getLogger("phalanx.dashboard.audit")

T = TypeVar("T")
ScopeOf = Callable[[web.Request, str], Awaitable[Scope]]
"""Function that returns the scope of a request's viewer for a namespace. Raises ViewerAccessError."""

# A user's questions that wait for the earlier one: several shells and `--watch` work, a flood does not.
_WAITING_QUESTIONS = 8
=======
from phalanx.dashboard.access import Viewer
from phalanx.dashboard.commands.answers import CommandAnswers, CommandQuestion, CommandRoute

ViewerOf = Callable[[web.Request], Awaitable[Viewer]]
"""Function that authenticates the viewer of a request. Raises ViewerAccessError."""
>>>>>>> agg


def command_routes(answers: CommandAnswers, viewer_of: ViewerOf) -> list[web.RouteDef]:
    """Return one route for each command."""
    return [
        web.route(command.method, f"/api/v1/commands/{name}", _handler(command, viewer_of))
        for name, command in answers.commands.items()
    ]

<<<<<<< HEAD
    def __init__(
        self,
        client: KubeClient,
        login: Login,
        watch: ClusterWatch,
        questions: WhatIfQuestions,
        accounts: Accounts,
        scope_of: ScopeOf,
        require_ready: Callable[[], None],
    ) -> None:
        self._client, self._login, self._watch = client, login, watch
        self._scope_of, self._require_ready = scope_of, require_ready
        self._turns, self.rehearsals = UserTurns(_WAITING_QUESTIONS), UserTurns()
        self._questions = questions
        self._jobs_list, self._usage = JobList(watch), UsageAnswers(accounts)
        self._lists, self._free_room = WaitingLists(watch), NodeRoomReader(client, watch)

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/api/v1/commands/why", self._why),
            web.get("/api/v1/commands/jobs", self._jobs),
            web.get("/api/v1/commands/order", self._order),
            web.get("/api/v1/commands/starts", self._starts),
            web.get("/api/v1/commands/queues", self._queues),
            web.get("/api/v1/commands/nodes", self._nodes),
            web.get("/api/v1/commands/settings", self._settings),
            web.post("/api/v1/commands/what-if", self._what_if),
            web.post("/api/v1/commands/history", self._history),
            web.post("/api/v1/commands/report", self._report),
        ]

    async def _scope(self, request: web.Request) -> Scope:
        """Return the largest scope for ?namespace=, "" for all namespaces. A viewer without rights to all of them
        is answered about ?own=, the namespace of the kubeconfig, before that of the service account."""
        namespace, own = (request.query.get(key, "") for key in ("namespace", "own"))
        found: Scope | None = None
        refusal = ViewerAccessError(403, "you lack the right to list pods")
        for candidate in (namespace,) if namespace or not own else ("", own):
            try:
                found = await self._scope_of(request, candidate)
            except ViewerAccessError as error:
                if error.status != 403:
                    raise
                refusal = error
            if found is not None and found.everything:
                break
        if found is None:
            raise refusal
        self._require_ready()
        return found

    async def _jobs(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        async with self._turns.turn(scope.viewer):
            body = await self._jobs_list.answer(scope, request.query.get("queue", ""))
        return web.Response(body=body, content_type="application/json")

    async def _order(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        async with self._turns.turn(scope.viewer):
            return _json(await self._lists.order(scope))

    async def _starts(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        async with self._turns.turn(scope.viewer):
            return _json(await self._lists.starts(scope))

    async def _queues(self, request: web.Request) -> web.Response:
        return _json(await self._lists.queues(await self._scope(request)))

    async def _nodes(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        pool_label, selector = (request.query.get(key, "") for key in ("pool-label", "selector"))
        async with self._turns.turn(scope.viewer):
            return _json(await self._free_room.answer(scope, pool_label, selector))

    async def _what_if(self, request: web.Request) -> web.Response:
        # The viewer is authenticated before the body is read.
        namespace = request.query.get("namespace", "")
        scope = await self._scope_of(request, namespace)
        self._require_ready()
        command = await _question(request, WhatIfCommand)
        if not namespace or command.namespace != namespace:
            raise ViewerAccessError(400, "write ?namespace= with the namespace of the question")
        audit.info("what-if: user=%r namespace=%r", scope.viewer.name, scope.namespace)
        async with self.rehearsals.turn(scope.viewer):
            return _json(await answer_command(self._questions, self._watch, scope, command))

    async def _history(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        question = await _question(request, RunFilter)
        async with self._turns.turn(scope.viewer):
            return _json(await self._usage.runs(scope, question))

    async def _report(self, request: web.Request) -> web.Response:
        scope = await self._scope(request)
        question = await _question(request, ReportQuestion)
        async with self._turns.turn(scope.viewer):
            return _json(await self._usage.report(scope, question))

    async def _settings(self, request: web.Request) -> web.Response:
        await self._scope(request)
        dialects = dialect_options(self._watch.policy)
        return _json(
            PublicSettings(
                scheduler_names=self._watch.options.schedulers,
                user_label=dialects.user_label,
                user_annotation=dialects.user_annotation,
            )
        )

    async def _why(self, request: web.Request) -> web.Response:
        query = request.query
        namespace, kind, name = (query.get(key, "") for key in ("namespace", "kind", "name"))
        dots = {".", ".."} & {kind, *name.split("/")}
        if not namespace or not name or dots or max(len(kind), len(name)) > MAX_NAME:
            raise ViewerAccessError(400, "write ?namespace=NAMESPACE&name=NAME, with &kind=KIND for a kind")
        scope = await self._scope_of(request, namespace)
        self._require_ready()
        async with self._turns.turn(scope.viewer):
            return _json(await why_for(self._client, self._login, self._watch, scope, (namespace, kind, name)))


async def _question(request: web.Request, question: type[T]) -> T:
    """Decode the body of a request. Raises ViewerAccessError (400)."""
    try:
        return msgspec.json.decode(await request.read(), type=question)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ViewerAccessError(400, f"invalid question: {error}") from error


def _json(content: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(content), content_type="application/json")
=======

def _handler(command: CommandRoute, viewer_of: ViewerOf) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        viewer = await viewer_of(request)
        body = await command.answer(CommandQuestion(viewer, request.query, request.read, request.path))
        return web.Response(body=body, content_type="application/json")

    return handle
>>>>>>> agg
