"""Rows of gangs and single pods, from the cluster state and the last dry run."""

from __future__ import annotations

from collections.abc import Collection

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.dashboard.rehearsal.messages import PlannedStart, RehearsedVerdict
from phalanx.dashboard.rows.entries import GangRow
from phalanx.model.gang import GangCounts, share_of
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.model.text.duration import format_moment
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS
from phalanx.views.gang_names import shown, target
from phalanx.views.gang_state import GangState, gang_state
from phalanx.views.record_facts import gang_facts, pod_facts

_NO_VERDICT = RehearsedVerdict()
# A row of the list needs a short text; the gang's own page has the full text.
_MOST_TEXT = 400
_MOST_NODES = 16
_ON_NODES = frozenset(ACTIVE)


def gang_row(
    record: GangRecord,
    verdict: RehearsedVerdict | None,
    start: PlannedStart | None,
    evicted: Collection[str] = (),
) -> GangRow:
    """Return the row of a gang. `evicted` contains the uids of pods with the condition DisruptionTarget."""
    counts, spec = record.counts(), record.spec
    minimum = spec.min_member if spec is not None else 0
    members = list(record.members.values())
    asks: dict[str, int] = {}
    for member in members:
        if member.state not in (MemberState.SUCCEEDED, MemberState.FAILED, MemberState.TERMINATING):
            _add(asks, member)
    created = (
        spec.created if spec is not None and spec.created else min((m.pod.created for m in members), default=0)
    )
    priority = spec.priority if spec is not None else None
    row = GangRow(
        id=record.key.path,
        kind=spec.source.kind if spec is not None and spec.source is not None else "gang",
        namespace=record.key.namespace,
        name=record.key.name,
        title=title if (title := shown(record)) != record.key.name else "",
        queue=spec.queue if spec is not None else "",
        priority=priority if priority is not None else max((m.pod.priority for m in members), default=0),
        state=gang_state(gang_facts(record, evicted)),
        minimum=minimum,
        pending=counts.pending,
        gated=counts.gated,
        placed=counts.active,
        running=counts.running,
        finished=counts.succeeded + counts.failed,
        terminating=counts.terminating,
        asks=asks,
        created=format_moment(created) if created else "",
        job=target(record),
        user=next((member.pod.user for member in members if member.pod.user), ""),
        started=_moment(_started(members, minimum)),
    )
    _set_nodes(row, members)
    return _told(row, verdict, start)


def pod_row(
    record: PodRecord,
    verdict: RehearsedVerdict | None,
    start: PlannedStart | None,
    evicted: Collection[str] = (),
) -> GangRow:
    """Return the row of a single pod. `evicted` contains the uids of pods with the condition DisruptionTarget."""
    pod = record.pod
    counts = GangCounts(**{record.state.name.lower(): 1})
    asks: dict[str, int] = {}
    _add(asks, record)
    row = GangRow(
        id=f"{pod.namespace}/pod/{pod.name}",
        kind="pod",
        namespace=pod.namespace,
        name=pod.name,
        queue=pod.queue,
        priority=pod.priority,
        state=gang_state(pod_facts(record, evicted)),
        minimum=1,
        pending=counts.pending,
        gated=counts.gated,
        placed=counts.active,
        running=counts.running,
        finished=counts.succeeded + counts.failed,
        terminating=counts.terminating,
        asks=asks,
        created=format_moment(pod.created) if pod.created else "",
        job=f"pod/{pod.name}",
        user=pod.user,
        started=_moment(pod.started),
    )
    _set_nodes(row, [record])
    return _told(row, verdict, start)


def _moment(seconds: int) -> str:
    return format_moment(seconds) if seconds else ""


def _started(members: list[PodRecord], minimum: int) -> int:
    """Return the time in seconds from which `minimum` members (at least one) run; 0 before."""
    started = sorted(member.pod.started for member in members if member.pod.started)
    needed = max(1, minimum)
    return started[needed - 1] if len(started) >= needed else 0


def _set_nodes(row: GangRow, members: list[PodRecord]) -> None:
    """Set the nodes of the members that have a node now."""
    nodes = sorted({member.pod.node for member in members if member.pod.node and member.state in _ON_NODES})
    row.nodes, row.node_count = nodes[:_MOST_NODES], len(nodes)


def _add(asks: dict[str, int], member: PodRecord) -> None:
    for name, amount in member.pod.pod_class.requests:
        asks[name] = asks.get(name, 0) + amount


def _told(row: GangRow, verdict: RehearsedVerdict | None, start: PlannedStart | None) -> GangRow:
    if row.pending or row.state.waits:
        said = verdict or _NO_VERDICT
        row.reason, row.message, row.change = said.reason, said.message[:_MOST_TEXT], said.change[:_MOST_TEXT]
        row.brief, row.objects = said.brief, said.objects
        there = row.pending + row.placed + row.gated
        if row.state.waits:
            row.forecast = said.forecast
        if not said.reason and row.state is GangState.GATED:
            row.reason, row.message = "SchedulingGated", f"{row.gated} of its pods are gated"
            row.objects = ()
        elif not said.reason and row.state is GangState.PENDING and there < row.minimum:
            row.reason = NOT_ENOUGH_MEMBERS
            row.message = f"{share_of(there, row.minimum)} of the gang exist; 0 are pending"
            row.objects = ()
    if start is not None and row.state.waits:
        promised = start.start.no_later_than
        row.start = promised or start.start.planned
        row.start_kind = ("promised" if promised else "planned") if row.start else ""
    return row
