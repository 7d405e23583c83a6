"""How many members a gang needs now: the match policies of research/coscheduling.md, section 1.5, as arithmetic."""

from __future__ import annotations

import msgspec

from phalanx.cluster.members import GangRecord
from phalanx.model.gang import Dialect, Gang, GangCounts, MatchPolicy
from phalanx.model.pod import MemberState, PlanMark
from phalanx.scheduling.topology.subgroups import lacking

_ONCE = (MatchPolicy.ONCE_SATISFIED, MatchPolicy.UNTIL_SCHEDULED)


class Requirement(msgspec.Struct, frozen=True):
    """What a plan must place for the gang's quorum to hold.

    `total` members in all, of which `roles[role]` of each named role. (0, {}) means that the quorum holds without
    any: whatever is pending is surplus. `repair` tells that the gang is already half bound by an earlier plan.
    `subgroups` tells per rule of the gang how many more of its subgroups must start (() where it has no rules).
    """

    total: int
    roles: tuple[tuple[str, int], ...] = ()
    repair: bool = False
    subgroups: tuple[int, ...] = ()

    @property
    def satisfied(self) -> bool:
        return self.total <= 0 and not self.roles


def requirement(record: GangRecord, gang: Gang) -> Requirement:
    """The members to place now, by the gang's match policy.

    W = members of this plan, B = placed, bound or running and not terminating, S = succeeded, m = the minimum:
    only-waiting W >= m; waiting-and-running W + B >= m; waiting-running-succeed W + B + S >= m; once-satisfied
    W >= m until that has been true once, then nothing is asked; until-scheduled W + B >= m until that has been true
    once, then nothing is asked while B > 0: who was evicted as a whole starts as a whole again, W + S >= m.

    A gang that carries the mark of a plan which was cut off in the middle (a crash, a failed binding) counts what
    that plan has bound, whatever its policy: the quorum was proved when the plan was made, and what is missing is
    repaired.
    """
    counts = record.counts()
    policy = gang.match_policy
    repair = unfinished_plan(record, gang) is not None
    if policy is MatchPolicy.UNTIL_SCHEDULED and gang.once_satisfied and counts.active:
        return Requirement(0)
    done = 0
    if policy in _ONCE and not repair and was_satisfied(record, gang):
        if policy is MatchPolicy.ONCE_SATISFIED or counts.active:
            return Requirement(0)
        done = counts.succeeded
    total = max(0, gang.min_member - done - counted(counts, policy, repair))
    roles = tuple(
        (role, missing)
        for role, least in gang.roles
        if (missing := least - counted(record.counts(role), policy, repair)) > 0
    )
    total = max(total, sum(missing for _, missing in roles))
    subgroups: tuple[int, ...] = ()
    if gang.subgroups:
        subgroups, least = lacking(record, gang, lambda each: counted(each, policy, repair))
        total = max(total, least)
    return Requirement(total, roles, repair and total > 0, subgroups)


def counted(counts: GangCounts, policy: MatchPolicy, repair: bool = False) -> int:
    """The members that already count towards the quorum, before this plan."""
    match policy:
        case MatchPolicy.WAITING_RUNNING_SUCCEEDED:
            return counts.active + counts.succeeded
        case MatchPolicy.WAITING_AND_RUNNING:
            return counts.active
        case MatchPolicy.UNTIL_SCHEDULED:
            return counts.active + (counts.succeeded if repair else 0)
    # Of the two policies that look at waiting members only, bound ones count just while their plan is unfinished;
    # a member that has finished meanwhile was part of it all the same.
    if repair:
        return counts.active + counts.succeeded
    return counts.placed


def was_satisfied(record: GangRecord, gang: Gang) -> bool:
    """Whether a once-satisfied gang has had its quorum.

    The persisted flag says so, or a member that carries the mark of a plan (the plan placed the whole quorum), or
    enough members on nodes. One bound member alone, of unknown origin, proves nothing.
    """
    if gang.once_satisfied or any(mark.concerns(gang.uid) for mark in record.marks):
        return True
    counts = record.counts()
    return counts.bound + counts.running + counts.succeeded >= gang.min_member


def unfinished_plan(record: GangRecord, gang: Gang) -> PlanMark | None:
    """The newest plan of this gang of which some members are bound and some are still pending.

    A plan that was seen complete is over: who comes to replace a lost member is a new question for the match
    policy. After a restart only times are left to tell: a pending member counts as left over if it existed when
    the plan was made (creation times are whole seconds, like the mark's).
    """
    marks = [mark for mark in record.marks if mark.concerns(gang.uid)]
    if not marks:
        return None
    newest = max(marks, key=lambda mark: (mark.time, mark.plan))
    # A member whose binding failed is on its way again (and again): until it is confirmed the plan is not done.
    again = record.failures > 0 and record.confirmed(newest) < newest.size
    if record.marks[newest] >= newest.size and not again:
        return None
    finished = record.finished
    if finished is not None and finished.concerns(gang.uid) and finished.time >= newest.time:
        return None
    left_over = any(member.pod.created <= newest.time for member in record.pending.values())
    if gang.min_member <= 1 or not (left_over or (again and record.count(MemberState.PLACED))):
        return None
    return newest


def new_mark(gang: Gang, cause: str, size: int, time: int) -> PlanMark:
    """The mark of a plan for the gang. Kubernetes' own groups are told from namesakes by their uid."""
    return PlanMark.of(cause, size, time, gang.uid if gang.dialect is Dialect.NATIVE else "")
