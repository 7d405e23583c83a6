"""Verdicts on gangs and pods that free resources do not help: message with counts, and the smallest change."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import Gang, MatchPolicy, share_of
from phalanx.model.pod import MemberState
from phalanx.model.text.counts import count_of
from phalanx.model.text.decoding import quoted
from phalanx.model.text.duration import format_moment
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS, NamedObject, Objects, Verdict, gang_object
from phalanx.scheduling.gangs.quorum import QuorumRequirement, counted, succeeded_of_run
from phalanx.scheduling.gangs.subgroups import Subgroup, startable
from phalanx.scheduling.refusals.refusal import WAITING_FOR_GANG_GROUP, pod_object

POD_GROUP_NOT_FOUND = "PodGroupNotFound"
NOT_CONSIDERED = "NotConsidered"
UNREADABLE = "UnreadablePod"
SCALE_UP_DELAYED = "ScaleUpDelayed"
PLANNING_FAILED = "PlanningFailed"

SCALE_UP_DELAY_KEY = "phalanx.dev/scale-up-delay"


def planning_failed(what: str, plugin: str, error: Exception) -> Verdict:
    """Return the verdict on a gang or pod whose planning raised: a fault of the scheduler or of a plugin."""
    where = f" in plugin {plugin}" if plugin else ""
    return Verdict(
        PLANNING_FAILED,
        f"planning {what} failed{where}: {type(error).__name__}: {quoted(str(error))}",
        change="change the object to retry; report the error from the scheduler's log",
    )


def members_missing(gang: GangRecord, spec: Gang, need: QuorumRequirement) -> Verdict | None:
    """Return the verdict on a gang if its existing members cannot meet the quorum, else None."""
    for role, least in need.roles:
        there = gang.count(MemberState.PENDING, role)
        if there < least:
            minimum = dict(spec.roles)[role]
            held, aside = minimum - least + there, _aside(gang, spec, need)
            return Verdict(
                NOT_ENOUGH_MEMBERS,
                f"{share_of(held, minimum)} of role {role} of gang {gang.title} {_exist(minimum)}{aside}",
                needed=minimum,
                members=gang.counts().present,
                change=f"create {count_of(least - there, 'more pod')} of role {role}"
                + (f", or lower minTaskMember.{role} to {held}" if held else "")
                + _policy_hint(gang, spec, least - there, role),
                objects=_only(gang),
            )
    expected = len(gang.starting_placeholders)
    short = need.total - gang.count(MemberState.PENDING) - expected
    if short <= 0:
        return _subgroups_missing(gang, spec, need) if spec.subgroups else None
    goal = need.total + need.done - expected
    held, aside = goal - short, _aside(gang, spec, need)
    message = f"{share_of(held, goal)} of gang {gang.title} {_exist(goal)}{aside}"
    if spec.later:
        message += f"; not counted: {spec.later}"
    if spec.rules.native:
        message = f"waiting for members of PodGroup {gang.key}: have {held} of {goal} pods{aside}"
    lower = f", or lower its minimum to {held}" if held and goal == spec.min_member else ""
    return Verdict(
        NOT_ENOUGH_MEMBERS,
        message,
        needed=goal,
        members=gang.counts().present,
        change=f"{to_count(gang, short)}{lower}{_policy_hint(gang, spec, short)}",
        objects=_only(gang),
    )


def to_count(gang: GangRecord, short: int) -> str:
    """Return the changes that make `short` more members count towards the gang's minimum, first those on existing
    pods."""
    counts = gang.counts()
    gated = min(short, counts.gated)
    other_scheduler = min(short - gated, counts.other_scheduler)
    absent = short - gated - other_scheduler
    ways = (
        (gated, f"remove the scheduling gates of {count_of(gated, 'pod')}"),
        (other_scheduler, f"recreate {count_of(other_scheduler, 'pod')} with the spec.schedulerName of the gang"),
        (absent, f"create {count_of(absent, 'more pod')} of the gang"),
    )
    return " and ".join(way for number, way in ways if number)


def _subgroups_missing(gang: GangRecord, spec: Gang, need: QuorumRequirement) -> Verdict | None:
    """Return the verdict if the gang misses its quorum because subgroups have too few members, else None."""
    able = startable(gang, spec, lambda each: counted(each, spec.match_policy, need.repair))
    for number, more in enumerate(need.subgroups):
        if able.subgroups[number] < more:
            rule, have = spec.subgroups[number], spec.subgroups[number].least - more + able.subgroups[number]
            small = next((part for part in able.small if part.key[0] == number), None)
            missing = small.missing - small.waiting if small is not None else rule.size
            what = f"subgroup {small.title}" if small is not None else f"another subgroup {rule.name}"
            return Verdict(
                NOT_ENOUGH_MEMBERS,
                f"{share_of(have, rule.least, 'required subgroup')} {rule.name} of gang {gang.title} "
                f"{'has' if rule.least == 1 else 'have'} enough pods",
                needed=need.total,
                members=gang.counts().present,
                change=f"create {count_of(missing, 'more pod')} of {what}, or lower minSubGroups to {have}",
                objects=_only(gang),
            )
    return subgroup_too_small(gang, able.small[0]) if able.members < need.total and able.small else None


def subgroup_too_small(gang: GangRecord, part: Subgroup) -> Verdict:
    """Return the verdict on members of a subgroup that has too few pods to start."""
    have, size = part.there + part.waiting, part.rule.size
    return Verdict(
        NOT_ENOUGH_MEMBERS,
        f"{share_of(have, size)} of subgroup {part.title} of gang {gang.title} {_exist(size)}",
        needed=size,
        members=have,
        change=f"create {count_of(size - have, 'more pod')} of the subgroup, or lower its subGroupSize",
        objects=_only(gang),
    )


def unreadable_members(gang: GangRecord, need: QuorumRequirement) -> Verdict | None:
    """Return the verdict if the quorum needs members whose pods cannot be read, else None."""
    broken = gang.pending_facts.unreadable
    if not broken:
        return None
    for role, least in need.roles:
        of_role = [member for member in broken if member.pod.role == role]
        if of_role and gang.count(MemberState.PENDING, role) - len(of_role) < least:
            return unreadable(of_role[0])
    if len(gang.pending) + len(gang.starting_placeholders) - len(broken) < need.total:
        return unreadable(broken[0])
    return None


def held_by_problem(gang: GangRecord, spec: Gang) -> Verdict:
    assert spec.problem is not None
    wrong, remedy = spec.problem.state, spec.problem.remedy
    declared = spec.problem.code != POD_GROUP_NOT_FOUND
    return Verdict(
        spec.problem.code,
        wrong if spec.problem.waits else f"gang {gang.title} cannot start: {wrong}",
        needed=spec.min_member if declared else 0,
        members=gang.counts().present,
        change=remedy or "correct the named field",
        fault=spec.problem.code.endswith("Mismatch"),
        # A problem names only objects and pods of the gang itself.
        objects=_only(gang),
    )


def unrequited(gang: str, mate: str, by: str, objects: Objects = None) -> Verdict:
    """Return the verdict on a gang whose gang group lists `mate`, where `mate` does not list gang `by`."""
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"gang {gang} waits for gang {mate}, whose gang groups do not list gang {by}",
        change=f"list the same gang groups on {mate} and {by}, or remove {mate} from the gang groups of {by}",
        objects=objects,
    )


def too_many_tied(gang: str, most: int, objects: Objects = None) -> Verdict:
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"the gang groups of gang {gang} connect more than {most} gangs",
        change=f"list at most {most} gangs that start together",
        objects=objects,
    )


def not_considered(what: str, actions: tuple[str, ...], about: Objects = None) -> Verdict:
    """Return the verdict on a gang or pod that no action of the policy considers."""
    return Verdict(
        NOT_CONSIDERED,
        f"no action of the policy ({', '.join(actions)}) places {what}",
        unschedulable=False,
        change="add the actions allocate and backfill to the policy",
        objects=about,
    )


def unreadable(record: PodRecord) -> Verdict:
    return Verdict(
        UNREADABLE,
        f"pod {record.pod.key} cannot be scheduled: {record.pod.problem}",
        change="correct the pod",
        objects=(pod_object(record),),
    )


def scale_up_delayed(gang: str, running: int, until: int, objects: Objects = None) -> Verdict:
    return Verdict(
        SCALE_UP_DELAYED,
        f"gang {gang} runs with {count_of(running, 'pod')} and has its minimum; "
        f"it scales up again at {format_moment(until)}",
        unschedulable=False,
        change=f"wait until then, or lower its {SCALE_UP_DELAY_KEY}",
        objects=objects,
    )


def _only(gang: GangRecord) -> tuple[NamedObject, ...]:
    return (gang_object(gang.key),)


def _aside(gang: GangRecord, spec: Gang, need: QuorumRequirement) -> str:
    """Return in brackets the gang's members that do not count, by state, and the match policy if it excludes
    them."""
    counts = gang.counts()
    on_nodes = counts.bound + counts.running
    waiting_only = spec.match_policy in (MatchPolicy.ONLY_WAITING, MatchPolicy.ONCE_SATISFIED)
    parts = [
        f"{count} {word}"
        for count, word in (
            (on_nodes if waiting_only else 0, "on nodes"),
            (counts.gated, "gated"),
            (counts.other_scheduler, "with another schedulerName"),
            (counts.terminating, "terminating"),
            (counts.succeeded - need.succeeded, "succeeded"),
            (counts.failed, "failed"),
        )
        if count
    ]
    policy = f"; match policy {spec.match_policy}" if waiting_only and on_nodes else ""
    return f" (not counted: {', '.join(parts)}{policy})" if parts else ""


def _policy_hint(gang: GangRecord, spec: Gang, short: int, role: str | None = None) -> str:
    """Return the hint to let succeeded members count (policy key `dialects.matchPolicies`), if they are all that is
    missing.

    `role` is the role whose minimum is not met, None for the minimum of the gang.
    """
    setting = spec.rules.match_policy_setting(MatchPolicy.WAITING_RUNNING_SUCCEEDED)
    if spec.match_policy is not MatchPolicy.WAITING_AND_RUNNING or not setting:
        return ""
    by_role = succeeded_of_run(gang)
    if (sum(by_role.values()) if role is None else by_role.get(role, 0)) < short:
        return ""
    return f", or set {setting} in the policy, so that succeeded members count"


def _exist(number: int) -> str:
    return "exists" if number == 1 else "exist"
