"""Members of one gang, with the oldest of each declaration at hand."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import KeysView, Mapping

from phalanx.dialects.gangs.agreement import Member, MemberDeclaration
from phalanx.model.gang import GangOwner

# A gang with more members has an index. In a smaller one, a search costs less time, and much less memory.
_SEARCHED = 16


class Members:
    """Pods of a gang, and the oldest pod of each gang declaration. Adding and removing cost O(log n)."""

    __slots__ = ("_index", "_members", "job")

    def __init__(self) -> None:
        # The job that made all members of the gang; None if no job made one, or several jobs did.
        self.job: GangOwner | None = None
        self._members: dict[str, Member] = {}
        self._index: _MemberIndex | None = None

    def __len__(self) -> int:
        return len(self._members)

    def add(self, member: Member) -> bool:
        """Add a pod to the gang. Return whether the gang has to be resolved again; a further pod with an equal
        declaration and the same job does not need that."""
        last, members = self.job, self._members
        if not members:
            self.job = member.job
        elif member.job != last:
            self.job = None
        members[member.uid] = member
        if self._index is not None:
            self._index.add(member)
        elif len(members) > _SEARCHED:
            self._index = _MemberIndex(members)
        return self._is_oldest(member) or self.job != last

    def remove(self, uid: str) -> bool:
        """Remove a pod from the gang. Return whether the gang has to be resolved again."""
        last, member = self.job, self._members[uid]
        was_oldest = self._is_oldest(member)
        del self._members[uid]
        if self._index is not None:
            self._index.remove(member)
        if last is None or not self._members:
            self.job = self._common_job()
        return was_oldest or self.job != last

    def change(self, created: int, name: str, uid: str, declared: MemberDeclaration) -> bool:
        """Replace the declaration of a member. Return whether the gang has to be resolved again."""
        job = self._members[uid].job
        removed = self.remove(uid)
        return self.add(Member(created, name, uid, declared, job)) or removed

    def _is_oldest(self, member: Member) -> bool:
        """Return whether no other member with an equal declaration is older."""
        if self._index is not None:
            return self._index.oldest(member.declared).uid == member.uid
        declared = member.declared
        # A loop without calls: every pod of a list passes here.
        for other in self._members.values():  # noqa: SIM110
            if other < member and other.declared == declared:
                return False
        return True

    def _common_job(self) -> GangOwner | None:
        if self._index is not None:
            jobs = list(self._index.jobs)
        else:
            jobs = [member.job for member in self._members.values()]
        return jobs[0] if jobs and all(job == jobs[0] for job in jobs) else None

    def oldest_first(self) -> list[Member]:
        """Return the oldest member of each declaration."""
        if self._index is not None:
            return sorted(self._index.oldest_of_each())
        oldest: dict[MemberDeclaration, Member] = {}
        for member in sorted(self._members.values()):
            oldest.setdefault(member.declared, member)
        return list(oldest.values())

    def oldest(self) -> str:
        """Return the uid of the gang's oldest member."""
        return min(self._index.oldest_of_each() if self._index is not None else self._members.values()).uid

    def uids(self) -> KeysView[str]:
        return self._members.keys()

    def owned_by(self, kind: tuple[str, str]) -> bool:
        """Return whether an object of the kind defines the gang's size."""
        return any(declared.declaration.owner == kind for declared in self._declarations())

    def schedulers(self, active: bool = True) -> set[str]:
        """Return the schedulers of the gang's active members, or of all its members."""
        return {declared.scheduler for declared in self._declarations() if declared.active or not active}

    def _declarations(self) -> list[MemberDeclaration]:
        """Return the declarations of the members; in a gang without an index, one can be contained repeatedly."""
        members = self._index.oldest_of_each() if self._index is not None else self._members.values()
        return [member.declared for member in members]


class _MemberIndex:
    """Oldest members by declaration, and the number of members by job, of one large gang."""

    __slots__ = ("_by_declaration", "_members", "jobs")

    def __init__(self, members: Mapping[str, Member]) -> None:
        self.jobs: Counter[GangOwner | None] = Counter()
        self._members = members
        # Heaps of (created, name, uid). Entries of removed members, or of members with another declaration now,
        # remain until they are on top; the top entry is always valid.
        self._by_declaration: dict[MemberDeclaration, list[tuple[int, str, str]]] = {}
        for member in members.values():
            self.add(member)

    def add(self, member: Member) -> None:
        entries = self._by_declaration.setdefault(member.declared, [])
        heapq.heappush(entries, (member.created, member.name, member.uid))
        self.jobs[member.job] += 1

    def remove(self, member: Member) -> None:
        """Process a member that was removed from the gang."""
        declared = member.declared
        entries = self._by_declaration[declared]
        while entries and not self._is_valid(entries[0], declared):
            heapq.heappop(entries)
        if not entries:
            del self._by_declaration[declared]
        self.jobs[member.job] -= 1
        if not self.jobs[member.job]:
            del self.jobs[member.job]

    def _is_valid(self, entry: tuple[int, str, str], declared: MemberDeclaration) -> bool:
        member = self._members.get(entry[2])
        return member is not None and member.declared == declared and (member.created, member.name) == entry[:2]

    def oldest(self, declared: MemberDeclaration) -> Member:
        return self._members[self._by_declaration[declared][0][2]]

    def oldest_of_each(self) -> list[Member]:
        return [self._members[entries[0][2]] for entries in self._by_declaration.values()]
