"""Rows of gangs and of pods on their own, from the state and from what the last rehearsal said."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.dashboard.rehearsal.messages import PlannedStart, RehearsedVerdict
from phalanx.dashboard.rows.entries import GangRow
from phalanx.model.gang import GangCounts, shown_name
from phalanx.model.pod import MemberState
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.diagnosis.verdicts import NOT_ENOUGH_MEMBERS

_NO_VERDICT = RehearsedVerdict("")
# A list need not hold a page of text per row; the gang's own page has it all.
_MOST_TEXT = 400
WAITING = frozenset({"Waiting", "Partial", "Starting"})


def gang_row(record: GangRecord, verdict: RehearsedVerdict | None, start: PlannedStart | None) -> GangRow:
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
        title=shown if (shown := shown_name(record.key.name)) != record.key.name else "",
        queue=spec.queue if spec is not None else "",
        priority=priority if priority is not None else max((m.pod.priority for m in members), default=0),
        state=gang_state(counts, minimum, verdict),
        minimum=minimum,
        pending=counts.pending,
        gated=counts.gated,
        placed=counts.active,
        running=counts.running,
        finished=counts.succeeded + counts.failed,
        terminating=counts.terminating,
        asks=asks,
        created=format_moment(created) if created else "",
    )
    return _told(row, verdict, start)


def pod_row(record: PodRecord, verdict: RehearsedVerdict | None, start: PlannedStart | None) -> GangRow:
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
        state=gang_state(counts, 1, verdict),
        minimum=1,
        pending=counts.pending,
        gated=counts.gated,
        placed=counts.active,
        running=counts.running,
        finished=counts.succeeded + counts.failed,
        terminating=counts.terminating,
        asks=asks,
        created=format_moment(pod.created) if pod.created else "",
    )
    return _told(row, verdict, start)


def gang_state(counts: GangCounts, minimum: int, verdict: RehearsedVerdict | None) -> str:
    """One word, as `phalanx why` has it."""
    there, done = counts.active, counts.succeeded
    if there:
        if there + done < minimum:
            return "Partial"
        return "Running" if counts.running or done else "Bound"
    if counts.pending:
        return verdict.state if verdict is not None else "Waiting"
    if counts.gated:
        return "Gated"
    if counts.terminating:
        return "Terminating"
    if done or counts.failed:
        return "Finished"
    return "OtherScheduler" if counts.other_scheduler else "Waiting"


def _add(asks: dict[str, int], member: PodRecord) -> None:
    for name, amount in member.pod.pod_class.requests:
        asks[name] = asks.get(name, 0) + amount


def _told(row: GangRow, verdict: RehearsedVerdict | None, start: PlannedStart | None) -> GangRow:
    if row.pending or row.state == "Waiting":
        said = verdict or _NO_VERDICT
        row.reason, row.message, row.change = said.reason, said.message[:_MOST_TEXT], said.change[:_MOST_TEXT]
        there = row.pending + row.placed + row.gated
        if not said.reason and row.state == "Waiting" and there < row.minimum:
            row.reason = NOT_ENOUGH_MEMBERS
            row.message = f"the gang has {there} of the {row.minimum} members that it needs, and none is pending"
    if start is not None and row.state in WAITING:
        promised = start.start.no_later_than
        row.start = promised or start.start.planned
        row.start_kind = ("promised" if promised else "planned") if row.start else ""
    return row
