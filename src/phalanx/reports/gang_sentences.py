"""Messages and sizes of gangs for `phalanx why` that follow from their member counts, without a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import Gang, GangCounts, share_of
from phalanx.model.pod import Pod, bound_at
from phalanx.model.text.counts import count_of
from phalanx.model.text.duration import format_moment
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS
from phalanx.reports.group_states import has_started
from phalanx.reports.pod_troubles import PodTrouble
from phalanx.reports.why_answer import GangSize, WhyAnswer
from phalanx.scheduling.diagnosis.verdicts import to_count
from phalanx.scheduling.gangs.quorum import ONCE, QuorumRequirement
from phalanx.views.gang_state import GangState


def describe_without_pending(
    answer: WhyAnswer, record: GangRecord, counts: GangCounts, need: QuorumRequirement | None
) -> None:
    """Describe a gang without pending members: its quorum is placed, it has ended, or members do not exist."""
    if answer.state.over or (counts.succeeded and not counts.active):
        failed = f", {counts.failed} failed" if counts.failed else ""
        answer.message = f"{count_of(counts.succeeded, 'pod')} succeeded{failed}"
    elif counts.active + counts.succeeded >= answer.minimum:
        answer.message = f"{counts.active} pods are on nodes; the minimum is {answer.minimum}"
    elif counts.active and need and need.satisfied:
        answer.message = (
            f"{count_of(counts.active, 'pod')} on nodes; the minimum was met once and is not required again"
        )
    else:
        present = counts.present
        answer.reason, answer.missing = NOT_ENOUGH_MEMBERS, answer.minimum - present
        answer.message = f"{share_of(present, answer.minimum)} of the gang exist; 0 are pending"
        if counts.gated:
            answer.message += f", {counts.gated} gated"
        lower = f", or lower its minimum to {present}" if present else ""
        answer.change = f"{to_count(record, answer.missing)}{lower}"


def prefix_placed_members(answer: WhyAnswer, counts: GangCounts) -> None:
    """Put the number of members on nodes before the message of a gang that is partly placed."""
    placed = counts.bound + counts.running
    if not answer.reason or answer.forecast or not placed or answer.state is GangState.EVICTING:
        return
    state = f"{count_of(placed, 'pod')} on nodes"
    pending = f"{counts.pending} pending: " if counts.pending else ""
    if has_started(answer) and counts.pending:
        state = f"it runs with {placed} of {counts.present} pods and has its minimum"
    answer.message = f"{state}; {pending}{answer.message}"


def lifted_minimum(record: GangRecord, counts: GangCounts, need: QuorumRequirement | None) -> str:
    """Return the message for a gang whose match policy no longer requires its minimum; "" for other gangs."""
    spec = record.spec
    if spec is None or need is None or spec.match_policy not in ONCE or spec.min_member <= 1:
        return ""
    if not (need.satisfied and counts.active):
        return ""
    return (
        f"the minimum of {spec.min_member} was met in this run; match policy {spec.match_policy} does not require "
        f"it again while pods of the gang are on nodes ({counts.active} now)"
    )


def gang_size(record: GangRecord, spec: Gang, counts: GangCounts, expected: Sequence[Pod]) -> GangSize | None:
    """Return the size of a gang with more members than its minimum, or with `expected` members; None for other
    gangs."""
    if counts.present <= spec.min_member and not expected:
        return None
    last = max((bound_at(member.pod) for member in record.members.values() if member.pod.node), default=0)
    ends = max((pod.expires for pod in expected), default=0)
    return GangSize(
        spec.min_member,
        counts.active,
        counts.present,
        spec.total,
        format_moment(last) if last else "",
        len(expected),
        format_moment(ends) if ends else "",
    )


def add_troubles(answer: WhyAnswer, pods: Iterable[Pod], troubles: Mapping[str, PodTrouble]) -> None:
    """Add to the answer how many of the pods do not run, with the first reason."""
    affected = [pod for pod in sorted(pods, key=lambda pod: pod.name) if pod.uid in troubles]
    if not affected:
        return
    first = troubles[affected[0].uid]
    if not answer.reason:
        answer.reason = first.reason
        answer.change = first.advice(affected[0])
    verb = "does not run" if len(affected) == 1 else "do not run"
    answer.append(f"{count_of(len(affected), 'pod')} {verb}: {affected[0].name}: {first.sentence}")
