"""What admitted groups have announced and do not use yet: the ledger that admission is decided on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.resources import PODS

#: After so many seconds without a pod of an admitted group what it has announced is free again.
LAPSE = 300


class InqueueResources:
    """Sums, over the admitted groups, of what they announced in minResources and is yet to come, kept in O(change).

    A group counts while it was admitted (by its phase, or by us a moment ago) and names minResources. Against the
    nodes, members draw on it by being placed; against a namespace's quotas, by being created. Members that have
    finished count as both: the group does not start them again.

    A group without any member for LAPSE seconds does not count until there is one again: nobody makes its pods (its
    job is suspended, say), and others would wait for nothing.

    For queues the same is kept net of what is elastic: what any group's members hold beyond its minResources.
    """

    def __init__(self, gangs: Mapping[GangKey, GangRecord]) -> None:
        self._gangs = gangs
        self._shares: dict[GangKey, _Share] = {}
        # Gangs about which, or about whose members, something is different now.
        self.stale: set[GangKey] = set()
        # Admitted groups without members, and since when if that has been noted; of those `lapsed` nothing counts.
        self._memberless: dict[GangKey, float | None] = {}
        self.lapsed: set[GangKey] = set()
        self._total: dict[str, int] = {}
        self._uncreated: dict[str, dict[str, int]] = {}
        # queue -> (when it last changed, amounts); those that changed last stand last.
        self._queues: dict[str, tuple[int, dict[str, int]]] = {}
        self._version = 0

    def total(self) -> Mapping[str, int]:
        """resource -> amount that admitted groups ask for and that is not placed yet."""
        self._update_stale()
        return self._total

    def uncreated(self, namespace: str) -> Mapping[str, int]:
        """resource (pods included) -> amount for which the namespace's admitted groups have created no pods yet."""
        self._update_stale()
        return self._uncreated.get(namespace, {})

    @property
    def next_lapse(self) -> float | None:
        """When the next promise lapses, in seconds since the epoch; 0 where somebody has to note the time first."""
        self._update_stale()
        moments = (since + LAPSE if since is not None else 0.0 for since in self._memberless.values())
        return min(moments, default=None)

    def lapse(self, now: float) -> bool:
        """Lets promises lapse whose time has come; whether any has."""
        self._update_stale()
        over = set[GangKey]()
        for key, since in self._memberless.items():
            if since is None:
                self._memberless[key] = now
            elif since + LAPSE <= now:
                over.add(key)
        self.lapsed |= over
        self.stale |= over
        return bool(over)

    def claimed_since(self, version: int) -> tuple[int, dict[str, dict[str, int]]]:
        """(the version now, queue -> resource -> inqueue less elastic, of the queues where it changed since).

        Amounts may be negative. Version 0 is before everything.
        """
        self._update_stale()
        changed: dict[str, dict[str, int]] = {}
        for queue, (when, amounts) in reversed(self._queues.items()):
            if when <= version:
                break
            changed[queue] = dict(amounts)
        return self._version, changed

    def _update_stale(self) -> None:
        for key in self.stale:
            former, record = self._shares.pop(key, None), self._gangs.get(key)
            if former is None and key not in self.lapsed and (record is None or not _announces(record)):
                continue  # most gangs
            self._take(key, former, -1)
            share = _share(record) if record is not None else None
            if record is None or record.members or share is None or not share.unplaced:
                self._memberless.pop(key, None)
                self.lapsed.discard(key)
            elif key in self.lapsed:
                self._memberless.pop(key, None)
                share = None
            else:
                self._memberless.setdefault(key, None)
            if share is not None:
                self._shares[key] = share
                self._take(key, share, 1)
        self.stale.clear()

    def _take(self, key: GangKey, share: _Share | None, sign: int) -> None:
        if share is None:
            return
        add_amounts(self._total, share.unplaced, sign)
        add_amounts(self._uncreated.setdefault(key.namespace, {}), share.uncreated, sign)
        if not self._uncreated[key.namespace]:
            del self._uncreated[key.namespace]
        _, claims = self._queues.pop(share.queue, (0, {}))
        add_amounts(claims, share.unplaced, sign)
        add_amounts(claims, share.elastic, -sign)
        self._version += 1
        self._queues[share.queue] = (self._version, claims)


class _Share(NamedTuple):
    """What of a group's minResources is not placed, what is not created, and what it holds beyond."""

    queue: str
    unplaced: dict[str, int]
    uncreated: dict[str, int]
    elastic: dict[str, int]


def _announces(record: GangRecord) -> bool:
    return record.spec is not None and bool(record.spec.min_resources)


def _share(record: GangRecord) -> _Share | None:
    spec = record.spec
    if spec is None or not spec.min_resources:
        return None
    elastic = _elastic(record, dict(spec.min_resources))
    if not spec.admission or not (spec.admitted or record.admitted):
        return _Share(spec.queue, {}, {}, elastic) if elastic else None
    placed: dict[str, int] = {}
    created: dict[str, int] = {PODS: len(record.members)}
    for member in record.members.values():
        for name, amount in member.pod.usage:
            created[name] = created.get(name, 0) + amount
            if member.pod.node or member.assumed_node:
                placed[name] = placed.get(name, 0) + amount
    announced = {PODS: spec.min_member, **dict(spec.min_resources)}
    # What the limits of those are that were created nobody tells: each has its part.
    left = max(0, spec.min_member - created[PODS])
    announced |= {name: -(-amount * left // spec.min_member) for name, amount in spec.min_limits}
    return _Share(
        spec.queue,
        {name: max(0, amount - placed.get(name, 0)) for name, amount in spec.min_resources},
        {name: left for name, amount in announced.items() if (left := amount - created.get(name, 0)) > 0},
        elastic,
    )


def _elastic(record: GangRecord, least: Mapping[str, int]) -> dict[str, int]:
    held: dict[str, int] = {}
    for footprint, count in record.allocated.items():
        for name, amount in footprint.amounts.items():
            held[name] = held.get(name, 0) + amount * count
    return {name: more for name, amount in held.items() if (more := amount - least.get(name, 0)) > 0}
