"""What a unit asks for, in classes instead of names: equal demands fit or fail together.

This is what makes ten thousand waiting jobs of one kind one question. Each demand has an upper bound for how many
units with it could get something now; whoever waits beyond that bound need not be looked at.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from phalanx.cluster.classes import ClassRecord
from phalanx.model.resources import Requests
from phalanx.scheduling.quorum import Requirement

if TYPE_CHECKING:
    from phalanx.scheduling.session import Session

UNBOUNDED = 2**62


class Alone(msgspec.Struct, frozen=True):
    """A pod of this class that belongs to no gang."""

    cls: ClassRecord

    def bound(self, session: Session) -> int:
        return session.placer.room(self.cls)


class Surplus(msgspec.Struct, frozen=True, cache_hash=True):
    """Gangs whose quorum holds and that have further members of these classes."""

    classes: tuple[ClassRecord, ...]

    def bound(self, session: Session) -> int:
        return sum(session.placer.room(cls) for cls in self.classes)


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
    """`count` members of one class and role."""

    cls: ClassRecord
    role: str
    count: int


class GangDemand(msgspec.Struct, frozen=True, cache_hash=True):
    """`total` members of the portions, of which `roles[role]` of each named role; `reserve` must be idle in sum."""

    total: int
    roles: tuple[tuple[str, int], ...]
    portions: tuple[Portion, ...]
    reserve: Requests = ()

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

    def bound(self, session: Session) -> int:
        if any(gang.reserve and session.gaps(gang.reserve) for gang in self.gangs):
            return 0
        total = sum(gang.total for gang in self.gangs)
        if not total:
            return UNBOUNDED
        rooms = {cls: session.placer.room(cls) for cls in self.classes}
        bound = sum(rooms.values()) // total
        for cls, room in rooms.items():
            forced = sum(gang.forced(cls) for gang in self.gangs)
            if forced:
                bound = min(bound, room // forced)
        return bound


Demand = Alone | Surplus | Quorum | Admission


def gang_demand(need: Requirement, members: Iterable[tuple[ClassRecord, str]], reserve: Requests) -> GangDemand:
    """`members` are (class, role) of those who may take part, in any order.

    What cannot matter is left out, so that more demands are equal: roles without a minimum, and members of a
    kind beyond the gang's need.
    """
    named = {role for role, _ in need.roles}
    counts = Counter((cls, role if role in named else "") for cls, role in members)
    portions = sorted(counts.items(), key=lambda entry: (entry[0][0].number, entry[0][1]))
    return GangDemand(
        need.total,
        need.roles,
        tuple(Portion(cls, role, min(count, need.total)) for (cls, role), count in portions),
        reserve,
    )
