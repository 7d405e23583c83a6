"""What a unit asks for, in classes instead of names: equal demands fit or fail together.

This is what makes ten thousand waiting jobs of one kind one question. Each demand has an upper bound for how many
units with it could get something now; whoever waits beyond that bound need not be looked at.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from typing import ClassVar, Protocol

import msgspec

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.model.account import AccountKey
from phalanx.model.resources import Requests
from phalanx.scheduling.gangs.quorum import QuorumRequirement
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.placement.topology_domains import Area, TopologyDomains
from phalanx.scheduling.quota.quota_check import QuotaCheck

UNBOUNDED = 2**62


class RoomEstimates(Protocol):
    """What a bound is computed from."""

    placer: Placer
    quota_check: QuotaCheck
    topology_domains: TopologyDomains

    def shortfall_in_sum(self, wanted: Requests) -> Requests:
        """What the amounts exceed, per resource, that which all nodes together have idle."""


class PodDemand(msgspec.Struct, frozen=True):
    """A pod of this class and charge path that needs no other; or `count` of them that start together.

    `area` is set for members of a gang that have to be, or should be, close to each other.
    """

    pod_class: ClassRecord
    charge_path: ChargePath | None = None
    area: Area | None = None
    count: int = 1

    role: ClassVar[str] = ""
    roles: ClassVar[tuple[tuple[str, int], ...]] = ()

    @property
    def total(self) -> int:
        return self.count

    @property
    def members(self) -> tuple[PodDemand, ...]:
        return (self,)

    def upper_bound(self, rooms: RoomEstimates) -> int:
        allowed = rooms.quota_check.room(self.charge_path, self.pod_class.footprint) // self.count
        if not allowed or self.area is None:
            return min(allowed, rooms.placer.total_copies(self.pod_class) // self.count) if allowed else 0
        return min(allowed, rooms.topology_domains.bound(self.area, self))

    def fits(self, rooms: RoomEstimates) -> bool:
        if rooms.quota_check.room(self.charge_path, self.pod_class.footprint) < self.count:
            return False
        if self.area is not None:
            return rooms.topology_domains.fits(self.area, self)
        return (
            rooms.placer.fits(self.pod_class)
            if self.count == 1
            else rooms.placer.total_copies(self.pod_class) >= self.count
        )


class SurplusDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """Gangs whose quorum holds and that have further members of these kinds."""

    kinds: tuple[PodDemand, ...]

    def upper_bound(self, rooms: RoomEstimates) -> int:
        return sum(kind.upper_bound(rooms) for kind in self.kinds)


class ScaleUpDelayed(msgspec.Struct, frozen=True):
    """Gangs that are to stay as they are for a while before they grow: the time wakes them, not room."""

    unit: Hashable

    def upper_bound(self, rooms: RoomEstimates) -> int:
        return 0


class QuotaBlocked(msgspec.Struct, frozen=True):
    """Units of a charge path that may be charged nothing new, whatever its size."""

    charge_path: ChargePath


class FifoBlocked(msgspec.Struct, frozen=True):
    """Units that wait for their turn in a queue that keeps its order."""

    queue: AccountKey


class AwaitingAdmission(msgspec.Struct, frozen=True, cache_hash=True):
    """Groups of one announced size that wait for one queue; `keys` is what else the votes depend on.

    Units of several gangs are kept apart (`grouped`): they may wait for the admission of a group that is a unit of
    its own as well, so they cannot be counted.
    """

    queue: str
    size: Requests
    keys: tuple[object, ...] = ()
    grouped: bool = False


class MemberDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """`count` members of one class, role and charge path."""

    pod_class: ClassRecord
    role: str
    count: int
    charge_path: ChargePath | None = None


class SubgroupDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """A subgroup that could start: `total` members of the portions at once. `rule` is the place of its rule."""

    rule: int
    total: int
    members: tuple[MemberDemand, ...]
    area: Area | None = None
    roles: tuple[tuple[str, int], ...] = ()


class GangDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """`total` members of the portions, of which `roles[role]` of each named role; `reserve` must be idle in sum.

    All go into one domain of the `area`. `parts` are the subgroups among them, of which `subgroups[rule]` more must
    start.
    """

    total: int
    roles: tuple[tuple[str, int], ...]
    members: tuple[MemberDemand, ...]
    reserve: Requests = ()
    area: Area | None = None
    parts: tuple[SubgroupDemand, ...] = ()
    subgroups: tuple[int, ...] = ()

    def least_amounts(self) -> Mapping[str, int]:
        """resource -> what every choice of members takes at least."""
        least: dict[str, int] = {}
        for name in {name for portion in self.members for name in portion.pod_class.footprint.amounts}:
            left = self.total
            for portion in sorted(self.members, key=lambda each: each.pod_class.footprint.amounts.get(name, 0)):
                taken = min(left, portion.count)
                least[name] = least.get(name, 0) + taken * portion.pod_class.footprint.amounts.get(name, 0)
                left -= taken
        return {name: amount for name, amount in least.items() if amount > 0}

    def allowed(self, rooms: RoomEstimates) -> int:
        """At most how many gangs like this the accounts allow; only asked where all have one charge path."""
        charge_paths = {portion.charge_path for portion in self.members}
        charge_path = next(iter(charge_paths)) if len(charge_paths) == 1 else None
        return (
            rooms.quota_check.room_for(charge_path, self.least_amounts()) if charge_path is not None else UNBOUNDED
        )

    def forced_members(self, pod_class: ClassRecord) -> int:
        """How many members of the class every choice of members contains."""
        others = sum(portion.count for portion in self.members if portion.pod_class is not pod_class)
        by_role = 0
        for role, least in self.roles:
            elsewhere = sum(p.count for p in self.members if p.role == role and p.pod_class is not pod_class)
            by_role += max(0, least - elsewhere)
        return max(by_role, self.total - others, 0)


class QuorumDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """The quorums of all gangs of a gang group, which go together."""

    gangs: tuple[GangDemand, ...]

    @property
    def classes(self) -> tuple[ClassRecord, ...]:
        """Each class once, in the order of the portions."""
        return tuple(dict.fromkeys(portion.pod_class for gang in self.gangs for portion in gang.members))

    def upper_bound(self, rooms: RoomEstimates) -> int:
        if any(gang.reserve and rooms.shortfall_in_sum(gang.reserve) for gang in self.gangs):
            return 0
        allowed = min((gang.allowed(rooms) for gang in self.gangs), default=UNBOUNDED)
        if not allowed:
            return 0
        total = sum(gang.total for gang in self.gangs)
        if not total:
            return UNBOUNDED
        by_class = {pod_class: rooms.placer.total_copies(pod_class) for pod_class in self.classes}
        bound = min(allowed, sum(by_class.values()) // total)
        for pod_class, room in by_class.items():
            forced = sum(gang.forced_members(pod_class) for gang in self.gangs)
            if forced:
                bound = min(bound, room // forced)
        near = [gang for gang in self.gangs if gang.area is not None and gang.area.rule.hard and gang.total]
        return min(
            [bound, *(rooms.topology_domains.bound(gang.area, gang) for gang in near if gang.area is not None)]
        )


class CompositeDemand(msgspec.Struct, frozen=True):
    """A group of groups whose open gangs ask for these each: it wakes when any of them may get something."""

    unit: Hashable
    parts: tuple[QuorumDemand | SurplusDemand | QuotaBlocked, ...]

    def __hash__(self) -> int:
        return hash(self.unit)


class Nominated(msgspec.Struct, frozen=True):
    """A unit for which room is held until others have left. `wanted` is what it asks for: should there be room for
    that elsewhere, it need not wait. `victims` are the uids of those who must leave."""

    unit: Hashable
    wanted: PodDemand | QuorumDemand
    victims: frozenset[str]

    def __hash__(self) -> int:
        return hash(self.unit)

    def arrived(self, leaving: Container[str]) -> bool:
        """Whether all of them have left."""
        return not any(uid in leaving for uid in self.victims)


WaitReason = (
    PodDemand
    | SurplusDemand
    | QuorumDemand
    | CompositeDemand
    | AwaitingAdmission
    | QuotaBlocked
    | FifoBlocked
    | ScaleUpDelayed
    | Nominated
)


def helped_by_placements(demand: WaitReason) -> bool:
    """Whether it may be met because others are placed: those to whom pods have to be near, or who fill up what was
    too empty."""
    match demand:
        case PodDemand():
            return demand.pod_class.affinity.may_be_unblocked
        case SurplusDemand():
            return any(kind.pod_class.affinity.may_be_unblocked for kind in demand.kinds)
        case QuorumDemand():
            return any(pod_class.affinity.may_be_unblocked for pod_class in demand.classes)
        case CompositeDemand():
            return any(map(helped_by_placements, demand.parts))
        case Nominated():
            return helped_by_placements(demand.wanted)
    return False


MemberKind = tuple[ClassRecord, str, ChargePath | None]
"""(class, role, charge path) of a member."""


def gang_demand(
    need: QuorumRequirement, members: Iterable[tuple[MemberKind, int]], reserve: Requests
) -> GangDemand:
    """`members` are those who may take part, counted by kind, in any order.

    What cannot matter is left out, so that more demands are equal: roles without a minimum, and members of a
    kind beyond the gang's need.
    """
    named = {role for role, _ in need.roles}
    return GangDemand(need.total, need.roles, member_demands(members, named, need.total), reserve)


def member_demands(
    members: Iterable[tuple[MemberKind, int]], named: set[str], total: int
) -> tuple[MemberDemand, ...]:
    """The members by kind, in one order whatever theirs is; of each kind at most `total`."""
    counts: dict[MemberKind, int] = {}
    for (pod_class, role, charge_path), count in members:
        kind = (pod_class, role if role in named else "", charge_path)
        counts[kind] = counts.get(kind, 0) + count
    portions = sorted(counts.items(), key=_place) if len(counts) > 1 else list(counts.items())
    return tuple(
        MemberDemand(pod_class, role, min(count, total), charge_path)
        for (pod_class, role, charge_path), count in portions
    )


def _place(entry: tuple[MemberKind, int]) -> tuple[int, str, object]:
    (pod_class, role, charge_path), _ = entry
    return pod_class.number, role, charge_path.key if charge_path is not None else ""
