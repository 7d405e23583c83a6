"""Wait reasons of unschedulable units, in pod classes instead of names.

Units with equal demands fit or fail together, so ten thousand waiting jobs of one kind are checked once. Each
reason has an upper bound on the number of its units that could be placed now; units beyond the bound are not
checked.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import ClassVar, Protocol

import msgspec

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.model.account import AccountKey
from phalanx.model.resources import Requests
from phalanx.scheduling.framework.view import WaitingUnit
from phalanx.scheduling.gangs.quorum import QuorumRequirement
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.placement.topology_domains import Area, TopologyDomains
from phalanx.scheduling.quota.quota_check import QuotaCheck

UNBOUNDED = 2**62


class RoomEstimates(Protocol):
    """Sources of the upper bounds of demands."""

    placer: Placer
    quota_check: QuotaCheck
    topology_domains: TopologyDomains

    def shortfall_in_sum(self, wanted: Requests) -> Requests:
        """Return the amounts per resource that exceed the idle sum of all nodes."""


class QueueEstimates(RoomEstimates, Protocol):
    """Sources of the upper bounds of all wait reasons: the session of a cycle."""

    def is_blocked(self, unit: WaitingUnit) -> bool:
        """Return whether an account of the unit is blocked."""

    def max_admissions(self, unit: WaitingUnit) -> int:
        """Return an upper bound on the number of units like this one that can be admitted now."""

    def has_left(self, victims: Collection[str]) -> bool:
        """Return whether all pods with these uids have left their nodes."""

    def bound_beside_nominations(self, unit: WaitingUnit, wanted: Demand) -> int:
        """Return the upper bound of the demand without the unit's own nominations: their room and quota count as
        used."""

    def is_ready(self, pod_class: ClassRecord) -> bool:
        """Return whether all volumes, claims and reservations that pods of a class refer to exist."""


class WaitReason(msgspec.Struct, frozen=True):
    """Reason why a unit is unschedulable. Units with equal reasons are activated together.

    for_room: a whole unit lacks nodes or quota. for_surplus: surplus members lack them.
    - may_preempt: pods can be evicted for the unit.
    - for_its_turn: room alone would not help: the unit is not admitted, or behind another unit of its queue.
    - behind_another: the unit is behind another unit of its queue.
    - changes_in_time: plugins know when the reason can end without events.
    """

    for_room: ClassVar[bool] = False
    for_surplus: ClassVar[bool] = False
    may_preempt: ClassVar[bool] = False
    for_its_turn: ClassVar[bool] = False
    behind_another: ClassVar[bool] = False
    changes_in_time: ClassVar[bool] = False

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        """Return an upper bound on the number of units with the unit's reason that could be placed now."""
        raise NotImplementedError

    def lacks_amounts(self, rooms: RoomEstimates) -> bool:
        """Return whether no node has the idle amounts of a pod, so that reserved room would not help either; False
        proves nothing."""
        return False

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        """Return whether units behind this one wait too in a fifo queue: nodes or quota would help it."""
        return True

    @property
    def helped_by_placements(self) -> bool:
        """True if placements of other pods can end the reason: of pods with required affinity, or in underfilled
        domains.
        """
        return False

    @property
    def separate_parts(self) -> tuple[WaitReason, ...]:
        """Parts that can be placed one by one; () if the reason has none."""
        return ()

    @property
    def quorums(self) -> tuple[PodDemand | GangDemand, ...]:
        """Pods that must be placed together; () for a reason without an amount, or with separate parts."""
        return ()

    @property
    def awaited_queues(self) -> tuple[str, ...]:
        """Queues that do not admit the unit yet; () for a reason other than admission."""
        return tuple(queue for part in self.separate_parts for queue in part.awaited_queues)

    def joined(self, other: WaitReason) -> WaitReason:
        """Return the reason of a unit that has this one and gets `other` for some of its pods."""
        return other


class Demand(WaitReason, frozen=True):
    """Wait reason with an amount: its bound depends only on the cluster."""

    may_preempt: ClassVar[bool] = True

    def upper_bound(self, rooms: RoomEstimates) -> int:
        """Return an upper bound on the number of units with this demand that could be placed now."""
        raise NotImplementedError

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        return self.upper_bound(estimates)


class PodDemand(Demand, frozen=True):
    """Demand of a single pod of a class and charge path, or of `count` such pods that start together.

    `area` is set for gang members with a required or preferred topology.
    """

    pod_class: ClassRecord
    charge_path: ChargePath | None = None
    area: Area | None = None
    count: int = 1

    for_room: ClassVar[bool] = True
    role: ClassVar[str] = ""
    roles: ClassVar[tuple[tuple[str, int], ...]] = ()

    @property
    def helped_by_placements(self) -> bool:
        return self.pod_class.affinity.may_be_unblocked

    @property
    def total(self) -> int:
        return self.count

    @property
    def members(self) -> tuple[PodDemand, ...]:
        return (self,)

    @property
    def quorums(self) -> tuple[PodDemand | GangDemand, ...]:
        return (self,)

    def least_amounts(self) -> Mapping[str, int]:
        """Return the amount of each resource that the pods request together."""
        return {name: amount * self.count for name, amount in self.pod_class.footprint.amounts.items()}

    def lacks_amounts(self, rooms: RoomEstimates) -> bool:
        return rooms.placer.lacks_amounts(self.pod_class)

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        return estimates.is_ready(self.pod_class)

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


