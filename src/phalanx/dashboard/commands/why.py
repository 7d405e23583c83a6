"""Answers of `phalanx why` for viewers of the page: from the last dry run, without names that are hidden."""

from __future__ import annotations

import time
from collections.abc import Collection

from phalanx.cluster.pods.records import GangRecord
from phalanx.dashboard.access import Login, ViewerAccessError
from phalanx.dashboard.commands.viewer_reads import reads_for
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.rehearsal.messages import AskReport, Failed
from phalanx.dashboard.rows.entries import GangRow
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch
from phalanx.kube.client import KubeClient
from phalanx.model.gang import GangKey
from phalanx.reports.why import object_path, source_uid
from phalanx.reports.why_answer import WhyAnswer
from phalanx.reports.why_target import TargetError, WhyTarget
from phalanx.views.gang_names import gangs_named, shown

# Longest wait in seconds for a dry run with an object that the last one did not know.
_NEWS_SECONDS = 15.0


async def why_for(
    client: KubeClient, login: Login, watch: ClusterWatch, scope: Scope, target: tuple[str, str, str]
) -> WhyAnswer:
    """Return the answer about `target` (namespace, kind, name) for a viewer of its namespace. Raises
    ViewerAccessError (404 for an unknown name)."""
    await watch.until_current()
    reads = client if scope.viewer.trusted else reads_for(client, login, scope.viewer)
    redaction = Redaction(scope)
    try:
        answer = await WhyTarget(reads, _LastDryRun(watch, redaction), *target).answer()
    except TargetError as error:
        raise ViewerAccessError(404, str(error)) from error
    return redaction.past_eviction(answer)


class _LastDryRun:
    """Redacted answers of the last dry run."""

    def __init__(self, watch: ClusterWatch, redaction: Redaction) -> None:
        self._watch = watch
        self._redaction = redaction

    async def pod(self, namespace: str, name: str) -> WhyAnswer | None:
        known = any(record.pod.key == f"{namespace}/{name}" for record in self._watch.state.pods.values())
        return await self._ask(AskReport("pod", (namespace, name)), known=known)

    async def gang(self, key: GangKey) -> WhyAnswer | None:
        return await self._ask(AskReport("gang", (key,)), known=key in self._watch.state.gangs)

    async def composite(self, key: GangKey) -> WhyAnswer | None:
        return await self._ask(AskReport("composite", (key,)))

    async def pods_below(self, owner: str, namespace: str, name: str, uids: Collection[str]) -> WhyAnswer | None:
        return await self._ask(AskReport("pods_below", (owner, namespace, name, frozenset(uids))))

    def gangs_called(self, namespace: str, name: str, kind: str = "") -> list[GangKey]:
        return self._waiting_first(gangs_named(self._watch.state.gangs, namespace, name, kind))

    def gangs_below(self, uids: Collection[str]) -> list[GangKey]:
        gangs = {key for key, record in self._watch.state.gangs.items() if source_uid(record) in uids}
        records = (self._watch.state.pods.get(uid) for uid in uids)
        gangs |= {record.gang.key for record in records if record is not None and record.gang is not None}
        return self._waiting_first(gangs)

    def object_path(self, key: GangKey) -> str:
        return object_path(self._watch.state.gangs.get(key))

    def member_uids(self, key: GangKey) -> list[str]:
        record = self._watch.state.gangs.get(key)
        return list(record.members) if record is not None else []

    def name_of(self, key: GangKey) -> str:
        return shown(self._watch.state.gangs[key])

    def _waiting_first(self, keys: Collection[GangKey]) -> list[GangKey]:
        gangs = self._watch.state.gangs
        return sorted(keys, key=lambda key: (not _pending(gangs[key]), key))

    async def _ask(self, question: AskReport, *, known: bool = False) -> WhyAnswer | None:
        """Return the redacted answer. A `known` object that the dry run lacks is new: wait for a later dry run."""
        deadline = time.monotonic() + _NEWS_SECONDS
        while True:
            answer = await self._watch.rehearsal.why(question) if self._watch.last is not None else None
            if isinstance(answer, Failed):
                raise ViewerAccessError(503, "the dry run did not answer: try again in a moment")
            if answer is not None:
                return self._redaction.why(answer, self._row(answer))
            left = deadline - time.monotonic()
            if not known or left <= 0:
                return None
            await self._watch.until_next_run(left)

    def _row(self, answer: WhyAnswer) -> GangRow | None:
        """Return the page's row of the answer's gang or single pod."""
        namespace, _, name = answer.name.partition("/")
        row = self._watch.row(f"{namespace}/pod/{name}") if answer.kind == "Pod" else None
        return row or (self._watch.row(answer.gang) if answer.gang else None)


def _pending(record: GangRecord) -> int:
    return record.counts().pending
