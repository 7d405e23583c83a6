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
from phalanx.scheduling.gangs.quorum import Requirement
from phalanx.scheduling.placement.placer import Placer
from phalanx.scheduling.placement.topology_domains import Area, Domains
from phalanx.scheduling.quota.quota_check import Allowance

UNBOUNDED = 2**62


class Rooms(Protocol):
    """What a bound is computed from."""

    placer: Placer
    allowance: Allowance
    domains: Domains

    def gaps(self, wanted: Requests) -> Requests:
        """What the amounts exceed, per resource, that which all nodes together have idle."""


class Alone(msgspec.Struct, frozen=True):
    """A pod of this class that needs no other, and who pays for it; or `count` of them that start together.

    `area` is set for members of a gang that have to be, or should be, close to each other.
    """

    cls: ClassRecord
    payer: ChargePath | None = None
    area: Area | None = None
    count: int = 1

    role: ClassVar[str] = ""
    roles: ClassVar[tuple[tuple[str, int], ...]] = ()

    @property
    def total(self) -> int:
        return self.count

    @property
    def portions(self) -> tuple[Alone, ...]:
        return (self,)

    def bound(self, rooms: Rooms) -> int:
        allowed = rooms.allowance.room(self.payer, self.cls.footprint) // self.count
        if not allowed or self.area is None:
            return min(allowed, rooms.placer.room(self.cls) // self.count) if allowed else 0
        return min(allowed, rooms.domains.bound(self.area, self))

    def fits(self, rooms: Rooms) -> bool:
        if rooms.allowance.room(self.payer, self.cls.footprint) < self.count:
            return False
        if self.area is not None:
            return rooms.domains.fits(self.area, self)
        return rooms.placer.fits(self.cls) if self.count == 1 else rooms.placer.room(self.cls) >= self.count


class Surplus(msgspec.Struct, frozen=True, cache_hash=True):
    """Gangs whose quorum holds and that have further members of these kinds."""

    kinds: tuple[Alone, ...]

    def bound(self, rooms: Rooms) -> int:
        return sum(kind.bound(rooms) for kind in self.kinds)


class Charge(msgspec.Struct, frozen=True):
    """Units of a payer that may be charged nothing new, whatever its size."""

    payer: ChargePath


class Behind(msgspec.Struct, frozen=True):
    """Units that wait for their turn in a queue that keeps its order."""

    queue: AccountKey


class Admission(msgspec.Struct, frozen=True, cache_hash=True):
    """Groups of one announced size that wait for one queue; `keys` is what else the votes depend on.

    Units of several gangs are kept apart (`bundled`): they may wait for the admission of a group that is a unit of
    its own as well, so they cannot be counted.
    """

    queue: str
    size: Requests
    keys: tuple[object, ...] = ()
    bundled: bool = False


class Portion(msgspec.Struct, frozen=True, cache_hash=True):
    """`count` members of one class and role for whom one payer pays."""

    cls: ClassRecord
    role: str
    count: int
    payer: ChargePath | None = None


class PartDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """A subgroup that could start: `total` members of the portions at once. `rule` is the place of its rule."""

    rule: int
    total: int
    portions: tuple[Portion, ...]
    area: Area | None = None
    roles: tuple[tuple[str, int], ...] = ()


class GangDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """`total` members of the portions, of which `roles[role]` of each named role; `reserve` must be idle in sum.

    All go into one domain of the `area`. `parts` are the subgroups among them, of which `subgroups[rule]` more must
    start.
    """

    total: int
    roles: tuple[tuple[str, int], ...]
    portions: tuple[Portion, ...]
    reserve: Requests = ()
    area: Area | None = None
    parts: tuple[PartDemand, ...] = ()
    subgroups: tuple[int, ...] = ()

    def least(self) -> Mapping[str, int]:
        """resource -> what every choice of members takes at least."""
        least: dict[str, int] = {}
        for name in {name for portion in self.portions for name in portion.cls.footprint.amounts}:
            left = self.total
            for portion in sorted(self.portions, key=lambda each: each.cls.footprint.amounts.get(name, 0)):
                taken = min(left, portion.count)
                least[name] = least.get(name, 0) + taken * portion.cls.footprint.amounts.get(name, 0)
                left -= taken
        return {name: amount for name, amount in least.items() if amount > 0}

    def allowed(self, rooms: Rooms) -> int:
        """At most how many gangs like this the accounts allow; only asked where one payer pays for all."""
        payers = {portion.payer for portion in self.portions}
        payer = next(iter(payers)) if len(payers) == 1 else None
        return rooms.allowance.room_for(payer, self.least()) if payer is not None else UNBOUNDED

    def forced(self, cls: ClassRecord) -> int:
        """How many members of the class every choice of members contains."""
        others = sum(portion.count for portion in self.portions if portion.cls is not cls)
        by_role = 0
        for role, least in self.roles:
            elsewhere = sum(p.count for p in self.portions if p.role == role and p.cls is not cls)
            by_role += max(0, least - elsewhere)
        return max(by_role, self.total - others, 0)


class Quorum(msgspec.Struct, frozen=True, cache_hash=True):
    """The quorums of all gangs of a bundle, which go together."""

    gangs: tuple[GangDemand, ...]

    @property
    def classes(self) -> tuple[ClassRecord, ...]:
        """Each class once, in the order of the portions."""
        return tuple(dict.fromkeys(portion.cls for gang in self.gangs for portion in gang.portions))

    def bound(self, rooms: Rooms) -> int:
        if any(gang.reserve and rooms.gaps(gang.reserve) for gang in self.gangs):
            return 0
        allowed = min((gang.allowed(rooms) for gang in self.gangs), default=UNBOUNDED)
        if not allowed:
            return 0
        total = sum(gang.total for gang in self.gangs)
        if not total:
            return UNBOUNDED
        by_class = {cls: rooms.placer.room(cls) for cls in self.classes}
        bound = min(allowed, sum(by_class.values()) // total)
        for cls, room in by_class.items():
            forced = sum(gang.forced(cls) for gang in self.gangs)
            if forced:
                bound = min(bound, room // forced)
        near = [gang for gang in self.gangs if gang.area is not None and gang.area.rule.hard and gang.total]
        return min([bound, *(rooms.domains.bound(gang.area, gang) for gang in near if gang.area is not None)])


class Parts(msgspec.Struct, frozen=True):
    """A group of groups whose open gangs ask for these each: it wakes when any of them may get something."""

    unit: Hashable
    parts: tuple[Quorum | Surplus | Charge, ...]

    def __hash__(self) -> int:
        return hash(self.unit)


class Awaiting(msgspec.Struct, frozen=True):
    """A unit for which room is held until others have left. `wanted` is what it asks for: should there be room for
    that elsewhere, it need not wait. `leavers` are the uids of those who must leave."""

    unit: Hashable
    wanted: Alone | Quorum
    leavers: frozenset[str]

    def __hash__(self) -> int:
        return hash(self.unit)

    def arrived(self, leaving: Container[str]) -> bool:
        """Whether all of them have left."""
        return not any(uid in leaving for uid in self.leavers)


Demand = Alone | Surplus | Quorum | Parts | Admission | Charge | Behind | Awaiting


def hopes(demand: Demand) -> bool:
    """Whether it may be met because others are placed: those to whom pods have to be near, or who fill up what was
    too empty."""
    match demand:
        case Alone():
            return demand.cls.affinity.may_be_unblocked
        case Surplus():
            return any(kind.cls.affinity.may_be_unblocked for kind in demand.kinds)
        case Quorum():
            return any(cls.affinity.may_be_unblocked for cls in demand.classes)
        case Parts():
            return any(map(hopes, demand.parts))
        case Awaiting():
            return hopes(demand.wanted)
    return False


Kind = tuple[ClassRecord, str, ChargePath | None]
"""(class, role, payer) of a member."""


def gang_demand(need: Requirement, members: Iterable[tuple[Kind, int]], reserve: Requests) -> GangDemand:
    """`members` are those who may take part, counted by kind, in any order.

    What cannot matter is left out, so that more demands are equal: roles without a minimum, and members of a
    kind beyond the gang's need.
    """
    named = {role for role, _ in need.roles}
    return GangDemand(need.total, need.roles, portions_of(members, named, need.total), reserve)


def portions_of(members: Iterable[tuple[Kind, int]], named: set[str], total: int) -> tuple[Portion, ...]:
    """The members by kind, in one order whatever theirs is; of each kind at most `total`."""
    counts: dict[Kind, int] = {}
    for (cls, role, payer), count in members:
        kind = (cls, role if role in named else "", payer)
        counts[kind] = counts.get(kind, 0) + count
    portions = sorted(counts.items(), key=_place) if len(counts) > 1 else list(counts.items())
    return tuple(Portion(cls, role, min(count, total), payer) for (cls, role, payer), count in portions)


def _place(entry: tuple[Kind, int]) -> tuple[int, str, object]:
    (cls, role, payer), _ = entry
    return cls.number, role, payer.key if payer is not None else ""
