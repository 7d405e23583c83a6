"""Quorums of gangs at evictions: the number of members that each can lose, and the gangs that are disrupted
together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import Gang, GangCounts, GangKey, MatchPolicy
from phalanx.model.pod import ACTIVE, CAN_LEAVE, MemberState
from phalanx.scheduling.gangs.gang_groups import gang_group_of_gangs
from phalanx.scheduling.gangs.subgroups import PartKey, part_key, subgroups_of


def gang_group_of(
    gang: GangRecord, gangs: Mapping[GangKey, GangRecord], composites: Composites
) -> list[GangRecord]:
    """Return the gangs, sorted by key, that must be satisfied or are disrupted together with this one, itself
    included."""
    together = composites.tied(gang)
    if together:
        return together
    gang_group = gang_group_of_gangs(gang, gangs) or {gang.key: gang}
    return [gang_group[key] for key in sorted(gang_group)]


def disrupted_as_a_unit(gang: GangRecord, composites: Composites) -> bool:
    """Return whether the members are only disrupted together, by the gang's own setting or a composite's above
    it."""
    return gang.spec is not None and (gang.spec.unit or any(composite.unit for composite in composites.above(gang)))


def dispensable_members(gang: GangRecord, composites: Composites) -> tuple[int, Counter[str]]:
    """Return (number of members that the gang can lose, the same by role with a minimum).

    The first number is below 0 where the quorum is already lost. Subgroups are not counted (`SubgroupQuorum`).
    """
    spec = gang.spec
    if spec is None or disrupted_as_a_unit(gang, composites):
        return 0, Counter()
    held = _held(gang)
    free = held - spec.min_member
    if held == 1 and any_member_suffices(spec):
        free = 1  # a gang of a single pod is treated as a pod on its own
    roles = Counter({role: _held(gang, role) - least for role, least in spec.roles})
    short = any(surplus < 0 for surplus in roles.values()) or not SubgroupQuorum(gang, spec).holds
    return (min(free, -1) if short else free), roles


def is_leader(record: PodRecord) -> bool:
    """Return whether the member is evicted last: it leads by its role, or has rank 0, while other members are
    active."""
    pod, gang = record.pod, record.gang
    if gang is None or not (pod.leads or pod.index == 0) or gang.active < 2:
        return False
    active = (member for member in gang.members.values() if member.state in ACTIVE)
    return min(active, key=lambda member: (not member.pod.leads, *member.order), default=None) is record


def any_member_suffices(spec: Gang) -> bool:
    """Return whether any single member is a quorum: lost members of such a gang can restart alone."""
    return spec.min_member <= 1 and not (spec.roles or spec.subgroups) and len(spec.gang_group) <= 1


def holds_quorum(gang: GangRecord) -> bool:
    """Return whether the gang has a quorum that an eviction could break."""
    spec = gang.spec
    if spec is None:
        return False
    roles = all(_held(gang, role) >= least for role, least in spec.roles)
    return _held(gang) >= spec.min_member and roles and _held(gang) > 0 and SubgroupQuorum(gang, spec).holds


class SubgroupQuorum:
    """Number of members that each subgroup can lose, and of subgroups by rule that the gang can lose.

    `holds` states whether the gang has as many complete subgroups as it needs.
    """

    __slots__ = ("_more", "_rules", "_slack", "holds")

    def __init__(self, gang: GangRecord, spec: Gang) -> None:
        self._rules = spec.subgroups
        self._slack: dict[PartKey, int] = {}
        self._more: list[int] = []
        self.holds = True
        if not spec.subgroups:
            return
        parts = subgroups_of(spec, gang.members.values(), lambda counts: _counted(spec, counts))
        self._slack = {key: part.there - part.rule.size for key, part in parts.items() if not part.missing}
        whole = Counter(number for number, _ in self._slack)
        self._more = [whole[number] - rule.least for number, rule in enumerate(spec.subgroups)]
        self.holds = min(self._more) >= 0

    def subgroup_of(self, record: PodRecord) -> PartKey | None:
        """Return the complete subgroup of a member; None if it is in none."""
        key = part_key(self._rules, record) if self._rules else None
        return key if key in self._slack else None

    def is_exact(self, record: PodRecord) -> bool:
        """Return whether the member's subgroup is complete and has no surplus member."""
        key = self.subgroup_of(record)
        return key is not None and self._slack[key] == 0

    def can_lose(self, record: PodRecord, gone: Mapping[Any, int]) -> bool:
        """Return whether enough subgroups stay complete without a member.

        `gone` counts lost members by subgroup; its other keys are ignored.
        """
        key = self.subgroup_of(record)
        if key is None or gone.get(key, 0) != self._slack[key]:
            return True  # the subgroup stays complete, or is already broken
        broken = sum(
            1
            for other, count in gone.items()
            if isinstance(other, tuple) and other[0] == key[0] and count > self._slack.get(other, count)
        )
        return broken < self._more[key[0]]


