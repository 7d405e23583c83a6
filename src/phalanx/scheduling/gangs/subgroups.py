"""Subgroups of a gang that start as a whole: their members, and the number that must start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import Gang, GangCounts
from phalanx.model.pod import MemberState
from phalanx.model.topology import SubgroupRule

PartKey = tuple[int, tuple[str, ...]]
"""(position of the rule in the gang's list, values that distinguish the rule's subgroups)."""


class Subgroup:
    """One subgroup of a gang with its members; `there` of them count towards its size already."""

    __slots__ = ("key", "members", "rule", "there")

    def __init__(self, key: PartKey, rule: SubgroupRule) -> None:
        self.key = key
        self.rule = rule
        self.members: list[PodRecord] = []
        self.there = 0

    @property
    def title(self) -> str:
        """Name of the subgroup for users: `workers/0`."""
        return "/".join((self.rule.name, *self.key[1]))

    @property
    def missing(self) -> int:
        """Number of further members that must start to complete the subgroup."""
        return max(0, self.rule.size - self.there)

    @property
    def waiting(self) -> int:
        return sum(1 for member in self.members if member.state is MemberState.PENDING and not member.pod.problem)

    @property
    def can_start(self) -> bool:
        return 0 < self.missing <= self.waiting


def part_key(rules: tuple[SubgroupRule, ...], record: PodRecord) -> PartKey | None:
    """Return the subgroup of a member by the first rule that matches it; None without a rule."""
    labels = dict(record.pod.labels)
    for number, rule in enumerate(rules):
        values = rule.part(labels)
        if values is not None:
            return number, values
    return None


def subgroups_of(
    gang: Gang, members: Iterable[PodRecord], count: Callable[[GangCounts], int]
) -> dict[PartKey, Subgroup]:
    """Return the subgroups of a gang by key; `count` returns the members that count by the gang's match policy."""
    subgroups: dict[PartKey, Subgroup] = {}
    for member in members:
        key = part_key(gang.subgroups, member)
        if key is not None:
            if key not in subgroups:
                subgroups[key] = Subgroup(key, gang.subgroups[key[0]])
            subgroups[key].members.append(member)
    for part in subgroups.values():
        counts = [0] * len(MemberState)
        for member in part.members:
            counts[member.state] += 1
        part.there = count(GangCounts(*counts))
    return dict(sorted(subgroups.items()))


class Startable(msgspec.Struct, frozen=True):
    """Parts of a gang that can take part in a plan.

    `members` is their number, `subgroups` the number of incomplete subgroups per rule that can start. `small` are
    subgroups with too few members, with the fewest missing ones first.
    """

    members: int
    subgroups: tuple[int, ...]
    small: tuple[Subgroup, ...]


def startable(record: GangRecord, gang: Gang, count: Callable[[GangCounts], int]) -> Startable:
    parts = list(subgroups_of(gang, record.members.values(), count).values())
    apart = {member.pod.uid for part in parts if part.missing > part.waiting for member in part.members}
    able = [m for m in record.pending.values() if m.pod.uid not in apart and not m.pod.problem]
    ready = [sum(1 for p in parts if p.key[0] == number and p.can_start) for number in range(len(gang.subgroups))]
    small = [part for part in parts if part.missing > part.waiting]
    small.sort(key=lambda part: (part.missing - part.waiting, part.key))
    return Startable(len(able), tuple(ready), tuple(small))


def lacking(record: GangRecord, gang: Gang, count: Callable[[GangCounts], int]) -> tuple[tuple[int, ...], int]:
    """Return (number of further subgroups that must start per rule, minimum number of their members).

    Subgroups that do not exist yet count with their full size.
    """
    parts = subgroups_of(gang, record.members.values(), count).values()
    wanted, members = [], 0
    for number, rule in enumerate(gang.subgroups):
        own = [part for part in parts if part.key[0] == number]
        more = max(0, rule.least - sum(1 for part in own if not part.missing))
        sizes = sorted(part.missing for part in own if part.can_start)[:more]
        members += sum(sizes) + rule.size * (more - len(sizes))
        wanted.append(more)
    return tuple(wanted), members
