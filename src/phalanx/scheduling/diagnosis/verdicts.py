"""Verdicts on units that no room helps, in one sentence, with counts and the smallest change that would help."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import Gang, MatchPolicy
from phalanx.model.pod import MemberState
from phalanx.model.text.decoding import quoted
from phalanx.model.text.duration import format_moment
from phalanx.model.verdict import NOT_ENOUGH_MEMBERS, NamedObject, Objects, Verdict, gang_object
from phalanx.scheduling.gangs.quorum import QuorumRequirement, counted
from phalanx.scheduling.gangs.subgroups import Subgroup, startable
from phalanx.scheduling.refusals.refusal import WAITING_FOR_GANG_GROUP, pod_object

POD_GROUP_NOT_FOUND = "PodGroupNotFound"
NOT_CONSIDERED = "NotConsidered"
UNREADABLE = "UnreadablePod"
SCALE_UP_DELAYED = "ScaleUpDelayed"
PLANNING_FAILED = "PlanningFailed"

SCALE_UP_DELAY_KEY = "phalanx.dev/scale-up-delay"


def planning_failed(what: str, plugin: str, error: Exception) -> Verdict:
    """Something raised: a fault of ours, or of a plugin."""
    where = f" in plugin {plugin}" if plugin else ""
    return Verdict(
        PLANNING_FAILED,
        f"{what} is set aside because planning it failed{where}: {type(error).__name__}: {quoted(str(error))}",
        change="change it, and it is tried again; report what the scheduler's log says",
    )


def members_missing(gang: GangRecord, spec: Gang, need: QuorumRequirement) -> Verdict | None:
    """A verdict if the quorum cannot be met by the members that exist, else None."""
    for role, least in need.roles:
        there = gang.count(MemberState.PENDING, role)
        if there < least:
            minimum = dict(spec.roles)[role]
            held, aside = minimum - least + there, _aside(gang, spec, need)
            return Verdict(
                NOT_ENOUGH_MEMBERS,
                f"gang {gang.title} has {held} of the {minimum} {role} members that it needs{aside}",
                needed=minimum,
                members=gang.counts().present,
                change=f"create {least - there} more pod(s) of role {role}"
                + (f", or lower minTaskMember.{role} to {held}" if held else ""),
                objects=_only(gang),
            )
    expected = len(gang.starting_placeholders)
    short = need.total - gang.count(MemberState.PENDING) - expected
    if short <= 0:
        return _subgroups_missing(gang, spec, need) if spec.subgroups else None
    goal = need.total + need.done - expected
    held, aside = goal - short, _aside(gang, spec, need)
    message = f"gang {gang.title} has {held} of the {goal} members that it needs{aside}"
    if spec.later:
        message += f"; {spec.later}, so they are not counted"
    if spec.rules.native:
        message = f"waiting for members of PodGroup {gang.key}: have {held} of {goal} pods{aside}"
    lower = f", or lower its minimum to {held}" if held and goal == spec.min_member else ""
    return Verdict(
        NOT_ENOUGH_MEMBERS,
        message,
        needed=goal,
        members=gang.counts().present,
        change=f"{to_count(gang, short)}{lower}",
        objects=_only(gang),
    )


def to_count(gang: GangRecord, short: int) -> str:
    """What makes so many more members count; those that exist come first."""
    counts = gang.counts()
    gated = min(short, counts.gated)
    other_scheduler = min(short - gated, counts.other_scheduler)
    left = short - gated - other_scheduler
    ways = (
        (gated, f"remove the scheduling gates of {gated} pod(s)"),
        (other_scheduler, f"make {other_scheduler} pod(s) again with this gang's spec.schedulerName"),
        (left, f"create {left} more pod(s) of the gang"),
    )
    return " and ".join(way for number, way in ways if number)


def _subgroups_missing(gang: GangRecord, spec: Gang, need: QuorumRequirement) -> Verdict | None:
    """A verdict if subgroups that have too few members keep the gang from its quorum."""
    able = startable(gang, spec, lambda each: counted(each, spec.match_policy, need.repair))
    for number, more in enumerate(need.subgroups):
        if able.subgroups[number] < more:
            rule, have = spec.subgroups[number], spec.subgroups[number].least - more + able.subgroups[number]
            small = next((part for part in able.small if part.key[0] == number), None)
            missing = small.missing - small.waiting if small is not None else rule.size
            what = f"subgroup {small.title}" if small is not None else f"another subgroup {rule.name}"
            return Verdict(
                NOT_ENOUGH_MEMBERS,
                f"gang {gang.title} has {have} of the {rule.least} subgroups {rule.name} that it needs",
                needed=need.total,
                members=gang.counts().present,
                change=f"create {missing} more pod(s) of {what}, or lower minSubGroups to {have}",
                objects=_only(gang),
            )
    return subgroup_too_small(gang, able.small[0]) if able.members < need.total and able.small else None


def subgroup_too_small(gang: GangRecord, part: Subgroup) -> Verdict:
    """For members of a subgroup that cannot start as it has too few."""
    have, size = part.there + part.waiting, part.rule.size
    return Verdict(
        NOT_ENOUGH_MEMBERS,
        f"subgroup {part.title} of gang {gang.title} has {have} of the {size} members that it needs to start",
        needed=size,
        members=have,
        change=f"create {size - have} more pod(s) of the subgroup, or lower its subGroupSize",
        objects=_only(gang),
    )


def unreadable_members(gang: GangRecord, need: QuorumRequirement) -> Verdict | None:
    """A verdict if members that cannot be read leave too few for the quorum, else None."""
    broken = sorted((m for m in gang.pending.values() if m.pod.problem), key=lambda member: member.order)
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
        wrong if spec.problem.waits else f"gang {gang.title} is held: {wrong}",
        needed=spec.min_member if declared else 0,
        members=gang.counts().present,
        change=remedy or "correct what is named",
        fault=spec.problem.code.endswith("Mismatch"),
        # A problem is about what the gang's own objects and pods say.
        objects=_only(gang),
    )


def unrequited(gang: str, mate: str, by: str, objects: Objects = None) -> Verdict:
    """`by` names the mate, which does not name it."""
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"gang {gang} waits for gang {mate}, which does not name gang {by} in its own gang groups",
        change=f"state the same gang groups on {mate} as on {by}, or take {mate} out of those of {by}",
        objects=objects,
    )


def too_many_tied(gang: str, most: int, objects: Objects = None) -> Verdict:
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"the gang groups of gang {gang} and of those that it names tie more than {most} gangs together",
        change=f"name at most {most} gangs that start together",
        objects=objects,
    )


def not_considered(what: str, actions: tuple[str, ...], about: Objects = None) -> Verdict:
    """For what no action of the policy ever looks at."""
    return Verdict(
        NOT_CONSIDERED,
        f"no action of the policy ({', '.join(actions)}) places {what}",
        unschedulable=False,
        change="name the actions allocate and backfill in the policy",
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
        f"gang {gang} runs with {running} members, has what it needs, and grows again at {format_moment(until)}",
        unschedulable=False,
        change=f"wait, or lower its {SCALE_UP_DELAY_KEY}",
        objects=objects,
    )


def _only(gang: GangRecord) -> tuple[NamedObject, ...]:
    return (gang_object(gang.key),)


def _aside(gang: GangRecord, spec: Gang, need: QuorumRequirement) -> str:
    """What keeps existing members from counting."""
    counts = gang.counts()
    on_nodes = counts.bound + counts.running
    waiting_only = spec.match_policy in (MatchPolicy.ONLY_WAITING, MatchPolicy.ONCE_SATISFIED)
    parts = [
        f"{count} {word}"
        for count, word in (
            (on_nodes if waiting_only else 0, "on nodes already"),
            (counts.gated, "gated"),
            (counts.other_scheduler, "of another scheduler"),
            (counts.terminating, "terminating"),
            (counts.succeeded - need.succeeded, "succeeded"),
            (counts.failed, "failed"),
        )
        if count
    ]
    policy = f"; match policy {spec.match_policy}" if waiting_only and on_nodes else ""
    return f" ({', '.join(parts)} do not count{policy})" if parts else ""