def _held(gang: GangRecord, role: str | None = None) -> int:
    """Return the number of members that count: active ones, and succeeded ones if the match policy counts them."""
    assert gang.spec is not None
    return _counted(gang.spec, gang.counts(role))


def _counted(spec: Gang, counts: GangCounts) -> int:
    done = spec.match_policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED
    return counts.active + (counts.succeeded if done else 0)


class MinAvailableCheck:
    """Count of the members that one decision evicts, against the needs of their gangs.

    A gang keeps its minimum, the minimum of each role, and its own disruption budget. A gang that is disrupted as a
    unit loses no single member. A refusal continues "it ".
    """

    def __init__(self, composites: Composites) -> None:
        self._composites = composites
        self._gone: dict[GangRecord, dict[str, PodRecord]] = {}

    def try_remove(self, record: PodRecord) -> str | None:
        """Count a member as evicted and return None; or return the reason why its gang needs it and count
        nothing."""
        gang = record.gang
        if gang is None:
            return None
        spec = gang.spec
        if spec is None or spec.problem is not None:
            return "belongs to a gang with an unknown minimum"
        gone = self._evicted_of(gang)
        objection = _needed(gang, spec, record, gone, self._composites) or _over_budget(gang, spec, len(gone) + 1)
        if objection is None:
            gone[record.pod.uid] = record
        return objection

    def try_remove_all(self, members: list[PodRecord]) -> str | None:
        """Count whole gangs as evicted and return None; or return the reason of a gang's own disruption budget
        against it."""
        by_gang: dict[GangRecord, list[PodRecord]] = {}
        for member in members:
            if member.gang is not None:
                by_gang.setdefault(member.gang, []).append(member)
        for gang, leaving in by_gang.items():
            spec, count = gang.spec, len({*self._evicted_of(gang), *(member.pod.uid for member in leaving)})
            objection = _over_budget(gang, spec, count) if spec is not None else None
            if objection is not None:
                return objection
        for gang, leaving in by_gang.items():
            self._gone[gang].update((member.pod.uid, member) for member in leaving)
        return None

    def restore(self, record: PodRecord) -> None:
        """Uncount a member."""
        if record.gang is not None:
            self._gone.get(record.gang, {}).pop(record.pod.uid, None)

    def _evicted_of(self, gang: GangRecord) -> dict[str, PodRecord]:
        """Return the counted members that are not terminating yet: the cluster state already counts the terminating
        ones."""
        counted = self._gone.get(gang, {})
        evicted = self._gone[gang] = {uid: record for uid, record in counted.items() if record.state in CAN_LEAVE}
        return evicted


def whole_gang_of(record: PodRecord, state: ClusterState) -> list[PodRecord] | str:
    """Return all pods that are evicted with a pod's whole gang and its gang group, or the reason against it."""
    if record.gang is None:
        return [record]
    gangs = gang_group_of(record.gang, state.gangs, state.gangs.composites)
    members = [member for gang in gangs for member in gang.members.values()]
    if any(member.state is MemberState.ASSUMED for member in members):
        return "belongs to a gang of which a member is on its way to a node"
    return [member for member in members if member.state in CAN_LEAVE]


def _needed(
    gang: GangRecord, spec: Gang, record: PodRecord, gone: Mapping[str, PodRecord], composites: Composites
) -> str | None:
    if (spec.unit and len(gang.members) > 1) or composites.tied(gang):
        return "belongs to a gang that is only disrupted as a whole"
    if is_leader(record):
        return "is the leader of its gang"
    if any_member_suffices(spec) and not disrupted_as_a_unit(gang, composites):
        return None
    free, roles = dispensable_members(gang, composites)
    if free - len(gone) <= 0:
        return f"is one of the {spec.min_member} required members of its gang"
    role = record.pod.role
    same_role = sum(1 for evicted_member in gone.values() if evicted_member.pod.role == role)
    if role in roles and roles[role] - same_role <= 0:
        return f"is one of the {dict(spec.roles)[role]} required members of role {role} of its gang"
    subquorum = SubgroupQuorum(gang, spec)
    if not subquorum.can_lose(
        record, Counter(subquorum.subgroup_of(evicted_member) for evicted_member in gone.values())
    ):
        return "belongs to a required subgroup of its gang"
    return None


def _over_budget(gang: GangRecord, spec: Gang, leaving: int) -> str | None:
    """Return the reason of Volcano's job disruption budget (plugins/tdm) against it.

    Percentages are of all members.
    """
    total, running = len(gang.members), gang.count(MemberState.RUNNING)
    if spec.min_available is not None:
        least = spec.min_available.of(total)
        if running - leaving < least:
            return f"belongs to a gang that requires {least} running members and has {running}"
    if spec.max_unavailable is not None:
        most = spec.max_unavailable.of(total)
        finished = gang.count(MemberState.SUCCEEDED) + gang.count(MemberState.FAILED)
        missing = total - finished - running
        if missing + leaving > most:
            return f"belongs to a gang that permits {most} missing members and has {missing}"
    return None
