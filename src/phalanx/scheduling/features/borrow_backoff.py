"""Back-off of gangs that were reclaimed from borrowed room.

Without it a stream of small pods in another queue would evict the same gang again and again: each pod reclaims the
room that the gang borrows at once when the pod has ended.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.model.reclaim_records import ReclaimedGang

# Seconds for which the room of a gang must be idle after its first reclaim; doubled at each further one up to the
# longest delay.
FIRST_DELAY = 300
LONGEST_DELAY = 86_400
# Seconds after its last reclaim when an entry expires.
FORGOTTEN_AFTER = 7 * 86_400
# The same for a gang that does not exist; a controller can create the members of a gang without an object again.
_GONE_AFTER = 3600


class BorrowBackoff:
    """Reclaimed gangs by the uid of the object that declares them; times are in seconds since the epoch.

    `version` changes with every change.
    """

    def __init__(self) -> None:
        self._gangs: dict[str, ReclaimedGang] = {}
        self.version = 0

    def __contains__(self, uid: str) -> bool:
        return uid in self._gangs

    def __bool__(self) -> bool:
        return bool(self._gangs)

    def load(self, gangs: Iterable[ReclaimedGang]) -> None:
        """Add the gangs of an earlier process."""
        self._gangs = {gang.uid: gang for gang in gangs} | self._gangs
        self.version += 1

    def export(self) -> list[ReclaimedGang]:
        """Return all entries by uid."""
        return [self._gangs[uid] for uid in sorted(self._gangs)]

    def reclaimed(self, uid: str, now: int) -> None:
        """Record that a gang was reclaimed as a whole."""
        former = self._gangs.get(uid)
        self._put(ReclaimedGang(uid, former.times + 1 if former is not None else 1, now))

    def delay(self, uid: str) -> int:
        """Return the seconds for which the room of a gang must be idle; 0 if the gang was not reclaimed."""
        gang = self._gangs.get(uid)
        return min(LONGEST_DELAY, FIRST_DELAY << min(gang.times - 1, 16)) if gang is not None else 0

    def room_idle(self, uid: str, now: int) -> int:
        """Record that the room of a reclaimed gang is idle; return the time from which the gang may borrow it."""
        gang = self._gangs[uid]
        if not gang.idle:
            gang = msgspec.structs.replace(gang, idle=now)
            self._put(gang)
        return gang.idle + self.delay(uid)

    def room_used(self, uid: str) -> None:
        """Record that the room of a reclaimed gang is not idle."""
        gang = self._gangs[uid]
        if gang.idle:
            self._put(msgspec.structs.replace(gang, idle=0))

    def expire(self, now: int, exists: Iterable[str]) -> None:
        """Remove old entries, and soon the entries of gangs whose uid does not exist any more."""
        kept = set(exists)
        for uid, gang in list(self._gangs.items()):
            if gang.last + (FORGOTTEN_AFTER if uid in kept else _GONE_AFTER) <= now:
                del self._gangs[uid]
                self.version += 1

    def _put(self, gang: ReclaimedGang) -> None:
        self._gangs[gang.uid] = gang
        self.version += 1
