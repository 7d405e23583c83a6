"""Number of members that a gang needs placed now: the match policies of docs/rules/coscheduling.md, 1.5."""

from __future__ import annotations

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import Gang, GangCounts, MatchPolicy
from phalanx.model.pod import MemberState, PlanMark
from phalanx.scheduling.gangs.subgroups import lacking

# Policies that require the minimum once per run.
ONCE = (MatchPolicy.ONCE_SATISFIED, MatchPolicy.UNTIL_SCHEDULED)


class QuorumRequirement(msgspec.Struct, frozen=True):
    """Members that a plan must place to reach the gang's quorum.

    `total` members, of which `roles[role]` of each named role. (0, {}): the quorum is reached, all pending members
    are surplus. `repair`: the gang is half bound by an earlier plan. `subgroups`: number of further subgroups that
    must start, per rule of the gang (() without rules). `done` members count already, of which `succeeded` have
    succeeded.
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
    """Return the members to place now, by the gang's match policy.

    W = members of this plan, B = placed, bound or running and not terminating, S = succeeded, m = the minimum:
    only-waiting W >= m; waiting-and-running W + B >= m; waiting-running-succeed W + B + S >= m; once-satisfied W +
    S' >= m until reached once; until-scheduled W + B + S' >= m. After once-satisfied and until-scheduled are
    reached, nothing is required while B > 0. A run is over when no member is on a node; later members start as a
    whole again. S' are succeeded members with the same controller as waiting ones, because the controller does not
    replace them.

    If a plan of the gang was interrupted (crash, failed binding), the members that it bound count under every
    policy. Their quorum was proved when the plan was made; the missing members are a repair.
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
        for role, minimum in gang.roles
        if (missing := minimum - succeeded.get(role, 0) - on_nodes(record.counts(role), policy, repair)) > 0
    )
    total = max(total, sum(missing for _, missing in roles))
    if total and record.placeholders and (expected := record.starting_placeholders):
        # A starting member is sure of room for the members that it will create, and for those it has created.
        total = max(total, record.count(MemberState.PENDING)) + len(expected)
    subgroups: tuple[int, ...] = ()
    if gang.subgroups:
        subgroups, minimum = lacking(record, gang, lambda counts_of_part: counted(counts_of_part, policy, repair))
        total = max(total, minimum)
    return QuorumRequirement(total, roles, repair and total > 0, subgroups, done, sum(succeeded.values()))


def on_nodes(counts: GangCounts, policy: MatchPolicy, repair: bool = False) -> int:
    """Return the number of members on nodes, or assumed there, that count towards the quorum before this plan."""
    waiting_only = policy in (MatchPolicy.ONLY_WAITING, MatchPolicy.ONCE_SATISFIED)
    # Under policies for waiting members only, bound members count only while their plan is unfinished.
    return counts.assumed if waiting_only and not repair else counts.active


def counted(counts: GangCounts, policy: MatchPolicy, repair: bool = False) -> int:
    """Return the number of members of a subgroup that count towards its size; succeeded members were part of it."""
    succeeded = counts.succeeded if repair or policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED else 0
    return on_nodes(counts, policy, repair) + succeeded


def succeeded_of_run(record: GangRecord) -> dict[str, int]:
    """Return the succeeded members per role that would count under waiting-running-succeed."""
    return _succeeded(record, MatchPolicy.WAITING_RUNNING_SUCCEEDED, None)


def _succeeded(record: GangRecord, policy: MatchPolicy, plan: PlanMark | None) -> dict[str, int]:
    """Return the number of succeeded members that count, per role, without members of an earlier run.

    Members of a plan under repair count. Once-policies count members with the same controller as waiting ones;
    waiting-running-succeed counts all except members of another controller.
    """
    by_role: dict[str, int] = {}
    if not record.count(MemberState.SUCCEEDED):
        return by_role
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
            by_role[member.pod.role] = by_role.get(member.pod.role, 0) + 1
    return by_role


def was_satisfied(record: GangRecord, gang: Gang) -> bool:
    """Return whether the gang has reached its quorum since its last restart.

    It has if enough members were on nodes at once, or if an active member has the mark of a plan. That plan placed
    the whole quorum, or the member joined a gang with its quorum. One bound member without a mark proves nothing.
    """
    if not record.active:
        return False
    return record.peak >= gang.min_member or any(mark.concerns(gang.uid) for mark in record.live_marks())


def unfinished_plan(record: GangRecord, gang: Gang) -> PlanMark | None:
    """Return the newest plan of this gang with some members bound and some still pending; None if there is none.

    A plan that was complete once is over: the match policy decides on replacements of lost members. After a restart
    only times are known: a pending member belongs to the plan if it existed when the plan was made. (Creation times
    are in whole seconds, like the mark's.)
    """
    marks = [mark for mark in record.marks if mark.size > 1 and mark.concerns(gang.uid)]
    if not marks:
        return None
    newest = max(marks, key=lambda mark: (mark.time, mark.plan))
    # A member with a failed binding is bound again, so the plan is open until it is confirmed.
    again = record.failures > 0 and record.confirmed(newest) < newest.size
    if record.marks[newest] >= newest.size and not again:
        return None
    finished = record.finished_plan
    if finished is not None and finished.concerns(gang.uid) and finished.time >= newest.time:
        return None
    if not (newest in record.live_marks() or _has_succeeded(record, newest)):
        return None  # no member of the plan is left, so nothing is half bound
    left_over = any(member.pod.created <= newest.time for member in record.pending.values())
    if gang.min_member <= 1 or not (left_over or (again and record.count(MemberState.ASSUMED))):
        return None
    return newest


def _has_succeeded(record: GangRecord, mark: PlanMark) -> bool:
    return any(member.mark == mark and member.state is MemberState.SUCCEEDED for member in record.members.values())


def new_mark(gang: Gang, cause: str, size: int, time: int) -> PlanMark:
    """Return the mark of a plan for the gang. The uid distinguishes declaring objects of the same name."""
    return PlanMark.of(cause, size, time, gang.uid)


def joining_mark(gang: Gang, cause: str, time: int) -> PlanMark | None:
    """Return the mark of a member that joins a gang with its quorum; None if its policy does not need one."""
    return new_mark(gang, cause, 1, time) if gang.match_policy in ONCE and gang.min_member > 1 else None
