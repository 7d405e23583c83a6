"""Members of one gang, grouped by equal declarations."""

from __future__ import annotations

import heapq
from collections.abc import KeysView

from phalanx.dialects.gangs.agreement import Member, MemberDeclaration
from phalanx.model.gang import GangOwner


class Members:
    """Pods of a gang by gang declaration, with the oldest pod of each at hand. Adding and removing cost O(log
    n)."""

    __slots__ = ("_by_declaration", "_declared", "_job_of", "_jobs")

    def __init__(self) -> None:
        self._declared: dict[str, MemberDeclaration] = {}
        # Heaps of (created, name, uid). Entries of removed pods, or of pods with another declaration now, remain
        # until they are on top; the top entry is always valid.
        self._by_declaration: dict[MemberDeclaration, list[tuple[int, str, str]]] = {}
        # The jobs of members that have one, and how many members each job has.
        self._job_of: dict[str, GangOwner] = {}
        self._jobs: dict[GangOwner, int] = {}

    def __len__(self) -> int:
        return len(self._declared)

    def add(self, created: int, name: str, uid: str, declared: MemberDeclaration) -> bool:
        """Add a pod to the gang. Return whether the gang has to be resolved again, which a further pod with an
        equal declaration does not need."""
        self._declared[uid] = declared
        entries = self._by_declaration.get(declared)
        if entries is None:
            self._by_declaration[declared] = [(created, name, uid)]
            return True
        heapq.heappush(entries, (created, name, uid))
        return entries[0][2] == uid

    def remove(self, uid: str) -> bool:
        """Remove a pod from the gang. Return whether the gang has to be resolved again."""
        declared = self._declared.pop(uid)
        entries = self._by_declaration[declared]
        was_oldest = entries[0][2] == uid
        while entries and self._declared.get(entries[0][2]) != declared:
            heapq.heappop(entries)
        if not entries:
            del self._by_declaration[declared]
        return was_oldest

    @property
    def job(self) -> GangOwner | None:
        """The job that made all members of the gang; None if no job made one, or several jobs did."""
        if len(self._jobs) != 1 or len(self._job_of) != len(self._declared):
            return None
        return next(iter(self._jobs))

    def set_job(self, uid: str, job: GangOwner | None) -> None:
        """Record the job of a member; None also for a pod that has left the gang."""
        if (last := self._job_of.pop(uid, None)) is not None:
            self._jobs[last] -= 1
            if not self._jobs[last]:
                del self._jobs[last]
        if job is not None:
            self._job_of[uid] = job
            self._jobs[job] = self._jobs.get(job, 0) + 1

    def oldest_first(self) -> list[Member]:
        oldest = [Member(*entries[0], declared) for declared, entries in self._by_declaration.items()]
        if len(oldest) > 1:
            oldest.sort()
        return oldest

    def oldest(self) -> str:
        """Return the uid of the gang's oldest member."""
        return min(entries[0] for entries in self._by_declaration.values())[2]

    def uids(self) -> KeysView[str]:
        return self._declared.keys()

    def owned_by(self, kind: tuple[str, str]) -> bool:
        """Return whether an object of the kind defines the gang's size."""
        return any(declared.declaration.owner == kind for declared in self._by_declaration)

    def schedulers(self, active: bool = True) -> set[str]:
        """Return the schedulers of the gang's active members, or of all its members."""
        return {declared.scheduler for declared in self._by_declaration if declared.active or not active}
