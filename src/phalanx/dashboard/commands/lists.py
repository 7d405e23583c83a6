"""Lists of waiting gangs and of queues for viewers: foreign entries are counted, not named."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from phalanx.dashboard.access import ViewerAccessError
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.rehearsal.messages import AskList, Failed
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch
from phalanx.model.account import ROOT_QUEUE
from phalanx.model.text.counts import count_of
from phalanx.reports.account_entries import QueueReport
from phalanx.reports.start_entries import StartEntry, StartsAnswer
from phalanx.reports.turn_entries import OrderReport, TurnEntry

replace = msgspec.structs.replace
#: Sort keys with the numbers of a queue have this prefix.
_QUEUE_KEY = "queue:"


class WaitingLists:
    """Lists of all waiting units, one computation for all viewers until the next dry run."""

    def __init__(self, watch: ClusterWatch) -> None:
        self._watch = watch
        self._known: dict[str, tuple[int, Any]] = {}
        self._turn = asyncio.Lock()

    async def order(self, scope: Scope) -> OrderReport:
        """Return the scheduling order of the gangs and pods that the viewer can see; positions count all."""
        report: OrderReport = await self._list("order")
        redaction, sees = viewer_redaction(scope, self._watch), scope.sees("gangs")
        if redaction.idle and not scope.namespace:
            return report
        entries = [_turn(entry, redaction) for entry in report.entries if sees(entry.namespace)]
        return OrderReport(entries, _uncounted(len(report.entries) - len(entries), "POS counts them"))

    async def starts(self, scope: Scope) -> StartsAnswer:
        """Return the starts of the gangs and pods that the viewer can see."""
        entries: list[StartEntry] = await self._list("starts")
        redaction, sees = viewer_redaction(scope, self._watch), scope.sees("gangs")
        shown = [
            entry if redaction.idle else replace(entry, start=redaction.start(entry.start))
            for entry in entries
            if sees(entry.namespace)
        ]
        return StartsAnswer(starts=shown, warnings=_uncounted(len(entries) - len(shown), ""))

    async def queues(self, scope: Scope) -> QueueReport:
        """Return the queues and quotas that the viewer can see: by rights, and those of visible gangs."""
        await self._watch.until_current()
        last = self._watch.last
        if last is None:
            raise ViewerAccessError(503, "the first dry run is not complete: try again in a moment")
        report, redaction = last.queues, viewer_redaction(scope, self._watch)
        if redaction.idle:
            return report
        queues = [redaction.queue(entry) for entry in report.queues if redaction.sees_queue(entry.name)]
        quotas = [
            redaction.quota(entry)
            for entry in report.quotas
            if scope.queues is None or scope.everything or scope.namespace in entry.namespaces
        ]
        warnings = []
        hidden = sum(entry.name != ROOT_QUEUE for entry in report.queues) - sum(
            entry.name != ROOT_QUEUE for entry in queues
        )
        if hidden:
            warnings.append(f"not shown: {count_of(hidden, 'queue')} that you lack the right to get")
        if len(report.quotas) > len(quotas):
            hidden = len(report.quotas) - len(quotas)
            warnings.append(f"not shown: {count_of(hidden, 'quota')} of other namespaces")
        return replace(report, queues=queues, quotas=quotas, warnings=warnings)

    async def _list(self, kind: str) -> Any:
        await self._watch.until_current()
        async with self._turn:
            generation, answer = self._known.get(kind, (-1, None))
            if generation == self._watch.generation:
                return answer
            generation = self._watch.generation
            answer = await self._watch.rehearsal.waiting_units(AskList(kind, time.time()))
            if isinstance(answer, Failed):
                raise ViewerAccessError(503, "the dry run did not answer: try again in a moment")
            self._known[kind] = (generation, answer)
            return answer


def viewer_redaction(scope: Scope, watch: ClusterWatch) -> Redaction:
    """Return the redaction for a viewer, with the queues of the present gangs of the viewer's namespace."""
    return Redaction(replace(scope, own_queues=watch.own_queues.of(scope.namespace, watch.generation)))


def _turn(entry: TurnEntry, redaction: Redaction) -> TurnEntry:
    if redaction.idle:
        return entry
    if redaction.sees_queue(entry.queue):
        return replace(entry, message="")
    keys = {name: value for name, value in entry.keys.items() if not name.startswith(_QUEUE_KEY)}
    return replace(entry, message="", keys=keys, queue_share=0.0)


def _uncounted(hidden: int, more: str) -> list[str]:
    text = f"not shown: {count_of(hidden, 'waiting unit')} of other namespaces"
    return [f"{text}; {more}" if more else text] if hidden else []
