"""Rows of suspended and failed jobs that have no gang now, from the documents of the jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from phalanx.controllers.controller import WatchedKind
from phalanx.controllers.served_watches import ServedWatches
from phalanx.dashboard.rows.entries import GangRow
from phalanx.hub.objects import read_object
from phalanx.jobs.suspended import (
    SUSPENDABLE,
    SuspendableKind,
    is_over,
    is_suspended,
    pod_sets,
    wrong_scheduler,
)
from phalanx.kube.changes import Change, Delete, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource
from phalanx.model.pod_quota import sequence
from phalanx.reports.jobs.document_facts import document_facts
from phalanx.reports.jobs.kinds import JOB, JOB_SET, RESOURCES, VCJOB
from phalanx.reports.jobs.read_documents import job_entry, mapping, number, text
from phalanx.views.gang_state import GangState, gang_state

Json = dict[str, Any]

_STOPPED = frozenset({GangState.SUSPENDED, GangState.FAILED})
_MOST_TEXT = 400
_RELEASE = "release it"


class StoppedJobs:
    """Watcher of the served kinds of jobs. `rows` has the suspended and failed jobs of the `schedulers` by row id.

    It calls `changed` after changes of rows.
    """

    def __init__(
        self, client: KubeClient, schedulers: Collection[str], changed: Callable[[], None], failures: Failures
    ) -> None:
        self.rows: dict[str, GangRow] = {}
        self._schedulers = schedulers
        self._changed = changed
        self._served = ServedWatches(client, [self], failures)

    @property
    def watches(self) -> Sequence[WatchedKind]:
        watches = [WatchedKind(RESOURCES[VCJOB], partial(self._seen, VCJOB, None))]
        for kind in SUSPENDABLE:
            for version in kind.in_versions():
                served = version.served
                resource = Resource(served.group, served.version, served.plural, served.kind)
                watches.append(WatchedKind(resource, partial(self._seen, served.kind.lower(), version)))
        return watches

    async def run(self) -> None:
        """Watch the jobs until cancelled."""
        await self._served.run()

    def _seen(self, word: str, kind: SuspendableKind | None, change: Change[bytes]) -> None:
        if isinstance(change, Upsert):
            found = read_object(change.raw)
            row = self._row(word, kind, found.document) if found is not None else None
        elif isinstance(change, Delete):
            row = None
        else:
            return
        row_id = f"{change.key[0]}/{word}/{change.key[1]}"
        if row is not None:
            self.rows[row_id] = row
        elif self.rows.pop(row_id, None) is None:
            return
        self._changed()

    def _row(self, word: str, kind: SuspendableKind | None, document: Json) -> GangRow | None:
        """Return the row of a suspended or failed job; None for any other job, and for one of other schedulers."""
        if kind is None:
            scheduler = text(mapping(document.get("spec")).get("schedulerName"))
            ours = not scheduler or scheduler in self._schedulers
        else:
            ours = not wrong_scheduler(pod_sets(kind, document), list(self._schedulers))
        if not ours:
            return None
        metadata = mapping(document.get("metadata"))
        namespace, name = text(metadata.get("namespace")), text(metadata.get("name"))
        state, queue, minimum, reason, message = _facts(word, kind, document)
        if state not in _STOPPED:
            return None
        suspended = state is GangState.SUSPENDED
        return GangRow(
            id=f"{namespace}/{word}/{name}",
            kind=word,
            namespace=namespace,
            name=f"{word}/{name}",
            title=name,
            job=f"{word}/{name}",
            queue=queue,
            state=state,
            minimum=minimum,
            created=text(metadata.get("creationTimestamp")),
            reason="" if suspended else reason,
            message=state.sentence if suspended else (message or reason or state.sentence)[:_MOST_TEXT],
            change=_RELEASE if suspended else "",
            objects=(),
        )


def _facts(word: str, kind: SuspendableKind | None, document: Json) -> tuple[GangState | None, str, int, str, str]:
    """Return state, queue, minimum, reason and message of a job; the state None if it is neither suspended nor
    failed."""
    if word in (VCJOB, JOB, JOB_SET):
        entry = job_entry(word, document, (), (), time.time())
        minimum = entry.minimum or number(mapping(document.get("spec")).get("minAvailable"))
        return gang_state(document_facts(entry, document, ())), entry.queue, minimum, entry.reason, entry.message
    assert kind is not None
    status = mapping(document.get("status"))
    failed = next(
        (
            condition
            for entry in sequence(status.get("conditions"))
            if (condition := mapping(entry)).get("type") == "Failed" and condition.get("status") == "True"
        ),
        None,
    )
    if failed is not None:
        return GangState.FAILED, "", 0, text(failed.get("reason")), text(failed.get("message"))
    if is_suspended(kind, document) and not is_over(document):
        return GangState.SUSPENDED, "", 0, "", ""
    return None, "", 0, "", ""
