"""How many members a gang needs now: the match policies of docs/rules/coscheduling.md, 1.5, as arithmetic."""

from __future__ import annotations

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import Gang, GangCounts, MatchPolicy
from phalanx.model.pod import MemberState, PlanMark
from phalanx.scheduling.gangs.subgroups import lacking

# Policies that ask for the minimum once a run.
ONCE = (MatchPolicy.ONCE_SATISFIED, MatchPolicy.UNTIL_SCHEDULED)


class QuorumRequirement(msgspec.Struct, frozen=True):
    """What a plan must place for the gang's quorum to hold.

    `total` members in all, of which `roles[role]` of each named role. (0, {}) means that the quorum holds without
    any: whatever is pending is surplus. `repair` tells that the gang is already half bound by an earlier plan.
    `subgroups` tells per rule of the gang how many more of its subgroups must start (() where it has no rules).
    `done` members count already, of which `succeeded` have succeeded.
    """

    total: int
    roles: tuple[tuple[str, int], ...] = ()
    repair: bool = False
    subgroups: tuple[int, ...] = ()
    done: int = 0
    succeeded: int = 0

    @property
    def satisfied(self) -> bool:
        return self.total <= 0 and not self.roles


def quorum_requirement(record: GangRecord, gang: Gang) -> QuorumRequirement:
    """The members to place now, by the gang's match policy.

    W = members of this plan, B = placed, bound or running and not terminating, S = succeeded, m = the minimum:
    only-waiting W >= m; waiting-and-running W + B >= m; waiting-running-succeed W + B + S >= m; once-satisfied
    W + S' >= m until that has been true once, until-scheduled W + B + S' >= m; then nothing is asked while B > 0: a
    run is over when nobody is left on a node, and whoever comes then starts as a whole. S' are those whom the
    controller of the waiting members has made as well: it makes no others for them.

    A gang that carries the mark of a plan which was cut off in the middle (a crash, a failed binding) counts what
    that plan has bound, whatever its policy: the quorum was proved when the plan was made, and what is missing is
    repaired.
    """
    counts = record.counts()
    policy = gang.match_policy
    if policy is MatchPolicy.UNTIL_SCHEDULED and gang.once_satisfied and counts.active:
        return QuorumRequirement(0)
    plan = unfinished_plan(record, gang)
    repair = plan is not None
    if policy in ONCE and not repair and was_satisfied(record, gang):
        return QuorumRequirement(0)
    succeeded = _succeeded(record, policy, plan)
    done = sum(succeeded.values()) + on_nodes(counts, policy, repair)
    total = max(0, gang.min_member - done)
    roles = tuple(
        (role, missing)
        for role, least in gang.roles
        if (missing := least - succeeded.get(role, 0) - on_nodes(record.counts(role), policy, repair)) > 0
    )
    total = max(total, sum(missing for _, missing in roles))
    if total and record.placeholders and (expected := record.starting_placeholders):
        # Whoever starts is sure of the room for those whom it is going to make, and for those that it has made.
        total = max(total, record.count(MemberState.PENDING)) + len(expected)
    subgroups: tuple[int, ...] = ()
    if gang.subgroups:
        subgroups, least = lacking(record, gang, lambda each: counted(each, policy, repair))
        total = max(total, least)
    return QuorumRequirement(total, roles, repair and total > 0, subgroups, done, sum(succeeded.values()))


def on_nodes(counts: GangCounts, policy: MatchPolicy, repair: bool = False) -> int:
    """The members on nodes, or on the way to one, that already count towards the quorum, before this plan."""
    waiting_only = policy in (MatchPolicy.ONLY_WAITING, MatchPolicy.ONCE_SATISFIED)
    # Of the two policies that look at waiting members only, bound ones count just while their plan is unfinished.
    return counts.assumed if waiting_only and not repair else counts.active


def counted(counts: GangCounts, policy: MatchPolicy, repair: bool = False) -> int:
    """The members of a subgroup that already count towards its size; one that has succeeded was part of it."""
    succeeded = counts.succeeded if repair or policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED else 0
    return on_nodes(counts, policy, repair) + succeeded


def _succeeded(record: GangRecord, policy: MatchPolicy, plan: PlanMark | None) -> dict[str, int]:
    """How many succeeded members count, per role. What an earlier run has left behind does not.

    Those of a plan that is being repaired were part of it. Once-policies count those that the controller of the
    waiting members has made as well; waiting-running-succeed all but those of another controller.
    """
    found: dict[str, int] = {}
    if not record.count(MemberState.SUCCEEDED):
        return found
    makers = {member.pod.controller for member in record.pending.values()}
    for member in record.members.values():
        if member.state is not MemberState.SUCCEEDED:
            continue
        maker = member.pod.controller
        counts = plan is not None and member.mark == plan
        if policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED:
            counts = counts or not maker or maker in makers
        elif policy in ONCE:
            counts = counts or (bool(maker) and maker in makers)
        if counts:
            found[member.pod.role] = found.get(member.pod.role, 0) + 1
    return found


def was_satisfied(record: GangRecord, gang: Gang) -> bool:
    """Whether the run that is under way has had its quorum.

    It has if enough members were on nodes at once, or if a living member carries the mark of a plan: that placed
    the whole quorum, or the member joined a gang that had it. One bound member of unknown origin proves nothing.
    """
    if not record.active:
        return False
    return record.peak >= gang.min_member or any(mark.concerns(gang.uid) for mark in record.live_marks())


def unfinished_plan(record: GangRecord, gang: Gang) -> PlanMark | None:
    """The newest plan of this gang of which some members are bound and some are still pending.

    A plan that was seen complete is over: who comes to replace a lost member is a new question for the match
    policy. After a restart only times are left to tell: a pending member counts as left over if it existed when
    the plan was made (creation times are whole seconds, like the mark's).
    """
    marks = [mark for mark in record.marks if mark.size > 1 and mark.concerns(gang.uid)]
    if not marks:
        return None
    newest = max(marks, key=lambda mark: (mark.time, mark.plan))
    # A member whose binding failed is on its way again (and again): until it is confirmed the plan is not done.
    again = record.failures > 0 and record.confirmed(newest) < newest.size
    if record.marks[newest] >= newest.size and not again:
        return None
    finished = record.finished_plan
    if finished is not None and finished.concerns(gang.uid) and finished.time >= newest.time:
        return None
    if not (newest in record.live_marks() or _has_succeeded(record, newest)):
        return None  # nobody is left of it: nothing is half bound
    left_over = any(member.pod.created <= newest.time for member in record.pending.values())
    if gang.min_member <= 1 or not (left_over or (again and record.count(MemberState.ASSUMED))):
        return None
    return newest


def _has_succeeded(record: GangRecord, mark: PlanMark) -> bool:
    return any(each.mark == mark and each.state is MemberState.SUCCEEDED for each in record.members.values())


def new_mark(gang: Gang, cause: str, size: int, time: int) -> PlanMark:
    """The mark of a plan for the gang. Objects that declare gangs are told from namesakes by their uid."""
    return PlanMark.of(cause, size, time, gang.uid)


def joining_mark(gang: Gang, cause: str, time: int) -> PlanMark | None:
    """The mark of a member that joins a gang which has its quorum, where it matters later that it had."""
    return new_mark(gang, cause, 1, time) if gang.match_policy in ONCE and gang.min_member > 1 else None
