"""Verdicts: why a gang or a pod is held, in one sentence, with counts and the smallest change that would help."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import Gang, MatchPolicy
from phalanx.model.pod import MemberState
from phalanx.model.text.decoding import quoted
from phalanx.model.text.duration import format_moment
from phalanx.model.text.quantity import format_quantity
from phalanx.model.verdict import Verdict
from phalanx.scheduling.diagnosis.shortage import Gap, NotAdmitted, Shortage
from phalanx.scheduling.gangs.quorum import QuorumRequirement, counted
from phalanx.scheduling.gangs.subgroups import Subgroup, startable
from phalanx.scheduling.quota.limits import Blocked, BlockedByFifo, OverQuota, VictimsTerminating

NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
NOT_ENOUGH_RESOURCES = "NotEnoughResources"
POD_GROUP_NOT_FOUND = "PodGroupNotFound"
NO_ELIGIBLE_NODE = "NoEligibleNode"
NOT_CONSIDERED = "NotConsidered"
UNSUPPORTED = "UnsupportedField"
UNREADABLE = "UnreadablePod"
PREREQUISITE_MISSING = "PrerequisiteMissing"
WAITING_FOR_GANG_GROUP = "WaitingForGangGroup"
AWAITING_ADMISSION = "AwaitingAdmission"
QUOTA_EXCEEDED = "QuotaExceeded"
WAITING_FOR_LEAVERS = "WaitingForEvictedPods"
BEHIND_IN_QUEUE = "BehindInQueue"
SCALE_UP_DELAYED = "ScaleUpDelayed"
PLANNING_FAILED = "PlanningFailed"

SCALE_UP_DELAY_KEY = "phalanx.dev/scale-up-delay"
_NODES_NAMED = 5


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
    aside = _aside(gang, spec, need)
    for role, least in need.roles:
        there = gang.count(MemberState.PENDING, role)
        if there < least:
            minimum = dict(spec.roles)[role]
            held = minimum - least + there
            return Verdict(
                NOT_ENOUGH_MEMBERS,
                f"gang {gang.title} has {held} of the {minimum} {role} members that it needs{aside}",
                needed=minimum,
                members=gang.counts().present,
                change=f"create {least - there} more pod(s) of role {role}"
                + (f", or lower minTaskMember.{role} to {held}" if held else ""),
            )
    expected = len(gang.starting_placeholders)
    short = need.total - gang.count(MemberState.PENDING) - expected
    if short <= 0:
        return _subgroups_missing(gang, spec, need) if spec.subgroups else None
    goal = need.total + need.done - expected
    held = goal - short
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
    # A problem reads "what is wrong; what to do instead".
    wrong, _, remedy = spec.problem.message.partition("; ")
    declared = spec.problem.code != POD_GROUP_NOT_FOUND
    return Verdict(
        spec.problem.code,
        wrong if wrong.startswith("waiting for ") else f"gang {gang.title} is held: {wrong}",
        needed=spec.min_member if declared else 0,
        members=gang.counts().present,
        change=remedy or "correct what is named",
        fault=spec.problem.code.endswith("Mismatch"),
    )


def victims_terminating(who: str, facts: VictimsTerminating) -> Verdict:
    """`who` is the gang or the pod, as people call it."""
    shown = ", ".join(facts.nodes[:_NODES_NAMED])
    more = f" and {len(facts.nodes) - _NODES_NAMED} more" if len(facts.nodes) > _NODES_NAMED else ""
    return Verdict(
        WAITING_FOR_LEAVERS,
        f"{who} waits for {facts.victims} pod(s) to leave; room for {facts.held} pod(s) is held on {shown}{more}",
        needed=facts.held,
        placeable=facts.held,
        change="wait until they have left; a long grace delays it, and finalizers or a node whose kubelet does not "
        "answer keep them",
    )


def waiting_for_gang_group(gang: str, mate: str, why: str, remedy: str = "") -> Verdict:
    """Return the verdict on the gang titled `gang`; `why` and `remedy` are those of the mate."""
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"gang {gang} waits for gang {mate} of its gang group: {why}",
        change=f"help gang {mate} first: {remedy}" if remedy else f"create gang {mate}",
    )


def unrequited(gang: str, mate: str, by: str) -> Verdict:
    """`by` names the mate, which does not name it."""
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"gang {gang} waits for gang {mate}, which does not name gang {by} in its own gang groups",
        change=f"state the same gang groups on {mate} as on {by}, or take {mate} out of those of {by}",
    )


def too_many_tied(gang: str, most: int) -> Verdict:
    return Verdict(
        WAITING_FOR_GANG_GROUP,
        f"the gang groups of gang {gang} and of those that it names tie more than {most} gangs together",
        change=f"name at most {most} gangs that start together",
    )


def awaiting_admission(gang: GangRecord, spec: Gang, facts: NotAdmitted) -> Verdict:
    wanted = _amounts(spec.min_resources or ())
    announced = f"its minResources ({wanted}) exceed what may be promised now"
    message = facts.message or (announced if wanted else "the policy lets nothing in now")
    return Verdict(
        AWAITING_ADMISSION,
        f"gang {gang.title} waits to be admitted: {message}",
        unschedulable=False,
        needed=spec.min_member,
        members=gang.counts().present,
        change=facts.change or f"wait for other groups to finish{', or lower minResources' if wanted else ''}",
    )


def not_considered(what: str, actions: tuple[str, ...]) -> Verdict:
    """For what no action of the policy ever looks at."""
    return Verdict(
        NOT_CONSIDERED,
        f"no action of the policy ({', '.join(actions)}) places {what}",
        unschedulable=False,
        change="name the actions allocate and backfill in the policy",
    )


def unreadable(record: PodRecord) -> Verdict:
    return Verdict(
        UNREADABLE, f"pod {record.pod.key} cannot be scheduled: {record.pod.problem}", change="correct the pod"
    )


def gap(facts: Gap, gang: GangRecord, spec: Gang) -> Verdict:
    text = _amounts(facts.amounts)
    return Verdict(
        NOT_ENOUGH_RESOURCES,
        f"gang {gang.title} asks for minResources that the cluster lacks: {text} too little is free",
        needed=spec.min_member,
        members=gang.counts().present,
        change=f"free or add {text}, or lower minResources",
    )


def no_room_for_pod(facts: Shortage) -> Verdict:
    """The verdict on a pod that needs no other: one on its own, or a member above its gang's minimum."""
    if facts.refusal:
        code, message = UNSUPPORTED, f"the pod asks for {facts.refusal}"
    elif facts.unready:
        code, message = PREREQUISITE_MISSING, f"0/{facts.total} nodes are available: {facts.unready}."
    else:
        where = f" in {facts.where}" if facts.where else ""
        code, message = _code(facts), f"0/{facts.total} nodes{where} are available: {_reasons(facts)}."
    return Verdict(code, message, needed=1, members=1, nodes=facts.nodes, change=facts.change)


