"""Amounts that admitted gangs have reserved by minResources but do not use, the basis of admission."""

from __future__ import annotations

import enum
import heapq
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.model.resources import PODS

#: Seconds after which the announced amounts of an admitted group without a placed member are free again.
LAPSE = 300
#: Seconds after which a group that was exempt from the lapse is examined again.
_RETRY = 60


class _Idle(enum.Enum):
    """Reason why an admitted gang uses none of its reserved amounts."""

    MEMBERLESS = enum.auto()
    UNPLACED = enum.auto()
    ENDED = enum.auto()


class InqueueResources:
    """Sums, over the admitted gangs, of the outstanding part of their minResources, updated in O(change).

    A group counts while it is admitted (by its phase, or by a recent decision of ours) and states minResources.
    Against the nodes, placed members reduce its outstanding amounts; against a namespace's quotas, created members
    do. Finished members reduce both: the group does not start them again.

    The outstanding amounts of a group do not count in these cases, so that other groups do not wait in vain:
    - It is finished: all members have ended, and its phase is Completed or no owner can create further ones.
    - It is idle for LAPSE seconds: it has no members, none of them has a node, or all of them have ended. It counts
      again when that changes.
    - Its owner is suspended.
    - It is `unplaceable`: proved not to fit on the present nodes even if these were empty.

    The unplaced amounts of a group that requests nodes from an autoscaler do not count either: it waits for nodes
    that do not exist yet. Its amounts against the namespace's quotas count.

    For queues, the sums are net of elastic amounts: the amounts of any group's members beyond its minResources.
    """

    def __init__(self, gangs: Mapping[GangKey, GangRecord]) -> None:
        self._gangs = gangs
        self._shares: dict[GangKey, _Share] = {}
        # Gangs that have changed themselves or in their members.
        self.stale: set[GangKey] = set()
        # When this process has admitted groups: their wait begins then, and not with the creation of earlier pods.
        # Recorded until their objects show it, or a member has a node.
        self.admitted_at: dict[GangKey, float] = {}
        # Idle groups, with the time since when, once it is recorded; and those whose amounts have lapsed.
        self._idle: dict[GangKey, tuple[_Idle, float | None]] = {}
        self._undated: dict[GangKey, None] = {}
        self._due: list[tuple[float, GangKey]] = []
        self.lapsed: dict[GangKey, _Idle] = {}
        # Groups that would have lapsed, but for their exemption.
        self._exempt: set[GangKey] = set()
        self._unplaceable: set[GangKey] = set()
        self._requesting_nodes: set[GangKey] = set()
        self._total: dict[str, int] = {}
        self._uncreated: dict[str, dict[str, int]] = {}
        # (version of the last change, amounts) by queue; the latest change is last.
        self._queues: dict[str, tuple[int, dict[str, int]]] = {}
        self._version = 0

    def total(self) -> Mapping[str, int]:
        """Return the sum of the amounts that admitted gangs have requested and that are not placed yet, by
        resource."""
        self._update_stale()
        return self._total

    def uncreated(self, namespace: str) -> Mapping[str, int]:
        """Return the amounts, pods included, for which the namespace's admitted gangs have created no pods yet."""
        self._update_stale()
        return self._uncreated.get(namespace, {})

    def holders(self, resources: Iterable[str]) -> list[tuple[GangKey, dict[str, int]]]:
        """Return the gangs whose outstanding amounts count, with their amounts of the resources, largest first."""
        self._update_stale()
        names = list(resources)
        found = [
            (key, {name: share.unplaced[name] for name in names if share.unplaced.get(name)})
            for key, share in self._shares.items()
        ]
        return sorted(
            (entry for entry in found if entry[1]),
            key=lambda entry: (*(-entry[1].get(name, 0) for name in names), entry[0]),
        )

    def set_unplaceable(self, key: GangKey, unplaceable: bool) -> None:
        """Record whether a gang is proved not to fit on the present nodes, so that its amounts do not count."""
        if unplaceable:
            self._unplaceable.add(key)
        else:
            self._unplaceable.discard(key)
        self.stale.add(key)

    def is_unplaceable(self, key: GangKey) -> bool:
        """Return whether a gang is recorded as proved not to fit on the present nodes."""
        return key in self._unplaceable

    def set_requesting_nodes(self, key: GangKey, requesting: bool) -> None:
        """Record whether a gang requests nodes, so that its unplaced amounts do not count."""
        if requesting:
            self._requesting_nodes.add(key)
        else:
            self._requesting_nodes.discard(key)
        self.stale.add(key)

    # the lapse

    @property
    def next_lapse(self) -> float | None:
        """Time at which the next gang loses its reserved amounts, in seconds since the epoch; 0 if the time must be
        recorded first."""
        self._update_stale()
        if self._undated:
            return 0.0
        while self._due and not self._is_idle_since(*self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def lapse(self, now: float, is_exempt: Callable[[GangKey], bool] = lambda key: False) -> bool:
        """End the reservations of gangs that have been idle for too long, but for those of gangs that are exempt.
        Return whether any ended."""
        self._update_stale()
        for key in self._undated:
            idle, _ = self._idle[key]
            since = self._since(key, idle, now)
            self._idle[key] = idle, since
            heapq.heappush(self._due, (since + LAPSE, key))
        self._undated.clear()
        lapsed = set[GangKey]()
        while self._due and self._due[0][0] <= now:
            when, key = heapq.heappop(self._due)
            if not self._is_idle_since(when, key):
                continue
            idle, _ = self._idle[key]
            if is_exempt(key):
                self._idle[key] = idle, now + _RETRY - LAPSE
                heapq.heappush(self._due, (now + _RETRY, key))
                self._exempt.add(key)
                continue
            self.lapsed[key] = idle
            lapsed.add(key)
        self.stale |= lapsed
        return bool(lapsed)

    def end_exemptions(self, is_exempt: Callable[[GangKey], bool]) -> bool:
        """End the reservations of gangs that are exempt no more. Return whether any ended."""
        self._update_stale()
        ended = {key for key in self._exempt if not is_exempt(key)}
        for key in ended:
            # A gang that is not idle any more keeps its amounts.
            if (idle := self._idle.get(key)) is not None:
                self.lapsed[key] = idle[0]
        self._exempt -= ended
        self.stale |= ended
        return bool(ended)

    def _is_idle_since(self, when: float, key: GangKey) -> bool:
        since = self._idle.get(key, (None, None))[1]
        return since is not None and since + LAPSE == when

    def _since(self, key: GangKey, idle: _Idle, now: float) -> float:
        """Return the time since which a gang is idle, from its members where that is possible: then a restart of
        the process changes nothing."""
        members = self._gangs[key].members.values()
        if idle is _Idle.ENDED:
            return float(min(now, max(member.pod.created for member in members))) or now
        if idle is _Idle.UNPLACED:
            created = min(member.pod.created for member in members if not _has_ended(member.state))
            spec = self._gangs[key].spec
            shown = spec.admitted_at if spec is not None else 0
            return float(min(now, max(created, shown, self.admitted_at.get(key, 0)))) or now
        return now

    # sums

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
            if former is None and (record is None or not _announces(record)):
                self._forget(key)
                continue  # most gangs
            self._add_share(key, former, -1)
            share = _share(record) if record is not None else None
            if record is None or share is None:
                self._forget(key)
            if record is not None and share is not None:
                # Ended members have used what was announced for placement; creation in their namespace is separate.
                idle = _idle_state(record) if share.unplaced or share.uncreated else None
                if not self._counts(key, record, idle):
                    share = share.without_outstanding()
                elif key in self._requesting_nodes:
                    share = share._replace(unplaced={})
                self._shares[key] = share
                self._add_share(key, share, 1)
        self.stale.clear()

    def _counts(self, key: GangKey, record: GangRecord, idle: _Idle | None) -> bool:
        """Return whether the outstanding amounts of a gang count; record since when it is idle."""
        if self.lapsed.get(key) is not idle:
            self.lapsed.pop(key, None)
        if record.active:
            self.admitted_at.pop(key, None)
        finished = idle is not None and _is_finished(record, idle)
        if idle is None or finished or key in self.lapsed:
            self._idle.pop(key, None)
            self._undated.pop(key, None)
            self._exempt.discard(key)
        elif self._idle.get(key, (None, None))[0] is not idle:
            self._exempt.discard(key)
            self._idle[key] = idle, None
            self._undated[key] = None
        return not (finished or key in self.lapsed or key in self._unplaceable)

    def _forget(self, key: GangKey) -> None:
        self._idle.pop(key, None)
        self._undated.pop(key, None)
        self.lapsed.pop(key, None)
        self._exempt.discard(key)
        if key not in self._gangs:
            self._unplaceable.discard(key)
            self._requesting_nodes.discard(key)
            self.admitted_at.pop(key, None)

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
    """A gang's outstanding minResources (not placed, not created), and its amounts beyond these."""

    queue: str
    unplaced: dict[str, int]
    uncreated: dict[str, int]
    elastic: dict[str, int]

    def without_outstanding(self) -> _Share:
        return _Share(self.queue, {}, {}, self.elastic)


def _announces(record: GangRecord) -> bool:
    return record.spec is not None and bool(record.spec.min_resources)


def _has_ended(state: MemberState) -> bool:
    return state in (MemberState.SUCCEEDED, MemberState.FAILED)


def _idle_state(record: GangRecord) -> _Idle | None:
    """Return why a gang uses none of its reserved amounts; None if a member occupies a node."""
    if not record.members:
        return _Idle.MEMBERLESS
    if record.active or record.count(MemberState.TERMINATING):
        return None
    ended = record.count(MemberState.SUCCEEDED) + record.count(MemberState.FAILED)
    return _Idle.ENDED if ended == len(record.members) else _Idle.UNPLACED


def _is_finished(record: GangRecord, idle: _Idle) -> bool:
    """Return whether no further member of an idle gang is to be expected."""
    spec = record.spec
    if spec is None or idle is _Idle.UNPLACED:
        return False
    return spec.completed or (idle is _Idle.ENDED and not spec.owned)


def _share(record: GangRecord) -> _Share | None:
    spec = record.spec
    if spec is None or not spec.min_resources:
        return None
    elastic = _elastic(record, dict(spec.min_resources))
    if not spec.admission or spec.suspended or not record.may_create_pods:
        return _Share(spec.queue, {}, {}, elastic) if elastic else None
    placed: dict[str, int] = {}
    created: dict[str, int] = {PODS: len(record.members)}
    for member in record.members.values():
        for name, amount in member.pod.usage:
            created[name] = created.get(name, 0) + amount
            if member.pod.node or member.assumed_node or member.unplaceable:
                placed[name] = placed.get(name, 0) + amount
    announced = {PODS: spec.min_member, **dict(spec.min_resources)}
    # The limits of created members are unknown: each counts with an equal part.
    missing_pods = max(0, spec.min_member - created[PODS])
    announced |= {name: -(-amount * missing_pods // spec.min_member) for name, amount in spec.min_limits}
    return _Share(
        spec.queue,
        {name: left for name, amount in spec.min_resources if (left := amount - placed.get(name, 0)) > 0},
        {name: missing for name, amount in announced.items() if (missing := amount - created.get(name, 0)) > 0},
        elastic,
    )


def _elastic(record: GangRecord, min_resources: Mapping[str, int]) -> dict[str, int]:
    allocated: dict[str, int] = {}
    for footprint, count in record.allocated:
        for name, amount in footprint.amounts.items():
            allocated[name] = allocated.get(name, 0) + amount * count
    return {
        name: surplus for name, amount in allocated.items() if (surplus := amount - min_resources.get(name, 0)) > 0
    }
