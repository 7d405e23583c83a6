"""What admitted groups have announced and do not use yet: the ledger that admission is decided on."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.members import GangRecord
from phalanx.model.gang import GangKey


class Promises:
    """Sums, over the admitted groups, of minResources minus what their members have taken, kept in O(change).

    A group counts while it was admitted (by its phase, or by us a moment ago) and names minResources. Members
    that have finished count as taken: the group does not start them again.
    """

    def __init__(self, gangs: Mapping[GangKey, GangRecord]) -> None:
        self._gangs = gangs
        self._shares: dict[GangKey, dict[str, int]] = {}
        self._stale: set[GangKey] = set()
        self._total: dict[str, int] = {}

    def changed(self, key: GangKey) -> None:
        """Something about a gang or its members is different now."""
        self._stale.add(key)

    def total(self) -> Mapping[str, int]:
        """resource -> amount promised."""
        for key in self._stale:
            self._take(self._shares.pop(key, None), -1)
            record = self._gangs.get(key)
            share = _share(record) if record is not None else None
            if share:
                self._shares[key] = share
                self._take(share, 1)
        self._stale.clear()
        return self._total

    def _take(self, share: Mapping[str, int] | None, sign: int) -> None:
        for name, amount in (share or {}).items():
            self._total[name] = self._total.get(name, 0) + sign * amount


def _share(record: GangRecord) -> dict[str, int] | None:
    noun = record.noun
    if noun is None or not noun.admission or not noun.min_resources or not (noun.admitted or record.admitted):
        return None
    taken: dict[str, int] = {}
    for member in record.members.values():
        if member.pod.node or member.target:
            for name, amount in member.pod.usage:
                taken[name] = taken.get(name, 0) + amount
    return {name: max(0, amount - taken.get(name, 0)) for name, amount in noun.min_resources}
