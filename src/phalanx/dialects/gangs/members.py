"""The members of one gang, folded into the few distinct things that they say."""

from __future__ import annotations

import heapq
from collections.abc import KeysView

from phalanx.dialects.gangs.agreement import Member, MemberDeclaration


class Members:
    """Pods by what they declare, the oldest of each at hand. Adding and removing cost O(log n)."""

    def __init__(self) -> None:
        self._declared: dict[str, MemberDeclaration] = {}
        self._by_declaration: dict[MemberDeclaration, list[tuple[int, str, str]]] = {}
        self._sizes: dict[MemberDeclaration, int] = {}

    def __len__(self) -> int:
        return len(self._declared)

    def add(self, created: int, name: str, uid: str, declared: MemberDeclaration) -> bool:
        """True when the gang may have to be resolved again; False when the pod says nothing new."""
        self._declared[uid] = declared
        self._sizes[declared] = self._sizes.get(declared, 0) + 1
        entries = self._by_declaration.setdefault(declared, [])
        heapq.heappush(entries, (created, name, uid))
        return entries[0][2] == uid

    def remove(self, uid: str) -> bool:
        """The same answer; the pod must be a member."""
        declared = self._declared.pop(uid)
        self._sizes[declared] -= 1
        entries = self._by_declaration[declared]
        if not self._sizes[declared]:
            del self._by_declaration[declared], self._sizes[declared]
            return True
        was_oldest = entries[0][2] == uid
        # Entries of pods that left (or declare something else) stay until they come up.
        while self._declared.get(entries[0][2]) != declared:
            heapq.heappop(entries)
        return was_oldest

    def oldest_first(self) -> list[Member]:
        oldest = [Member(*entries[0], declared) for declared, entries in self._by_declaration.items()]
        if len(oldest) > 1:
            oldest.sort()
        return oldest

    def oldest(self) -> str:
        """The uid of the oldest member of all."""
        return min(entries[0] for entries in self._by_declaration.values())[2]

    def uids(self) -> KeysView[str]:
        return self._declared.keys()

    def owned_by(self, kind: tuple[str, str]) -> bool:
        """Whether objects of the kind say how many members there are."""
        return any(declared.declaration.owner == kind for declared in self._by_declaration)

    def schedulers(self, active: bool = True) -> set[str]:
        """Of the members that are active, or of all."""
        return {declared.scheduler for declared in self._by_declaration if declared.active or not active}