def no_room_for_gang(facts: Shortage, gang: GangRecord) -> Verdict:
    waiting = (*gang.pending.values(), *gang.starting_placeholders)
    members = (m for m in waiting if m.pod_class is facts.pod_class and not m.pod.problem)
    example = min(members, key=lambda member: member.order).pod.name
    inside = f" in {facts.where}" if facts.where else ""
    part = f"subgroup {facts.part} of " if facts.part else ""
    who = f"{part}gang {gang.title}"
    head = f"{facts.placed} of the {facts.need} members that {who} needs{_to_come(gang)} fit{inside}; "
    if facts.refusal:
        code, message = UNSUPPORTED, f"pod {example} asks for {facts.refusal}"
    elif facts.unready:
        code = PREREQUISITE_MISSING
        message = f"0/{facts.total} nodes are available for {example}: {facts.unready}."
    else:
        there = " there" if facts.where else ""
        message = f"0/{facts.total} nodes{there} are available for {example}: {_reasons(facts)}."
        code = _code(facts)
    return Verdict(
        code,
        head + message,
        needed=facts.need,
        placeable=facts.placed,
        members=gang.counts().present,
        nodes=facts.nodes,
        change=facts.change,
    )


def _to_come(gang: GangRecord) -> str:
    """How many of the members are not there yet, in brackets."""
    count = len(gang.starting_placeholders)
    return f" ({count} of them come once it runs)" if count else ""


