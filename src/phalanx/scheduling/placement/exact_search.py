"""Complete search for a placement of a few unlike members on a few nodes, with a work limit.

Placing the hardest class first is fast and usually right, but it can use the only room of another class. If that
happens to a small gang, this search tries the alternatives.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

# Maximum number of checked nodes per search. It is counted, not timed, so that equal inputs get equal results.
LIMIT = 30_000


class SearchKind(msgspec.Struct, frozen=True):
    """Class of members: (resource, amount) of one member, `allowed[node]` by the filters, and a bit set of the
    kinds that cannot share a node with it.
    """

    amounts: tuple[tuple[int, int], ...]
    allowed: tuple[bool, ...]
    conflicts: int = 0


class SearchPart(msgspec.Struct, frozen=True):
    """`count` equal members of one gang and role that can be chosen."""

    kind: int
    gang: int
    role: str
    count: int


class SearchNeed(msgspec.Struct, frozen=True):
    """Requirement of a gang: `total` members, of which `roles[role]` of each named role."""

    total: int
    roles: dict[str, int]


class ExactSearch:
    """Depth-first search of nodes for the needs of all gangs.

    Parts are decided in the given order, as many members of each as possible first. Copies of a part are placed on
    nodes in ascending order, and of nodes that are equal at the moment only the first is tried. Neither loses a
    solution. `looks` is the number of checked nodes. `exhausted` tells that the limit ended the search, so that a
    result of None proves nothing.
    """

    def __init__(
        self,
        idle: Sequence[Sequence[int]],
        kinds: Sequence[SearchKind],
        parts: Sequence[SearchPart],
        needs: Sequence[SearchNeed],
        limit: int = LIMIT,
    ) -> None:
        self.exhausted = False
        self._idle = [list(amounts) for amounts in idle]
        self._kinds = kinds
        self._parts = parts
        self._limit = limit
        self.looks = 0
        self._held = [0] * len(idle)
        self._signatures = [tuple(kind.allowed[node] for kind in kinds) for node in range(len(idle))]
        self._roles = [dict(need.roles) for need in needs]
        self._free = [need.total - sum(need.roles.values()) for need in needs]
        self._chosen: list[tuple[int, int]] = []

    def run(self) -> list[tuple[int, int]] | None:
        """Return (part, node) of every placed member, or None."""
        return self._chosen if self._decide(0) else None

    def _decide(self, place: int) -> bool:
        """Decide on the parts from `place` on; return True when all needs are met."""
        if not any(self._free) and not any(any(roles.values()) for roles in self._roles):
            return True
        if place == len(self._parts) or not self._enough_members(place) or not self._room_for_forced(place):
            return False
        part = self._parts[place]
        return self._place_next(place, part, part.count, 0)

    def _place_next(self, place: int, part: SearchPart, remaining: int, first: int) -> bool:
        """Place one more member of the part on a node from `first` on, or continue with the next part."""
        if remaining and (named := self._count_member(part)) is not None:
            tried: set[object] = set()
            for node in range(first, len(self._idle)):
                if self.exhausted or not self._fits(part.kind, node):
                    continue
                state = (tuple(self._idle[node]), self._held[node], self._signatures[node])
                if state in tried:
                    continue
                tried.add(state)
                self._add_amounts(part.kind, node, -1)
                former, self._held[node] = self._held[node], self._held[node] | 1 << part.kind
                self._chosen.append((place, node))
                if self._place_next(place, part, remaining - 1, node):
                    return True
                self._chosen.pop()
                self._held[node] = former
                self._add_amounts(part.kind, node, 1)
            self._uncount_member(part, named)
        return not self.exhausted and self._decide(place + 1)

    def _count_member(self, part: SearchPart) -> bool | None:
        """Count one member towards its role's minimum (True) or the remainder (False); None if none is needed."""
        roles = self._roles[part.gang]
        if roles.get(part.role):
            roles[part.role] -= 1
            return True
        if self._free[part.gang]:
            self._free[part.gang] -= 1
            return False
        return None

    def _uncount_member(self, part: SearchPart, named: bool) -> None:
        if named:
            self._roles[part.gang][part.role] += 1
        else:
            self._free[part.gang] += 1

    def _enough_members(self, place: int) -> bool:
        """Return whether the parts from `place` on have enough members for the remaining needs."""
        for gang, (free, roles) in enumerate(zip(self._free, self._roles, strict=True)):
            counts: dict[str, int] = {}
            for part in self._parts[place:]:
                if part.gang == gang:
                    counts[part.role] = counts.get(part.role, 0) + part.count
            spare = sum(counts.values())
            for role, minimum in roles.items():
                if counts.get(role, 0) < minimum:
                    return False
                spare -= minimum
            if spare < free:
                return False
        return True

    def _room_for_forced(self, place: int) -> bool:
        """Return whether the members that no later part can replace have room."""
        part = self._parts[place]
        later = sum(other.count for other in self._parts[place + 1 :] if other.gang == part.gang)
        forced = self._free[part.gang] + sum(self._roles[part.gang].values()) - later
        if forced <= 0:
            return True
        room = 0
        for node, idle in enumerate(self._idle):
            if self._fits(part.kind, node):
                kind = self._kinds[part.kind]
                exclusive = kind.conflicts >> part.kind & 1
                room += 1 if exclusive else min(idle[resource] // amount for resource, amount in kind.amounts)
        return room >= forced

    def _fits(self, kind: int, node: int) -> bool:
        self.looks += 1
        if self.looks > self._limit:
            self.exhausted = True
            return False
        request, idle = self._kinds[kind], self._idle[node]
        if not request.allowed[node] or request.conflicts & self._held[node]:
            return False
        return all(idle[resource] >= amount for resource, amount in request.amounts)

    def _add_amounts(self, kind: int, node: int, sign: int) -> None:
        idle = self._idle[node]
        for resource, amount in self._kinds[kind].amounts:
            idle[resource] += sign * amount
