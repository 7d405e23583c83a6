"""The parts of a gang that start whole: who is in which, and how many more must start."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import Gang, GangCounts
from phalanx.model.pod import MemberState
from phalanx.model.topology import SubgroupRule

PartKey = tuple[int, tuple[str, ...]]
"""(the place of its rule in the gang's list, the values that tell it from the rule's other subgroups)."""


class Subgroup:
    """One part with its members; `there` of them count towards its size already."""

    __slots__ = ("key", "members", "rule", "there")

    def __init__(self, key: PartKey, rule: SubgroupRule) -> None:
        self.key = key
        self.rule = rule
        self.members: list[PodRecord] = []
        self.there = 0

    @property
    def title(self) -> str:
        """How people call it: `workers/0`."""
        return "/".join((self.rule.name, *self.key[1]))

    @property
    def missing(self) -> int:
        """How many members have to start for it to be whole."""
        return max(0, self.rule.size - self.there)

    @property
    def waiting(self) -> int:
        return sum(1 for member in self.members if member.state is MemberState.PENDING and not member.pod.problem)

    @property
    def can_start(self) -> bool:
        return 0 < self.missing <= self.waiting


def part_key(rules: tuple[SubgroupRule, ...], record: PodRecord) -> PartKey | None:
    """The subgroup of a member: by the first rule that speaks of it."""
    labels = dict(record.pod.labels)
    for number, rule in enumerate(rules):
        values = rule.part(labels)
        if values is not None:
            return number, values
    return None


def subgroups_of(
    gang: Gang, members: Iterable[PodRecord], count: Callable[[GangCounts], int]
) -> dict[PartKey, Subgroup]:
    """The subgroups of a gang, by key; `count` tells how many members count by the gang's match policy."""
    found: dict[PartKey, Subgroup] = {}
    for member in members:
        key = part_key(gang.subgroups, member)
        if key is not None:
            if key not in found:
                found[key] = Subgroup(key, gang.subgroups[key[0]])
            found[key].members.append(member)
    for part in found.values():
        counts = [0] * len(MemberState)
        for member in part.members:
            counts[member.state] += 1
        part.there = count(GangCounts(*counts))
    return dict(sorted(found.items()))


class Startable(msgspec.Struct, frozen=True):
    """What of a gang may take part in a plan: how many members in all, how many subgroups of each rule that are not
    whole yet; and those that cannot start as they have too few members, first those that lack the fewest."""

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
    """(per rule how many more of its subgroups must start, how many members that takes at least).

    Where fewer exist that could start, those that do not exist count with their full size.
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
