"""Sentences and sizes of `phalanx why` that follow from the counts of a gang, without a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import Gang, GangCounts
from phalanx.model.pod import Pod, bound_at
from phalanx.model.text.duration import format_moment
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS
from phalanx.reports.group_states import has_started
from phalanx.reports.why_answer import GangSize, WhyAnswer
from phalanx.scheduling.diagnosis.verdicts import to_count
from phalanx.scheduling.gangs.quorum import ONCE, QuorumRequirement
from phalanx.views.gang_state import GangState


def describe_without_pending(
    answer: WhyAnswer, record: GangRecord, counts: GangCounts, need: QuorumRequirement | None
) -> None:
    """Describe a gang without pending members: its quorum holds, it has ended, or members do not exist."""
    if answer.state.over or (counts.succeeded and not counts.active):
        failed = f", {counts.failed} have failed" if counts.failed else ""
        answer.message = f"{counts.succeeded} members have succeeded{failed}"
    elif counts.active + counts.succeeded >= answer.minimum:
        answer.message = f"the quorum holds: {counts.active} members have a node, {answer.minimum} are the minimum"
    elif counts.active and need and need.satisfied:
        answer.message = f"the quorum was met once, and nothing is asked since: {counts.active} members have a node"
    else:
        there = counts.present
        answer.reason, answer.missing = NOT_ENOUGH_MEMBERS, answer.minimum - there
        answer.message = f"the gang has {there} of the {answer.minimum} members that it needs, and none is pending"
        if counts.gated:
            answer.message += f": {counts.gated} have scheduling gates"
        lower = f", or lower its minimum to {there}" if there else ""
        answer.change = f"{to_count(record, answer.missing)}{lower}"


def prefix_placed_members(answer: WhyAnswer, counts: GangCounts) -> None:
    """Begin the message of a gang that is partly on nodes with the number of those members."""
    placed = counts.bound + counts.running
    if not answer.reason or answer.forecast or not placed or answer.state is GangState.EVICTING:
        return
    here = f"{placed} member{' has' if placed == 1 else 's have'} a node"
    rest = f"{counts.pending} wait{'s' if counts.pending == 1 else ''}: " if counts.pending else ""
    if has_started(answer) and counts.pending:
        here = f"it runs with {placed} of {counts.present} members and has what it needs"
    answer.message = f"{here}; {rest}{answer.message}"


def lifted_minimum(record: GangRecord, counts: GangCounts, need: QuorumRequirement | None) -> str:
    """Return the sentence for a gang whose match policy no longer requires its minimum; "" for others."""
    spec = record.spec
    if spec is None or need is None or spec.match_policy not in ONCE or spec.min_member <= 1:
        return ""
    if not (need.satisfied and counts.active):
        return ""
    return (
        f"the minimum of {spec.min_member} was met in this run, so by match policy {spec.match_policy} it is "
        f"not asked for while a member is left ({counts.active} have a node)"
    )


def gang_size(record: GangRecord, spec: Gang, counts: GangCounts, expected: Sequence[Pod]) -> GangSize | None:
    """Return the size of a gang with more members than its minimum, or with `expected` ones; None for others."""
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
