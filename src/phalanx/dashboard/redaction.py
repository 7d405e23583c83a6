"""Redaction of table rows and answers for one viewer, by their fields.

A text is shown only if its named objects are known and the viewer can see all of them. Otherwise a text without
names, built from code and counts, replaces it. Texts are never parsed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from phalanx.dashboard.rows.entries import (
    ROWS,
    ClusterRow,
    DispatchRow,
    EvictionRow,
    GangAnswer,
    GangRow,
    Mark,
    MemberLine,
    QueueRow,
    ReservationRow,
    SummaryRow,
    WhatIfReply,
)
from phalanx.dashboard.scope import Scope
from phalanx.model.decisions import EvictionReason
from phalanx.model.verdict import NamedObject, NodeCount, Objects
from phalanx.reports.account_entries import FirstWaiting, QueueEntry, QuotaEntry, SubqueueEntry
from phalanx.reports.eviction_entries import EvictionPreview, PreviewedPod
from phalanx.reports.whatif.answer import AskedStart, WhatIfAnswer
from phalanx.reports.why_answer import WhyAnswer
from phalanx.views.gang_state import GangState
from phalanx.views.promises import PromisedStart
from phalanx.views.verdict_texts import brief_text, eviction_text, start_text

replace = msgspec.structs.replace

ANOTHER_POD, ANOTHER_GANG = "another pod", "another gang or pod"
_EVICTIONS = frozenset(EvictionReason)
_PREVIEWS = {
    "Leaving": "evicted pods have not terminated yet",
    "Due": "the scheduler would evict pods now",
    "Vain": "evictions would not make room",
}


class Redaction:
    """Redaction of rows for viewers of one scope. `idle` is True for viewers who have all rights: their rows stay
    unchanged."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.idle = scope.everything and scope.nodes and scope.queues is None

    # objects

    def sees(self, target: NamedObject, own_queue: str = "") -> bool:
        """Return whether the viewer has the right to see an object that a text names.

        A viewer of a gang also sees the gang's queue.
        """
        if target.kind == "Queue":
            return self.sees_queue(target.name, own_queue)
        if target.kind in ("Node", "Topology"):
            return self._scope.nodes
        if target.kind == "Namespace":
            return self._in_sight(target.name)
        return self._in_sight(target.namespace)

    def shows(self, objects: Objects, own_queue: str = "") -> bool:
        """Return whether a text that names `objects` can be shown to the viewer."""
        return self.idle or (objects is not None and all(self.sees(target, own_queue) for target in objects))

    def _in_sight(self, namespace: str) -> bool:
        return self._scope.everything or (namespace != "" and namespace == self._scope.namespace)

    def sees_queue(self, name: str, own: str = "") -> bool:
        return self._scope.sees_queue(name) or (name != "" and name == own)

    # rows

    def row(self, table: str, encoded: bytes) -> bytes:
        """Return a table's row with redacted texts."""
        if self.idle or table not in _OF_TABLES:
            return encoded
        content = msgspec.json.decode(encoded, type=ROWS[table])
        return msgspec.json.encode(_OF_TABLES[table](self, content))

    def _summary(self, row: SummaryRow) -> SummaryRow:
        return replace(row, summary=replace(row.summary, warnings=[]))

    def gang_row(self, row: GangRow) -> GangRow:
        if self.shows(row.objects, row.queue):
            return replace(row, objects=None)
        return replace(row, message=row.brief, change="", objects=None)

    def _queue_row(self, row: QueueRow) -> QueueRow:
        return replace(
            row,
            queue=self.queue(row.queue) if row.queue is not None else None,
            quota=self.quota(row.quota) if row.quota is not None else None,
        )

    def queue(self, entry: QueueEntry) -> QueueEntry:
        return replace(
            entry,
            parent=entry.parent if self.sees_queue(entry.parent) else "",
            first=self._first(entry.first),
            tenants=[self._tenant(tenant) for tenant in entry.tenants if self._sees_tenant(tenant)],
            **self._without_texts(entry, seen=self._scope.queues is None),
        )

    def quota(self, entry: QuotaEntry) -> QuotaEntry:
        return replace(
            entry,
            parent=entry.parent if self._scope.everything else "",
            first=self._first(entry.first),
            namespaces=[namespace for namespace in entry.namespaces if self._in_sight(namespace)],
            **self._without_texts(entry, seen=self._scope.everything),
        )

    def _without_texts(self, entry: QueueEntry | QuotaEntry, *, seen: bool) -> dict[str, Any]:
        """Return the redacted text fields of a queue or quota.

        `seen` is True if the viewer can see all queues (or quotas).
        """
        partners = entry.partners if seen else []
        return {
            "partners": partners,
            "further_partners": entry.further_partners + len(entry.partners) - len(partners),
            "fault": "its declaration is at fault" if entry.fault else "",
            "warnings": [],
        }

    def _first(self, first: FirstWaiting | None) -> FirstWaiting | None:
        if first is None:
            return None
        if self.shows(first.objects):
            return replace(first, objects=None, start=_start(first.start))
        name = first.name if first.unit is not None and self.sees(first.unit) else ""
        return FirstWaiting(name, first.reason, brief_text(first.reason), start=_start(first.start))

    def _sees_tenant(self, tenant: SubqueueEntry) -> bool:
        return self._scope.everything if tenant.kind == "user" else self._in_sight(tenant.name)

    def _tenant(self, tenant: SubqueueEntry) -> SubqueueEntry:
        return replace(tenant, first=self._first(tenant.first))

    def _eviction(self, row: EvictionRow) -> EvictionRow:
        preemptor = row.preemptor if row.preemptor is not None and self.sees(row.preemptor) else None
        whose = f" ({preemptor.title})" if preemptor is not None else ""
        return replace(row, message=f"{eviction_text(row.reason)}{whose}", preemptor=preemptor)

    def _reservation(self, row: ReservationRow) -> ReservationRow:
        """Return a redacted row of the time axis (reservation, maintenance, start).

        Rows other than starts reach only viewers of all namespaces, who can list the titles.
        """
        return replace(
            row,
            queue=row.queue if row.namespace or self.sees_queue(row.queue) else "",
            note=row.note if row.kind == "start" else "",
            nodes=row.nodes if self._scope.nodes else [],
        )

    def _cluster(self, row: ClusterRow) -> ClusterRow:
        return replace(row, message="")

    def _dispatch(self, row: DispatchRow) -> DispatchRow:
        dispatch = row.dispatch
        return replace(
            row,
            dispatch=replace(
                dispatch,
                message="",
                answers=[replace(entry, message="") for entry in dispatch.answers],
                attempts=[replace(entry, message="") for entry in dispatch.attempts],
            ),
        )

    # answers

    def gang(self, answer: GangAnswer) -> GangAnswer:
        if self.idle:
            return answer
        queue = answer.row.queue if answer.row is not None else ""
        row = self.gang_row(answer.row) if answer.row is not None else None
        return GangAnswer(
            row=row,
            why=self._why(answer.why, row) if answer.why is not None else None,
            members=[_member(member) for member in answer.members],
            marks=[self._mark(mark, queue) for mark in answer.marks],
            problem="no answer is available now" if answer.problem else "",
            omitted=answer.omitted,
        )

    def why(self, answer: WhyAnswer, row: GangRow | None) -> WhyAnswer:
        """Redact an answer of the last dry run about a gang or pod with this row of the page (None: no row)."""
        return answer if self.idle else self._why(answer, self.gang_row(row) if row is not None else None)

    def start(self, start: PromisedStart) -> PromisedStart:
        """Return a start whose texts name no object."""
        return start if self.idle else _without_causes(start)

    def past_eviction(self, answer: WhyAnswer) -> WhyAnswer:
        """Replace the texts of an answer about evicted pods: they come from Events, which name the preemptor."""
        if self.idle:
            return answer
        loss = answer.loss
        changed = replace(answer, loss=replace(loss, message=eviction_text(loss.reason)) if loss else None)
        if answer.state in (GangState.EVICTING, GangState.DELETED) or answer.reason in _EVICTIONS:
            changed.message = "; ".join(filter(None, (answer.state.sentence, eviction_text(answer.reason))))
        return changed

    def _mark(self, mark: Mark, queue: str) -> Mark:
        return replace(mark, message=mark.message if self.shows(mark.objects, queue) else "", objects=None)

    def _why(self, why: WhyAnswer, row: GangRow | None) -> WhyAnswer:
        """Rebuild an answer of `phalanx why` from its fields without texts. A field that is missing here is
        removed."""
        same = row is not None and row.reason == why.reason and row.message
        return WhyAnswer(
            kind=why.kind,
            name=why.name,
            state=why.state,
            message=row.message if row is not None and same else _why_text(why),
            reason=why.reason,
            gang=why.gang,
            minimum=why.minimum,
            members=why.members,
            placeable=why.placeable,
            missing=why.missing,
            nodes=_lacking(why.nodes),
            change=row.change if row is not None and same else "",
            evictions=self._preview(why.evictions) if why.evictions is not None else None,
            loss=replace(why.loss, message=eviction_text(why.loss.reason)) if why.loss is not None else None,
            uid=why.uid,
            domain=why.domain if self._scope.nodes else "",
            composite=why.composite,
            groups=[replace(group, message=group.state.sentence) for group in why.groups],
            size=why.size,
            start=_start(why.start),
            run_time=why.run_time,
            forecast=why.forecast,
            gang_name=why.gang_name,
        )

    def _preview(self, preview: EvictionPreview) -> EvictionPreview:
        return EvictionPreview(
            state=preview.state,
            message=_PREVIEWS.get(preview.state, ""),
            rooms=preview.rooms if self._scope.nodes else [],
            held=preview.held,
            overtaken=[self._pod_key(key) for key in preview.overtaken],
            pods=[self._previewed_pod(key) for key in preview.pods],
            cost=preview.cost,
        )

    def _previewed_pod(self, pod: PreviewedPod) -> PreviewedPod:
        seen = self._pod_key(pod.pod) == pod.pod
        return replace(
            pod,
            pod=self._pod_key(pod.pod),
            gang=pod.gang if seen else "",
            node=pod.node if self._scope.nodes else "",
        )

    def _pod_key(self, key: str) -> str:
        """Return the pod's `key` (namespace/name) if the viewer can see the pod, else ANOTHER_POD."""
        return key if self._in_sight(key.partition("/")[0]) else ANOTHER_POD

    def what_if(self, reply: WhatIfReply) -> WhatIfReply:
        """Redact the answer to a what-if question of the page, which only viewers of all namespaces can ask."""
        if self.idle:
            return reply
        asked = [self._asked(start) for start in reply.answer.asked]
        return replace(reply, answer=replace(reply.answer, asked=asked, notes=[], missing=[]))

    def prediction(self, answer: WhatIfAnswer) -> WhatIfAnswer:
        """Redact the answer to a what-if question of a viewer of one namespace: foreign gangs have no name."""
        if self.idle:
            return answer
        return replace(
            answer,
            asked=[self._asked(start) for start in answer.asked],
            evicted=[replace(entry, name=self._gang_name(entry.name)) for entry in answer.evicted],
            moved=[replace(entry, name=self._gang_name(entry.name)) for entry in answer.moved],
            interrupted=[replace(entry, name=self._gang_name(entry.name)) for entry in answer.interrupted],
            moved_promises=[
                replace(entry, name=self._gang_name(entry.name), cause="") for entry in answer.moved_promises
            ],
            notes=[],
            missing=[],
        )

    def _gang_name(self, name: str) -> str:
        """Return the name (namespace/name) of a gang or pod if the viewer can see it, else ANOTHER_GANG."""
        return name if self._in_sight(name.partition("/")[0]) else ANOTHER_GANG

    def _asked(self, asked: AskedStart) -> AskedStart:
        verdict = asked.verdict
        if verdict is not None:
            verdict = replace(verdict, message=verdict.brief, nodes={}, change="")
        seen = self._scope.nodes
        return replace(
            asked,
            name=self._gang_name(asked.name),
            nodes=asked.nodes if seen else [],
            domains=asked.domains if seen else {},
            blockers=[replace(blocker, name=self._gang_name(blocker.name)) for blocker in asked.blockers],
            verdict=verdict,
        )


