"""What gangs need to stay whole: how many members each can do without, and which gangs stand or fall together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from phalanx.cluster.composites import Composites
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import Gang, GangCounts, GangKey, MatchPolicy
from phalanx.scheduling.gangs.bundles import tied
from phalanx.scheduling.gangs.subgroups import PartKey, part_key, subgroups_of


def bundle_of(gang: GangRecord, gangs: Mapping[GangKey, GangRecord], composites: Composites) -> list[GangRecord]:
    """The gangs that must be satisfied, or may only be disrupted, together with this one (included), by key."""
    together = composites.tied(gang)
    if together:
        return together
    bundle = tied(gang, gangs) or {gang.key: gang}
    return [bundle[key] for key in sorted(bundle)]


def is_unit(gang: GangRecord, composites: Composites) -> bool:
    """Whether its members may only be disrupted together, by its own word or that of a composite above."""
    return gang.spec is not None and (gang.spec.unit or any(each.unit for each in composites.above(gang)))


def spare_members(gang: GangRecord, composites: Composites) -> tuple[int, Counter[str]]:
    """(how many members the gang can do without, of which so many of each role that has a minimum); (below 0, ...)
    where it lacks some of its minimum already. What subgroups need is not counted (`Subquorum`)."""
    noun = gang.spec
    if noun is None or is_unit(gang, composites):
        return 0, Counter()
    held = _held(gang)
    free = held - noun.min_member
    if held == 1 and needs_nobody(noun):
        free = 1  # a single pod that nobody else needs is no more than a pod on its own
    roles = Counter({role: _held(gang, role) - least for role, least in noun.roles})
    short = any(left < 0 for left in roles.values()) or not Subquorum(gang, noun).holds
    return (min(free, -1) if short else free), roles


def needs_nobody(noun: Gang) -> bool:
    """Whether any member will do for the gang: it is not torn apart as long as those who leave come back."""
    return noun.min_member <= 1 and not (noun.roles or noun.subgroups) and len(noun.bundle) <= 1


def holds_quorum(gang: GangRecord) -> bool:
    """Whether there is a quorum that could be broken."""
    noun = gang.spec
    if noun is None:
        return False
    roles = all(_held(gang, role) >= least for role, least in noun.roles)
    return _held(gang) >= noun.min_member and roles and _held(gang) > 0 and Subquorum(gang, noun).holds


class Subquorum:
    """How many members each subgroup of a gang can do without, and how many subgroups of each rule the gang can.

    `holds` tells whether there are as many whole subgroups as the gang needs.
    """

    __slots__ = ("_more", "_rules", "_slack", "holds")

    def __init__(self, gang: GangRecord, noun: Gang) -> None:
        self._rules = noun.subgroups
        self._slack: dict[PartKey, int] = {}
        self._more: list[int] = []
        self.holds = True
        if not noun.subgroups:
            return
        parts = subgroups_of(noun, gang.members.values(), lambda counts: _counted(noun, counts))
        self._slack = {key: part.there - part.rule.size for key, part in parts.items() if not part.missing}
        whole = Counter(number for number, _ in self._slack)
        self._more = [whole[number] - rule.least for number, rule in enumerate(noun.subgroups)]
        self.holds = min(self._more) >= 0

    def part(self, record: PodRecord) -> PartKey | None:
        """The whole subgroup of a member; None for one that is not a part of any."""
        key = part_key(self._rules, record) if self._rules else None
        return key if key in self._slack else None

    def spares(self, record: PodRecord, gone: Mapping[Any, int]) -> bool:
        """Whether enough subgroups stay whole without a member; `gone` counts those of each who went before, beside
        whatever else it counts."""
        key = self.part(record)
        if key is None or gone.get(key, 0) != self._slack[key]:
            return True  # its subgroup stays whole, or is broken already
        broken = sum(
            1
            for other, count in gone.items()
            if isinstance(other, tuple) and other[0] == key[0] and count > self._slack.get(other, count)
        )
        return broken < self._more[key[0]]


def _held(gang: GangRecord, role: str | None = None) -> int:
    """The members that count: on a node or on the way there, and those that are done if the policy counts them."""
    assert gang.spec is not None
    return _counted(gang.spec, gang.counts(role))


def _counted(noun: Gang, counts: GangCounts) -> int:
    done = noun.match_policy is MatchPolicy.WAITING_RUNNING_SUCCEEDED
    return counts.active + (counts.succeeded if done else 0)
