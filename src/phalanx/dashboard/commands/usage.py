"""Answers of `phalanx history` and `phalanx report` for viewers: recorded usage of visible namespaces."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from phalanx.accounting.questions import (
    DIMENSIONS,
    MOST_RUNS,
    ReportAnswer,
    ReportQuestion,
    RunFilter,
    RunsAnswer,
)
from phalanx.dashboard.access import ViewerAccessError
from phalanx.dashboard.accounts import Accounts
from phalanx.dashboard.scope import Scope
from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from sqlalchemy import Connection

# Limit of names in one question, below the parameters of a statement.
_MOST_NAMES = 1000
_LAST_SECOND = 1 << 40


class UsageAnswers:
    """Answers from the accounting database; the namespace of the scope counts, not that of the question."""

    def __init__(self, accounts: Accounts) -> None:
        self._accounts = accounts

    async def runs(self, scope: Scope, question: RunFilter) -> RunsAnswer:
        """Return the runs of the viewer's namespaces. Raises ViewerAccessError."""
        _check(question.since, question.until, question.queues, question.users, question.states)

        def read(connection: Connection) -> RunsAnswer:
            from phalanx.accounting.history import read_runs

            own = RunFilter(
                question.since,
                question.until,
                scope.namespace,
                question.queues,
                question.users,
                question.states,
                question.gang,
            )
            return RunsAnswer(read_runs(connection, own, int(time.time()), MOST_RUNS + 1), scope.namespace)

        answer = await self._accounts.query(read)
        if len(answer.runs) > MOST_RUNS:
            raise ViewerAccessError(400, f"more than {MOST_RUNS} runs match; shorten the period or add filters")
        return answer

    async def report(self, scope: Scope, question: ReportQuestion) -> ReportAnswer:
        """Return the usage of the viewer's namespaces. Raises ViewerAccessError."""
        _check(question.since, question.until, question.queues)
        if unknown := sorted(set(question.by) - set(DIMENSIONS)):
            raise ViewerAccessError(
                400, f"unknown group {quoted(unknown[0])}; expected any of {', '.join(DIMENSIONS)}"
            )

        def read(connection: Connection) -> ReportAnswer:
            from phalanx.accounting.report import read_report

            lines = read_report(
                connection,
                question.by,
                question.since,
                question.until,
                int(time.time()),
                question.queues,
                scope.namespace,
            )
            return ReportAnswer(lines, scope.namespace)

        return await self._accounts.query(read)


def _check(since: int, until: int, *names: tuple[str, ...]) -> None:
    """Raise ViewerAccessError (400) for a period or names that no command sends."""
    if not 0 <= since <= until <= _LAST_SECOND or any(len(part) > _MOST_NAMES for part in names):
        raise ViewerAccessError(
            400, "invalid question: a period within 0 and 2**40 and up to 1000 names are possible"
        )