_OF_TABLES: Mapping[str, Callable[[Redaction, Any], msgspec.Struct]] = MappingProxyType(
    {
        "summary": Redaction._summary,
        "gangs": Redaction.gang_row,
        "queues": Redaction._queue_row,
        "evictions": Redaction._eviction,
        "reservations": Redaction._reservation,
        "clusters": Redaction._cluster,
        "dispatches": Redaction._dispatch,
    }
)


def _member(line: MemberLine) -> MemberLine:
    return replace(line, cause=eviction_text(line.reason) if line.reason else "")


def _start(start: PromisedStart | None) -> PromisedStart | None:
    return _without_causes(start) if start is not None else None


def _without_causes(start: PromisedStart) -> PromisedStart:
    """Return the times of a promised start without its causes, because causes name other objects."""
    return PromisedStart(
        no_later_than=start.no_later_than,
        promised=start.promised,
        told_at=start.told_at,
        expected=start.expected,
        expected_until=start.expected_until,
        planned=start.planned,
        planned_at=start.planned_at,
        basis=start.basis,
        reason=start.reason,
        message=start_text(start.reason),
        origin=start.origin,
        moves_to=start.moves_to,
    )


def _lacking(nodes: Iterable[NodeCount]) -> list[NodeCount]:
    """Return the node counts whose reason is a missing resource. Other reasons cite labels, taints or texts of
    plugins."""
    return [node_count for node_count in nodes if node_count.resource]


def _why_text(why: WhyAnswer) -> str:
    if not why.reason:
        return why.forecast.words or why.state.sentence
    return why.brief or why.state.sentence