def over_limit_for_pod(facts: OverQuota) -> Verdict:
    message, change = _over(facts)
    return Verdict(QUOTA_EXCEEDED, message, False, needed=1, members=1, change=change)


def over_limit_for_gang(facts: OverQuota, gang: GangRecord) -> Verdict:
    message, change = _over(facts)
    if facts.beyond is not None:
        return _beyond_all_nodes(facts, facts.beyond, gang, message)
    return Verdict(
        QUOTA_EXCEEDED,
        f"{facts.placed} of the {facts.need} members that gang {gang.title} needs{_to_come(gang)} are allowed; "
        f"{message}",
        unschedulable=False,
        needed=facts.need,
        placeable=facts.placed,
        members=gang.counts().present,
        change=change,
    )


def _beyond_all_nodes(facts: OverQuota, beyond: tuple[str, int, int], gang: GangRecord, besides: str) -> Verdict:
    """For a gang that no limit, were it ever so high, would help: it needs more than there is."""
    name, needed, offered = beyond
    change = f"add nodes that offer at least {format_quantity(needed - offered, name)} {name} more"
    if name == facts.resource and 0 < facts.limit < offered and not facts.computed:
        change = f"ask for at most {format_quantity(facts.limit, name)} {name}"
    return Verdict(
        NOT_ENOUGH_RESOURCES,
        f"gang {gang.title} needs {format_quantity(needed, name)} {name}{_to_come(gang)}, and all nodes together "
        f"offer {format_quantity(offered, name)}; besides, {besides}",
        # Of a limit that somebody has stated more nodes are no way out.
        unschedulable=facts.computed,
        needed=facts.need,
        placeable=facts.placed,
        members=gang.counts().present,
        change=change,
    )


def held_account(what: str, facts: Blocked) -> Verdict:
    """Nothing new may be charged to who pays for the unit."""
    return Verdict(facts.code, f"{what} cannot start: {facts.message}", unschedulable=False, change=facts.change)


def scale_up_delayed(gang: str, running: int, until: int) -> Verdict:
    return Verdict(
        SCALE_UP_DELAYED,
        f"gang {gang} runs with {running} members, has what it needs, and grows again at {format_moment(until)}",
        unschedulable=False,
        change=f"wait, or lower its {SCALE_UP_DELAY_KEY}",
    )


def behind(what: str, facts: BlockedByFifo) -> Verdict:
    return Verdict(
        BEHIND_IN_QUEUE,
        f"{what} waits behind {facts.head} in {facts.queue}, which keeps its order (dequeueStrategy fifo)",
        unschedulable=False,
    )


def _over(facts: OverQuota) -> tuple[str, str]:
    """(sentence, smallest change)."""
    name, label = facts.resource, facts.account.label
    used, wanted, limit = (format_quantity(each, name) for each in (facts.used, facts.wanted, facts.limit))
    kept = (
        f" and {format_quantity(facts.kept, name)} kept for others that start before it would end"
        if facts.kept
        else ""
    )
    message = f"{label}: {used} {name} in use{kept}, {facts.word} {limit}; {wanted} more would exceed it"
    over, ways = facts.used + facts.kept + facts.wanted - facts.limit, []
    if over <= facts.used:
        ways.append(f"free {format_quantity(over, name)} {name} charged to {label}")
    if facts.change:
        ways.append(f"{facts.change} to {format_quantity(facts.used + facts.wanted, name)}")
    if facts.hint:
        ways.append(facts.hint)
    if facts.kept:
        ways.append("state a limit of its run time by which it ends before they start")
    if not ways and facts.computed:
        ways.append("wait until others ask for less, or add nodes")
    if not ways and facts.limit > 0:
        ways.append(f"ask for at most {limit} {name}")
    return message, ", or ".join(ways)


def _code(facts: Shortage) -> str:
    return NOT_ENOUGH_RESOURCES if facts.eligible else NO_ELIGIBLE_NODE


def _reasons(facts: Shortage) -> str:
    return ", ".join(f"{part.count} {part.reason}" for part in facts.nodes) or "there are no nodes"


def _amounts(amounts: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{format_quantity(amount, name)} {name}" for name, amount in amounts)


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