class SurplusDemand(Demand, frozen=True, cache_hash=True):
    """Demand of gangs with a quorum that have surplus members of these kinds."""

    kinds: tuple[PodDemand, ...]

    for_surplus: ClassVar[bool] = True

    @property
    def separate_parts(self) -> tuple[WaitReason, ...]:
        return self.kinds

    @property
    def helped_by_placements(self) -> bool:
        return any(kind.helped_by_placements for kind in self.kinds)

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        return any(kind.holds_the_line(estimates) for kind in self.kinds)

    def upper_bound(self, rooms: RoomEstimates) -> int:
        return sum(kind.upper_bound(rooms) for kind in self.kinds)


class ScaleUpDelayed(WaitReason, frozen=True):
    """Wait reason of gangs whose scale-up is delayed: time activates them, not room."""

    unit: Hashable

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        return False

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        return 0


class QuotaBlocked(WaitReason, frozen=True):
    """Wait reason of units whose charge path is blocked for pods of any size."""

    charge_path: ChargePath

    changes_in_time: ClassVar[bool] = True

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        return False

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        return 0 if estimates.is_blocked(unit) else UNBOUNDED


class FifoBlocked(WaitReason, frozen=True):
    """Wait reason of units behind the first one in a fifo queue."""

    queue: AccountKey

    for_its_turn: ClassVar[bool] = True
    behind_another: ClassVar[bool] = True

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        return UNBOUNDED


class AwaitingAdmission(WaitReason, frozen=True, cache_hash=True):
    """Wait reason of groups that await admission to one queue with equal minResources; `keys` are further inputs of
    votes.

    Units of several gangs have their own reasons (`grouped`). They can wait for a group that is also a unit of its
    own, so they cannot be counted.
    """

    queue: str
    size: Requests
    keys: tuple[object, ...] = ()
    grouped: bool = False

    for_its_turn: ClassVar[bool] = True
    changes_in_time: ClassVar[bool] = True

    @property
    def awaited_queues(self) -> tuple[str, ...]:
        return (self.queue,)

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        return UNBOUNDED if self.grouped else estimates.max_admissions(unit)


class MemberDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """Demand of `count` members of one class, role and charge path."""

    pod_class: ClassRecord
    role: str
    count: int
    charge_path: ChargePath | None = None


class SubgroupDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """Demand of a subgroup that could start: `total` of the members at once. `rule` is the position of its rule."""

    rule: int
    total: int
    members: tuple[MemberDemand, ...]
    area: Area | None = None
    roles: tuple[tuple[str, int], ...] = ()


class GangDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """Demand of a gang: `total` of the members, of which `roles[role]` of each named role; `reserve` must be idle
    in sum.

    All members are placed in one domain of the `area`. `parts` are subgroups; `subgroups[rule]` more of each rule
    must start.
    """

    total: int
    roles: tuple[tuple[str, int], ...]
    members: tuple[MemberDemand, ...]
    reserve: Requests = ()
    area: Area | None = None
    parts: tuple[SubgroupDemand, ...] = ()
    subgroups: tuple[int, ...] = ()

    def least_amounts(self) -> Mapping[str, int]:
        """Return the minimum amounts by resource that every choice of members needs."""
        least: dict[str, int] = {}
        for name in {name for portion in self.members for name in portion.pod_class.footprint.amounts}:
            left = self.total
            for portion in sorted(self.members, key=lambda each: each.pod_class.footprint.amounts.get(name, 0)):
                taken = min(left, portion.count)
                least[name] = least.get(name, 0) + taken * portion.pod_class.footprint.amounts.get(name, 0)
                left -= taken
        return {name: amount for name, amount in least.items() if amount > 0}

    def allowed(self, rooms: RoomEstimates) -> int:
        """Return an upper bound on the number of such gangs within quota, if all members have one charge path."""
        charge_paths = {portion.charge_path for portion in self.members}
        charge_path = next(iter(charge_paths)) if len(charge_paths) == 1 else None
        return (
            rooms.quota_check.room_for(charge_path, self.least_amounts()) if charge_path is not None else UNBOUNDED
        )

    def can_be_ready(self, estimates: QueueEstimates) -> bool:
        """Return whether enough members could start if there were nodes and quota."""
        ready = [portion for portion in self.members if estimates.is_ready(portion.pod_class)]
        return sum(portion.count for portion in ready) >= self.total and all(
            sum(portion.count for portion in ready if portion.role == role) >= least for role, least in self.roles
        )

    def forced_members(self, pod_class: ClassRecord) -> int:
        """Return the number of members of the class that every choice of members contains."""
        others = sum(portion.count for portion in self.members if portion.pod_class is not pod_class)
        by_role = 0
        for role, least in self.roles:
            elsewhere = sum(p.count for p in self.members if p.role == role and p.pod_class is not pod_class)
            by_role += max(0, least - elsewhere)
        return max(by_role, self.total - others, 0)


