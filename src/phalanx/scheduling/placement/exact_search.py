"""Whether a few unlike members fit on a few nodes: a complete search with a limit on its work.

Placing the hardest class first is quick and mostly right, but it may take the only room of another class. Where
that happens to a small gang, this search tries the other ways.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

# How many looks at a node one search may take. It is counted, not timed: equal questions get equal answers.
LIMIT = 30_000


class SearchKind(msgspec.Struct, frozen=True):
    """A class of members: (resource, amount) that one takes, `allowed[node]` by the filters, and the kinds (as
    bits) that cannot share a node with it.
    """

    amounts: tuple[tuple[int, int], ...]
    allowed: tuple[bool, ...]
    conflicts: int = 0


class SearchPart(msgspec.Struct, frozen=True):
    """`count` equal members of one gang and role that may be chosen."""

    kind: int
    gang: int
    role: str
    count: int


class SearchNeed(msgspec.Struct, frozen=True):
    """`total` members of a gang, of which `roles[role]` of each named role."""

    total: int
    roles: dict[str, int]


class ExactSearch:
    """Finds nodes for the needs of all gangs, depth first.

    Parts are decided in the given order, as many of each as possible first. Copies of a part go to nodes in
    ascending order, and of nodes that are equal at the moment only the first is tried: neither loses a solution.
    `exhausted` tells that the limit ended the search, so that its "no" proves nothing.
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
        self._looks = 0
        self._held = [0] * len(idle)
        self._signatures = [tuple(kind.allowed[node] for kind in kinds) for node in range(len(idle))]
        self._roles = [dict(need.roles) for need in needs]
        self._free = [need.total - sum(need.roles.values()) for need in needs]
        self._chosen: list[tuple[int, int]] = []

    def run(self) -> list[tuple[int, int]] | None:
        """(part, node) of every placed member, or None."""
        return self._chosen if self._decide(0) else None

    def _decide(self, place: int) -> bool:
        """Decides on the parts from `place` on; True when nothing is left to ask for."""
        if not any(self._free) and not any(any(roles.values()) for roles in self._roles):
            return True
        if place == len(self._parts) or not self._enough_left(place) or not self._room_left(place):
            return False
        part = self._parts[place]
        return self._put(place, part, part.count, 0)

    def _put(self, place: int, part: SearchPart, left: int, first: int) -> bool:
        """Puts one more member of the part on a node from `first` on, or goes on with the next part."""
        if left and (named := self._take(part)) is not None:
            tried: set[object] = set()
            for node in range(first, len(self._idle)):
                if self.exhausted or not self._fits(part.kind, node):
                    continue
                state = (tuple(self._idle[node]), self._held[node], self._signatures[node])
                if state in tried:
                    continue
                tried.add(state)
                self._move(part.kind, node, -1)
                held, self._held[node] = self._held[node], self._held[node] | 1 << part.kind
                self._chosen.append((place, node))
                if self._put(place, part, left - 1, node):
                    return True
                self._chosen.pop()
                self._held[node] = held
                self._move(part.kind, node, 1)
            self._give_back(part, named)
        return not self.exhausted and self._decide(place + 1)

    def _take(self, part: SearchPart) -> bool | None:
        """Counts one member towards its role's minimum (True) or the rest (False); None if none is wanted."""
        roles = self._roles[part.gang]
        if roles.get(part.role):
            roles[part.role] -= 1
            return True
        if self._free[part.gang]:
            self._free[part.gang] -= 1
            return False
        return None

    def _give_back(self, part: SearchPart, named: bool) -> None:
        if named:
            self._roles[part.gang][part.role] += 1
        else:
            self._free[part.gang] += 1

    def _enough_left(self, place: int) -> bool:
        """Whether the parts from `place` on have enough members for what is still wanted."""
        for gang, (free, roles) in enumerate(zip(self._free, self._roles, strict=True)):
            counts: dict[str, int] = {}
            for part in self._parts[place:]:
                if part.gang == gang:
                    counts[part.role] = counts.get(part.role, 0) + part.count
            spare = sum(counts.values())
            for role, least in roles.items():
                if counts.get(role, 0) < least:
                    return False
                spare -= least
            if spare < free:
                return False
        return True

    def _room_left(self, place: int) -> bool:
        """Whether the members that must come from this part, as no later one can replace them, have room."""
        part = self._parts[place]
        later = sum(other.count for other in self._parts[place + 1 :] if other.gang == part.gang)
        forced = self._free[part.gang] + sum(self._roles[part.gang].values()) - later
        if forced <= 0:
            return True
        room = 0
        for node, idle in enumerate(self._idle):
            if self._fits(part.kind, node):
                asked = self._kinds[part.kind]
                alone = asked.conflicts >> part.kind & 1
                room += 1 if alone else min(idle[resource] // amount for resource, amount in asked.amounts)
        return room >= forced

    def _fits(self, kind: int, node: int) -> bool:
        self._looks += 1
        if self._looks > self._limit:
            self.exhausted = True
            return False
        asked, idle = self._kinds[kind], self._idle[node]
        if not asked.allowed[node] or asked.conflicts & self._held[node]:
            return False
        return all(idle[resource] >= amount for resource, amount in asked.amounts)

    def _move(self, kind: int, node: int, sign: int) -> None:
        idle = self._idle[node]
        for resource, amount in self._kinds[kind].amounts:
            idle[resource] += sign * amount
