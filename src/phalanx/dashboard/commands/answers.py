"""Answers to commands of users who lack the rights to read the whole cluster, by the name of the command."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from phalanx.accounting.questions import ReportQuestion, RunFilter
from phalanx.daemon.policy_file import dialect_options
from phalanx.dashboard.access import Login, Viewer, ViewerAccessError
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
ScopeOf = Callable[[Viewer, str, str], Awaitable[Scope]]
"""Function that returns the scope of a viewer for a namespace; the third argument is the path of the request, for
the audit log. Raises ViewerAccessError."""

# A user's questions that wait for the earlier one: several shells and `--watch` work, a flood does not.
_WAITING_QUESTIONS = 8


class CommandQuestion(NamedTuple):
    """Question of an authenticated viewer. `body` reads the body of the request; `path` is for the audit log."""

    viewer: Viewer
    params: Mapping[str, str]
    body: Callable[[], Awaitable[bytes]]
    path: str


class CommandRoute(NamedTuple):
    """HTTP method of a command's question, and the function that returns the JSON of its answer."""

    method: str
    answer: Callable[[CommandQuestion], Awaitable[bytes]]


class CommandAnswers:
    """Answers to the questions of commands. Each answer has the type that the command itself computes where the
    user's rights suffice. The limits of a user hold together for all ways on which questions arrive."""

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
        self.commands: Mapping[str, CommandRoute] = {
            "why": CommandRoute("GET", self._why),
            "jobs": CommandRoute("GET", self._jobs),
            "order": CommandRoute("GET", self._order),
            "starts": CommandRoute("GET", self._starts),
            "queues": CommandRoute("GET", self._queues),
            "nodes": CommandRoute("GET", self._nodes),
            "settings": CommandRoute("GET", self._settings),
            "what-if": CommandRoute("POST", self._what_if),
            "history": CommandRoute("POST", self._history),
            "report": CommandRoute("POST", self._report),
        }

    async def _scope(self, question: CommandQuestion) -> Scope:
        """Return the largest scope for ?namespace=, "" for all namespaces. A viewer without rights to all of them
        is answered about ?own=, the namespace of the kubeconfig, before that of the service account."""
        namespace, own = (question.params.get(key, "") for key in ("namespace", "own"))
        found: Scope | None = None
        refusal = ViewerAccessError(403, "you lack the right to list pods")
        for candidate in (namespace,) if namespace or not own else ("", own):
            try:
                found = await self._scope_of(question.viewer, candidate, question.path)
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

    async def _jobs(self, question: CommandQuestion) -> bytes:
        scope = await self._scope(question)
        async with self._turns.turn(scope.viewer):
            return await self._jobs_list.answer(scope, question.params.get("queue", ""))

    async def _order(self, question: CommandQuestion) -> bytes:
        scope = await self._scope(question)
        async with self._turns.turn(scope.viewer):
            return msgspec.json.encode(await self._lists.order(scope))

    async def _starts(self, question: CommandQuestion) -> bytes:
        scope = await self._scope(question)
        async with self._turns.turn(scope.viewer):
            return msgspec.json.encode(await self._lists.starts(scope))

    async def _queues(self, question: CommandQuestion) -> bytes:
        return msgspec.json.encode(await self._lists.queues(await self._scope(question)))

    async def _nodes(self, question: CommandQuestion) -> bytes:
        scope = await self._scope(question)
        pool_label, selector = (question.params.get(key, "") for key in ("pool-label", "selector"))
        async with self._turns.turn(scope.viewer):
            return msgspec.json.encode(await self._free_room.answer(scope, pool_label, selector))

    async def _what_if(self, question: CommandQuestion) -> bytes:
        # The viewer is authorized before the body is read.
        namespace = question.params.get("namespace", "")
        scope = await self._scope_of(question.viewer, namespace, question.path)
        self._require_ready()
        command = await _decoded(question, WhatIfCommand)
        if not namespace or command.namespace != namespace:
            raise ViewerAccessError(400, "write ?namespace= with the namespace of the question")
        audit.info("what-if: user=%r namespace=%r", scope.viewer.name, scope.namespace)
        async with self.rehearsals.turn(scope.viewer):
            return msgspec.json.encode(await answer_command(self._questions, self._watch, scope, command))

    async def _history(self, question: CommandQuestion) -> bytes:
        scope = await self._scope(question)
        wanted = await _decoded(question, RunFilter)
        async with self._turns.turn(scope.viewer):
            return msgspec.json.encode(await self._usage.runs(scope, wanted))

    async def _report(self, question: CommandQuestion) -> bytes:
        scope = await self._scope(question)
        wanted = await _decoded(question, ReportQuestion)
        async with self._turns.turn(scope.viewer):
            return msgspec.json.encode(await self._usage.report(scope, wanted))

    async def _settings(self, question: CommandQuestion) -> bytes:
        await self._scope(question)
        dialects = dialect_options(self._watch.policy)
        return msgspec.json.encode(
            PublicSettings(
                scheduler_names=self._watch.options.schedulers,
                user_label=dialects.user_label,
                user_annotation=dialects.user_annotation,
            )
        )

    async def _why(self, question: CommandQuestion) -> bytes:
        namespace, kind, name = (question.params.get(key, "") for key in ("namespace", "kind", "name"))
        dots = {".", ".."} & {kind, *name.split("/")}
        if not namespace or not name or dots or max(len(kind), len(name)) > MAX_NAME:
            raise ViewerAccessError(400, "write ?namespace=NAMESPACE&name=NAME, with &kind=KIND for a kind")
        scope = await self._scope_of(question.viewer, namespace, question.path)
        self._require_ready()
        async with self._turns.turn(scope.viewer):
            answer = await why_for(self._client, self._login, self._watch, scope, (namespace, kind, name))
        return msgspec.json.encode(answer)


async def _decoded(question: CommandQuestion, body: type[T]) -> T:
    """Return the decoded body of a question. Raises ViewerAccessError (400)."""
    try:
        return msgspec.json.decode(await question.body(), type=body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ViewerAccessError(400, f"invalid question: {error}") from error
