"""Announced but unused amounts of admitted groups, the basis of admission."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.resources import PODS

#: Seconds without a pod after which the announced amounts of an admitted group are free again.
LAPSE = 300


class InqueueResources:
    """Sums, over the admitted groups, of the outstanding part of their minResources, updated in O(change).

    A group counts while it is admitted (by its phase, or by a recent decision of ours) and states minResources.
    Against the nodes, placed members reduce its outstanding amounts; against a namespace's quotas, created members
    do. Finished members reduce both: the group does not start them again.

    A group without any member for LAPSE seconds does not count until it has one again: its pods are not being
    created (its job is suspended, for example), and other groups would wait in vain.

    For queues, the sums are net of elastic amounts: the amounts of any group's members beyond its minResources.
    """

    def __init__(self, gangs: Mapping[GangKey, GangRecord]) -> None:
        self._gangs = gangs
        self._shares: dict[GangKey, _Share] = {}
        # Gangs that have changed themselves or in their members.
        self.stale: set[GangKey] = set()
        # Admitted groups without members, with the time since when, if recorded; the amounts of `lapsed` ones do
        # not count.
        self._memberless: dict[GangKey, float | None] = {}
        self.lapsed: set[GangKey] = set()
        self._total: dict[str, int] = {}
        self._uncreated: dict[str, dict[str, int]] = {}
        # (version of the last change, amounts) by queue; the latest change is last.
        self._queues: dict[str, tuple[int, dict[str, int]]] = {}
        self._version = 0

    def total(self) -> Mapping[str, int]:
        """Return the requested amounts of admitted groups that are not placed yet, by resource."""
        self._update_stale()
        return self._total

    def uncreated(self, namespace: str) -> Mapping[str, int]:
        """Return the amounts, pods included, for which the namespace's admitted groups have created no pods yet."""
        self._update_stale()
        return self._uncreated.get(namespace, {})

    @property
    def next_lapse(self) -> float | None:
        """When the next announcement lapses, in seconds since the epoch; 0 if the time must be recorded first."""
        self._update_stale()
        moments = (since + LAPSE if since is not None else 0.0 for since in self._memberless.values())
        return min(moments, default=None)

    def lapse(self, now: float) -> bool:
        """Let due announcements lapse. Return whether any did."""
        self._update_stale()
        lapsed = set[GangKey]()
        for key, since in self._memberless.items():
            if since is None:
                self._memberless[key] = now
            elif since + LAPSE <= now:
                lapsed.add(key)
        self.lapsed |= lapsed
        self.stale |= lapsed
        return bool(lapsed)

    def claimed_since(self, version: int) -> tuple[int, dict[str, dict[str, int]]]:
        """Return the present version, and the inqueue amounts less elastic ones of queues with a change since
        `version`.

        Amounts can be negative. Version 0 is before all changes.
        """
        self._update_stale()
        changed: dict[str, dict[str, int]] = {}
        for queue, (changed_at, amounts) in reversed(self._queues.items()):
            if changed_at <= version:
                break
            changed[queue] = dict(amounts)
        return self._version, changed

    def _update_stale(self) -> None:
        for key in self.stale:
            former, record = self._shares.pop(key, None), self._gangs.get(key)
            if former is None and key not in self.lapsed and (record is None or not _announces(record)):
                continue  # most gangs
            self._add_share(key, former, -1)
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
                self._add_share(key, share, 1)
        self.stale.clear()

    def _add_share(self, key: GangKey, share: _Share | None, sign: int) -> None:
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
    """A group's outstanding minResources (not placed, not created), and its amounts beyond these."""

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
    # The limits of created members are unknown: each counts with an equal part.
    missing_pods = max(0, spec.min_member - created[PODS])
    announced |= {name: -(-amount * missing_pods // spec.min_member) for name, amount in spec.min_limits}
    return _Share(
        spec.queue,
        {name: max(0, amount - placed.get(name, 0)) for name, amount in spec.min_resources},
        {name: missing for name, amount in announced.items() if (missing := amount - created.get(name, 0)) > 0},
        elastic,
    )


def _elastic(record: GangRecord, min_resources: Mapping[str, int]) -> dict[str, int]:
    allocated: dict[str, int] = {}
    for footprint, count in record.allocated.items():
        for name, amount in footprint.amounts.items():
            allocated[name] = allocated.get(name, 0) + amount * count
    return {
        name: surplus for name, amount in allocated.items() if (surplus := amount - min_resources.get(name, 0)) > 0
    }
