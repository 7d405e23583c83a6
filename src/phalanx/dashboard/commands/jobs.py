"""List of gangs and single pods for `phalanx jobs --server`, in the form of the scheduler's own list."""

from __future__ import annotations

import asyncio

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.daemon.gang_entries import GangEntry, ListedGangs
from phalanx.daemon.gang_list import GangList
from phalanx.dashboard.redaction import Redaction
from phalanx.dashboard.rehearsal.messages import RehearsedVerdict
from phalanx.dashboard.scope import Scope
from phalanx.dashboard.watch import ClusterWatch
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Verdict

replace = msgspec.structs.replace


class JobList:
    """Gangs that the page's watch knows, with the verdicts of the last dry run."""

    def __init__(self, watch: ClusterWatch) -> None:
        self._watch = watch
        self._gangs = GangList(
            watch.state, lambda: watch.promises, self._verdict_of, verdict_of_pod=self._verdict_of_pod
        )

    async def answer(self, scope: Scope, queue: str) -> bytes:
        """Return the JSON of a ListedGangs with the gangs that the viewer can see."""
        moment, entries = await self._gangs.entries()
        return await asyncio.to_thread(self._encoded, scope, queue, moment, entries)

    def _encoded(self, scope: Scope, queue: str, moment: str, entries: list[GangEntry]) -> bytes:
        redaction, sees = Redaction(scope), scope.sees("gangs")
        shown = [entry for entry in entries if sees(entry.namespace) and queue in ("", entry.queue)]
        if not redaction.idle:
            shown = [self._redacted(entry, redaction) for entry in shown]
        return msgspec.json.encode(ListedGangs(moment, shown))

    def _redacted(self, entry: GangEntry, redaction: Redaction) -> GangEntry:
        """Return an entry with the text of the page's row, whose named objects are known."""
        if not entry.message:
            return entry
        name = f"pod/{entry.name}" if entry.kind == "pod" else entry.group
        row = self._watch.row(f"{entry.namespace}/{name}")
        same = row is not None and row.reason == entry.reason
        return replace(entry, message=redaction.gang_row(row).message if row is not None and same else "")

    def _verdict_of(self, key: GangKey) -> Verdict | None:
        last = self._watch.last
        return _verdict(last.gangs.get(key)) if last is not None else None

    def _verdict_of_pod(self, record: PodRecord) -> Verdict | None:
        last = self._watch.last
        return _verdict(last.pods.get(record.pod.uid)) if last is not None else None


def _verdict(rehearsed: RehearsedVerdict | None) -> Verdict | None:
    return Verdict(rehearsed.reason, rehearsed.message) if rehearsed is not None and rehearsed.reason else None