class QuorumDemand(Demand, frozen=True, cache_hash=True):
    """Demand of the quorums of all gangs of a gang group, which start together."""

    gangs: tuple[GangDemand, ...]

    for_room: ClassVar[bool] = True

    @property
    def quorums(self) -> tuple[PodDemand | GangDemand, ...]:
        return self.gangs

    @property
    def helped_by_placements(self) -> bool:
        return any(pod_class.affinity.may_be_unblocked for pod_class in self.classes)

    def lacks_amounts(self, rooms: RoomEstimates) -> bool:
        return any(gang.total for gang in self.gangs) and all(map(rooms.placer.lacks_amounts, self.classes))

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        return all(gang.can_be_ready(estimates) for gang in self.gangs)

    @property
    def classes(self) -> tuple[ClassRecord, ...]:
        """The distinct classes, in the order of the members."""
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


class CompositeDemand(WaitReason, frozen=True):
    """Demand of a composite: the wait reasons of its open gangs. It is activated when any of them could be
    placed.
    """

    unit: Hashable
    parts: tuple[WaitReason, ...]

    may_preempt: ClassVar[bool] = True

    def __hash__(self) -> int:
        return hash(self.unit)

    @property
    def separate_parts(self) -> tuple[WaitReason, ...]:
        return self.parts

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        return all(part.holds_the_line(estimates) for part in self.parts)

    @property
    def has_blocked_gang(self) -> bool:
        """True if one of its gangs is blocked."""
        return any(isinstance(part, QuotaBlocked) for part in self.parts)

    @property
    def helped_by_placements(self) -> bool:
        return any(part.helped_by_placements for part in self.parts)

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        return UNBOUNDED if any(part.bound_for(estimates, unit) for part in self.parts) else 0

    def joined(self, other: WaitReason) -> WaitReason:
        """Return the demand with the reason of one more gang of the tree; each reason can activate the unit."""
        return CompositeDemand(self.unit, (*self.parts, other))


class Nominated(WaitReason, frozen=True):
    """Wait reason of a nominated unit. `victims` are the uids of its victims.

    `wanted` is the unit's demand: if it fits on other nodes, or on its nominated nodes because other pods have left
    them, the unit need not wait.
    """

    unit: Hashable
    wanted: Demand
    victims: frozenset[str]

    def __hash__(self) -> int:
        return hash(self.unit)

    def holds_the_line(self, estimates: QueueEstimates) -> bool:
        return self.wanted.holds_the_line(estimates)

    @property
    def helped_by_placements(self) -> bool:
        return self.wanted.helped_by_placements

    def bound_for(self, estimates: QueueEstimates, unit: WaitingUnit) -> int:
        free = estimates.has_left(self.victims) or estimates.bound_beside_nominations(unit, self.wanted)
        return UNBOUNDED if free else 0

    def joined(self, other: WaitReason) -> WaitReason:
        """Return this reason: all members wait for the victims of the nominated ones."""
        return self


MemberKind = tuple[ClassRecord, str, ChargePath | None]
"""(class, role, charge path) of a member."""


def gang_demand(
    need: QuorumRequirement, members: Iterable[tuple[MemberKind, int]], reserve: Requests
) -> GangDemand:
    """Return the demand of a gang. `members` are the pods that can take part, counted by kind, in any order.

    Roles without a minimum and members beyond the gang's need are omitted, so that more demands are equal.
    """
    named = {role for role, _ in need.roles}
    return GangDemand(need.total, need.roles, member_demands(members, named, need.total), reserve)


def member_demands(
    members: Iterable[tuple[MemberKind, int]], named: set[str], total: int
) -> tuple[MemberDemand, ...]:
    """Return the members by kind in a fixed order, at most `total` of each kind."""
    counts: dict[MemberKind, int] = {}
    for (pod_class, role, charge_path), count in members:
        kind = (pod_class, role if role in named else "", charge_path)
        counts[kind] = counts.get(kind, 0) + count
    portions = sorted(counts.items(), key=_place) if len(counts) > 1 else list(counts.items())
    return tuple(
        MemberDemand(pod_class, role, min(count, total), charge_path)
        for (pod_class, role, charge_path), count in portions
    )


def _place(entry: tuple[MemberKind, int]) -> tuple[object, int, str, object]:
    (pod_class, role, charge_path), _ = entry
    # Numbers of classes differ between processes: small requests come first in each.
    return pod_class.spec.requests, pod_class.number, role, charge_path.key if charge_path is not None else ""
