"""Scheduling queue: active units, and unschedulable units that wait for a relevant change."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import count
from math import inf

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.account import AccountKey
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState
from phalanx.scheduling.queue.demands import FifoBlocked, WaitReason
from phalanx.scheduling.queue.fifo_heads import FifoHeads, Head
from phalanx.scheduling.queue.unit import QueuedUnit, UnitKinds, awaits_admission
from phalanx.scheduling.queue.unit_index import UnitIndex
from phalanx.scheduling.queue.unschedulable import FitError, Rank, UnitKey, UnschedulableUnits


class SchedulingQueue:
    """Queue of waiting units; updates cost O(change).

    A unit is *active* after any change of it; a cycle considers only active units. A unit without room is
    *unschedulable*, grouped with all units of the same demand. When room may have grown, the first units of each
    demand are activated, as many as could have room: units behind them could not be placed. A unit that waits for a
    change of its own (for example a missing member) is not in the queue; the change activates it.
    """

    def __init__(self, state: ClusterState, kinds: UnitKinds | None = None) -> None:
        self._state = state
        self._forest = state.gangs.composites
        # The value is the unit if it is known with its rank, None if it must be looked up.
        self._active: dict[UnitKey, QueuedUnit | None] = {}
        self._unschedulable: dict[UnitKey, WaitReason] = {}
        self._groups: dict[WaitReason, UnschedulableUnits] = {}
        self._satisfied: dict[GangKey, GangRecord] = {}
        self._orphaned: dict[str, PodRecord] = {}
        self._unasked: dict[UnitKey, None] = {}
        self._unasked_until_bound: dict[UnitKey, None] = {}
        self._bound_version = state.bound_version
        self._freed_version = state.capacity_version
        self._affinity_version = state.affinity_version
        self._all_true_at = -1
        self.heads = FifoHeads()
        self._rechecks: list[tuple[float, int, UnitKey]] = []
        self._earliest: dict[UnitKey, float] = {}
        self._numbers = count()
        self._index = UnitIndex(state, kinds)

    @property
    def idle(self) -> bool:
        """True if a cycle now would do nothing."""
        return self.idle_but_for_news(True)

    def idle_but_for_news(self, refresh_verdicts: bool) -> bool:
        """Return whether a cycle now would do nothing.

        Without `refresh_verdicts` a cycle does not recheck published verdicts.
        """
        self._absorb()
        self._release_fifo_queues()
        if self._bound_version != self._state.bound_version:
            self._flush_waiting_searches()
        if (
            self._active
            or self._satisfied
            or self._orphaned
            or any(key in self._unschedulable for key in self._unasked)
        ):
            return False
        groups = self._groups if self._affinity_version != self._state.affinity_version else ()
        if self._freed_version != self._state.capacity_version or any(map(self._affinity_unblocked, groups)):
            return not self._groups
        return not refresh_verdicts or self.next_outdated() is None

    def absorb_changes(self) -> None:
        """Process the changes of the cluster. A process that runs no cycles calls this from time to time."""
        self._absorb()

    def activate_everything(self) -> None:
        """Activate all units, for example under a new policy."""
        self._absorb()
        self._unschedulable.clear()
        self._groups.clear()
        self._active |= dict.fromkeys(self._state.pods.standalone) | dict.fromkeys(self._index.asking())

    def pop_active(
        self,
        bound: Callable[[WaitReason, QueuedUnit], int],
        rank: Callable[[QueuedUnit], Rank] | None = None,
    ) -> list[QueuedUnit]:
        """Remove and return the active units, unordered.

        The caller puts a unit back with `add_unschedulable` or `requeue`. `bound` returns an upper bound on the
        number of units of a demand (it gets one of them) that could be placed now. With `rank`, unschedulable units
        are sorted again, for orders that change with time.
        """
        self._absorb()
        freed = self._freed_version != self._state.capacity_version
        for demand, group in (
            list(self._groups.items()) if freed or self._affinity_version != self._state.affinity_version else ()
        ):
            if freed or self._affinity_unblocked(demand):
                self._wake(demand, group, bound, rank)
        self._freed_version, self._affinity_version = self._state.capacity_version, self._state.affinity_version
        units = self._take_active_units()
        if self._groups and any(map(_may_unblock_affinity, units)):
            # A unit of this cycle could satisfy affinity terms of others; their turn can come right after it.
            for demand in [demand for demand in self._groups if demand.helped_by_placements]:
                self._wake(demand, self._groups[demand], bound, rank)
            units += self._take_active_units()
        return units

    def _take_active_units(self) -> list[QueuedUnit]:
        active, self._active = self._active, {}
        return [unit for key, known in active.items() if (unit := known or self._index.unit(key)) is not None]

    def all_units(self) -> list[QueuedUnit]:
        """Return all units with pending pods or awaiting admission, unschedulable or not; the queue is
        unchanged.
        """
        self._absorb()
        keys: list[UnitKey] = [*self._state.pods.standalone, *self._index.asking()]
        return [unit for key in keys if (unit := self._index.unit(key)) is not None]

    def pending_counts(self) -> dict[str, int]:
        """Return the numbers of pending pods in each of kube-scheduler's queues; the queue is unchanged.

        `active` pods have a turn in the next cycle, `backoff` pods wait for a time, `unschedulable` ones for room.
        `gated` pods have scheduling gates, or their gang waits for further members.
        """
        self._absorb()
        counts = dict.fromkeys(("active", "backoff", "unschedulable", "gated"), 0)
        counts["gated"] = sum(record.state is MemberState.GATED for record in self._state.pods.values())
        waiting: dict[UnitKey, int] = dict.fromkeys(self._state.pods.standalone, 1)
        for gang_group in self._index.gang_groups():
            waiting[gang_group] = sum(
                len(self._state.gangs[key].pending) for key in self._index.gangs_of(gang_group)
            )
        for key, pods in waiting.items():
            if key in self._active:
                counts["active"] += pods
            elif key not in self._unschedulable:
                counts["gated"] += pods
            else:
                counts["backoff" if key in self._earliest else "unschedulable"] += pods
        return counts

    def pop_satisfied(self) -> list[GangRecord]:
        """Remove and return gangs with a published verdict that have no pending pods any more."""
        satisfied, self._satisfied = self._satisfied, {}
        return [satisfied[key] for key in sorted(satisfied)]

    def pop_orphaned_nominations(self) -> list[PodRecord]:
        """Remove and return nominated pods whose gang is no longer declared, or declared by another object.

        No unit would withdraw these nominations.
        """
        orphaned, self._orphaned = self._orphaned, {}
        # A standby collects these pods long before it acts: a uid can belong to another record by then.
        known = self._state.pods
        return [
            member for uid, member in orphaned.items() if member.nomination is not None and known.get(uid) is member
        ]

    def add_unschedulable(self, unit: QueuedUnit, demand: WaitReason, fit_error: FitError) -> None:
        group = self._groups.get(demand)
        if group is None:
            group = self._groups[demand] = UnschedulableUnits(fit_error)
        group.add(unit.key, unit.rank)
        self._unschedulable[unit.key] = demand
        self._set_fit_error(group, fit_error)
        group.untold.pop(unit.key, None)

    def ask_preemption_later(self, key: UnitKey) -> None:
        """Record that no victims have been searched for an unschedulable unit yet."""
        self._unasked[key] = None

    def ask_preemption_when_bound(self, key: UnitKey) -> None:
        """Record that victims for a unit can be found once pods that are being bound have arrived."""
        if self._bound_version != self._state.bound_version:
            self._flush_waiting_searches()
        self._unasked_until_bound[key] = None

    def _flush_waiting_searches(self) -> None:
        self._bound_version = self._state.bound_version
        self._unasked.update(self._unasked_until_bound)
        self._unasked_until_bound.clear()

    def ask_preemption_for_all(self) -> None:
        """Request a search for victims for the first unit of each demand that can preempt."""
        for demand in self._groups:
            unit = self.first_preemptor(demand) if demand.may_preempt else None
            if unit is not None:
                self._unasked[unit.key] = None

    def first_preemptor(self, demand: WaitReason) -> QueuedUnit | None:
        """Return the first unit with the demand that can preempt; None if there is none."""
        group = self._groups[demand]
        first = group.first()
        unit = self._index.unit(first) if first is not None else None
        if unit is None or self._may_preempt(unit):
            return unit
        candidates = (
            (rank, candidate)
            for key, rank in group.units.items()
            if (candidate := self._index.unit(key)) is not None
        )
        return min(
            (entry for entry in candidates if self._may_preempt(entry[1])),
            key=lambda entry: entry[0],
            default=(None, None),
        )[1]

    def _may_preempt(self, unit: QueuedUnit) -> bool:
        """Return whether the preemption policies of all pending pods of the unit allow preemption."""
        if unit.pod is not None:
            return unit.pod.pod.preempts
        members = (member for gang in unit.gangs for member in gang.pending.values())
        return all(member.pod.preempts for member in members) and all(map(self._forest.preempts, unit.gangs))

    def pop_unasked(self) -> list[tuple[QueuedUnit, WaitReason, FitError]]:
        """Remove and return the unschedulable units without a search for victims, with their wait reasons.

        The caller adds them again.
        """
        unasked = []
        if self._bound_version != self._state.bound_version:
            self._flush_waiting_searches()
        for key in self._unasked:
            demand, unit = self._unschedulable.get(key), self._index.unit(key)
            if demand is not None and unit is not None:
                unasked.append((unit, demand, self._groups[demand].fit_error))
                self._remove_unschedulable(key)
        self._unasked.clear()
        return unasked

    def pop_first_unschedulable(
        self, demand: WaitReason, most: int, uncounted: Callable[[QueuedUnit], bool]
    ) -> Iterator[tuple[QueuedUnit, FitError]]:
        """Remove and yield the first `most` unschedulable units with a demand, with their fit error.

        The `uncounted` ones before them are yielded too.
        The caller adds them again.
        """
        while most > 0 and (group := self._groups.get(demand)) is not None and (key := group.first()) is not None:
            unit = self._index.unit(key)
            self._remove_unschedulable(key)
            if unit is not None:
                most -= not uncounted(unit)
                yield unit, group.fit_error

    def set_aside(self, keys: Iterable[UnitKey]) -> None:
        """Let units wait for a change of their own, ignoring changes of this cycle."""
        self._absorb()
        for key in keys:
            self._remove_unschedulable(key)
            self._active.pop(key, None)

    def requeue(self, unit: QueuedUnit) -> None:
        """Keep a unit active: the cycle's time was up before its turn."""
        self._active[unit.key] = unit

    def known_fit_error(self, demand: WaitReason) -> FitError | None:
        """Return the fit error of a demand; None if room has grown since."""
        group = self._groups.get(demand)
        if (
            group is None
            or group.may_fit
            or self._freed_version != self._state.capacity_version
            or self._affinity_unblocked(demand)
        ):
            return None
        return group.fit_error

    def _affinity_unblocked(self, demand: WaitReason) -> bool:
        """Return whether placements since the start of the last cycle can satisfy the affinity of the demand."""
        return self._affinity_version != self._state.affinity_version and demand.helped_by_placements

    # accuracy of published verdicts

    def next_outdated(self) -> tuple[WaitReason, QueuedUnit] | None:
        """Return a demand that was refused in an older state of the cluster, and its first unit; None if all are up
        to date.
        """
        if self._all_true_at == self._state.version:
            return None
        for demand, group in self._groups.items():
            if group.untold or group.may_fit or group.fit_error.version != self._state.version:
                key = group.first()
                unit = self._index.unit(key) if key is not None else None
                if unit is not None:
                    return demand, unit
        self._all_true_at = self._state.version
        return None

    def update_fit_error(self, demand: WaitReason, fit_error: FitError) -> Iterator[QueuedUnit]:
        """Update the fit error of a demand; yield the units whose verdicts are outdated."""
        group = self._groups.pop(demand)
        self._groups[demand] = group  # the last entry of the dict is rechecked last
        self._set_fit_error(group, fit_error)
        for key in list(group.untold):
            del group.untold[key]
            unit = self._index.unit(key)
            if unit is not None:
                yield unit

    def activate_first(self, demand: WaitReason) -> None:
        """Activate the first unit with this demand."""
        group = self._groups[demand]
        group.may_fit = True
        key = group.first()
        if key is not None:
            self._remove_unschedulable(key)
            self._active[key] = None

    def _set_fit_error(self, group: UnschedulableUnits, fit_error: FitError) -> None:
        if group.fit_error.facts != fit_error.facts:
            # Units with outdated verdicts stay in front.
            group.untold |= dict.fromkeys(group.units)
        group.fit_error = fit_error
        group.may_fit = False
        self._all_true_at = -1

    # start reservations

    def unit(self, key: UnitKey) -> QueuedUnit | None:
        """Return the unit; None if it has no pending pods and does not await admission."""
        self._absorb()
        return self._index.unit(key)

    def waits(self, key: UnitKey) -> bool:
        """Return whether the unit still waits."""
        return self._index.waits(key)

    def demand_of(self, key: UnitKey) -> WaitReason | None:
        """Return the wait reason of an unschedulable unit; None if it is not unschedulable."""
        return self._unschedulable.get(key)

    def waiting_demands(self) -> list[WaitReason]:
        """Return the wait reasons of all unschedulable units."""
        return list(self._groups)

    def units_with(self, demand: WaitReason) -> dict[UnitKey, Rank]:
        """Return the unschedulable units with a wait reason, and their ranks."""
        group = self._groups.get(demand)
        return dict(group.units) if group is not None else {}

    def fit_error_of(self, key: UnitKey) -> FitError | None:
        """Return the fit error of an unschedulable unit; None if it is not unschedulable."""
        demand = self._unschedulable.get(key)
        return self._groups[demand].fit_error if demand is not None else None

    def awaits_turn(self, key: UnitKey) -> bool:
        """Return whether the unit has its turn in the next cycle."""
        return key in self._active

    def activate(self, keys: Iterable[UnitKey]) -> None:
        """Activate unschedulable units for the next cycle."""
        for key in keys:
            if key in self._unschedulable:
                self._remove_unschedulable(key)
                self._active[key] = None

    def first_unschedulable(self, most: int) -> list[tuple[Rank, QueuedUnit]]:
        """Return the first `most` unschedulable units of each demand, unordered."""
        self._absorb()
        units = []
        for group in self._groups.values():
            first = group.first() if most == 1 else None
            chosen: Iterable[tuple[UnitKey, Rank]] = group.units.items()
            if first is not None:
                chosen = ((first, group.units[first]),)
            elif len(group.units) > most:
                chosen = heapq.nsmallest(most, chosen, key=lambda entry: entry[1])
            for key, rank in chosen:
                unit = self._index.unit(key)
                if unit is not None:
                    units.append((rank, unit))
        return units

    # fifo queues

    def set_fifo_head(self, queue: AccountKey, key: UnitKey, head: Head) -> None:
        """Record that a unit blocks the units behind it in its queue while it is unschedulable."""
        former = self.heads.put(key, queue, head)
        if former is not None:
            self.activate_all_of(FifoBlocked(former))

    def remove_fifo_head(self, key: UnitKey) -> None:
        """Record that a unit blocks no queue; activate the units behind it if it did."""
        former = self.heads.remove(key)
        if former is not None:
            self.activate_all_of(FifoBlocked(former))

    def fifo_head(self, queue: AccountKey, refused: Container[UnitKey], but: UnitKey) -> Head | None:
        """Return the first unit except `but` that blocks the queue: unschedulable, or `refused` in this cycle."""
        return self.heads.first(queue, lambda key: key in refused or key in self._unschedulable, but)

    def _release_fifo_queues(self) -> None:
        """Activate the units behind heads that have no pending pods any more, or wait for a change of their own.

        Only between cycles: the units of a cycle are neither active nor unschedulable.
        """
        for queue in self.heads.remove_gone(lambda key: key in self._unschedulable or key in self._active):
            self.activate_all_of(FifoBlocked(queue))

    def activate_all_of(self, demand: WaitReason) -> None:
        """Activate all units with this demand."""
        group = self._groups.get(demand)
        for key in list(group.units) if group is not None else ():
            self._remove_unschedulable(key)
            self._active[key] = None

    # timers

    def recheck_at(self, unit: QueuedUnit, when: float) -> None:
        """Activate the unit at a time, in seconds since the epoch."""
        heapq.heappush(self._rechecks, (when, next(self._numbers), unit.key))
        self._earliest[unit.key] = min(when, self._earliest.get(unit.key, when))

    def recheck_by(self, unit: QueuedUnit, when: float) -> None:
        """Activate the unit at a time, unless an earlier time is recorded."""
        if self._earliest.get(unit.key, inf) > when:
            self.recheck_at(unit, when)

    def activate_due(self, now: float) -> None:
        """Process all changes, then activate the units that are due at `now`."""
        self._absorb()
        self._release_fifo_queues()
        while self._rechecks and self._rechecks[0][0] <= now:
            key = self._pop_recheck()
            if key in self._unschedulable:
                self._remove_unschedulable(key)
                self._active[key] = None

    @property
    def next_recheck(self) -> float | None:
        """Time at which `activate_due` has its next unit; None if there is none."""
        while self._rechecks and self._rechecks[0][2] not in self._unschedulable:
            self._pop_recheck()
        return self._rechecks[0][0] if self._rechecks else None

    def _pop_recheck(self) -> UnitKey:
        _, _, key = heapq.heappop(self._rechecks)
        self._earliest.pop(key, None)
        return key

    # internal updates

    def _wake(
        self,
        demand: WaitReason,
        group: UnschedulableUnits,
        bound: Callable[[WaitReason, QueuedUnit], int],
        rank: Callable[[QueuedUnit], Rank] | None,
    ) -> None:
        key = group.first()
        unit = self._index.unit(key) if key is not None else None
        remaining = bound(demand, unit) if unit is not None else 0
        if not remaining:
            return
        if rank is not None:
            units = (self._index.unit(key) for key in list(group.units))
            group.reorder({unit.key: rank(unit) for unit in units if unit is not None})
        group.may_fit = True
        self._all_true_at = -1
        while remaining and (key := group.first()) is not None:
            self._remove_unschedulable(key)
            self._active[key] = None
            remaining -= 1

    def _remove_unschedulable(self, key: UnitKey) -> None:
        demand = self._unschedulable.pop(key, None)
        if demand is not None:
            group = self._groups[demand]
            group.discard(key)
            if not group.units:
                del self._groups[demand]

    def _absorb(self) -> None:
        if not self._state.has_changed:
            return
        gangs, pods = self._state.pop_changed()
        for uid in pods:
            self._remove_unschedulable(uid)
            self._active.pop(uid, None)
            if uid in self._state.pods.standalone:
                self._active[uid] = None
        if not (touched := [*gangs, *self._forest.moved(gangs)]):
            return
        units, dropped = self._index.update(touched)
        for unit in dropped:
            self._active.pop(unit, None)
            self._remove_unschedulable(unit)
        for key in touched:
            if self._stays_satisfied(key):
                continue
            if expired := self._expired_nominations(key):
                self._orphaned.update((member.pod.uid, member) for member in expired)
            units |= self._index.units_with(key)
        asking = {unit for unit in units if self._index.unit(unit) is not None}
        for unit in units:
            self._remove_unschedulable(unit)
            self._active.pop(unit, None)
            for gang in self._index.gangs_of(unit):
                self._record_satisfied(gang, unit in asking)
        self._active.update(dict.fromkeys(sorted(asking)))

    def _stays_satisfied(self, key: GangKey) -> bool:
        """Return whether an independent gang had and has no pending pods and no verdict, as nearly all gangs."""
        record, unit = self._state.gangs.get(key), (key,)
        return (
            record is not None
            and not record.pending
            and (record.last_verdict is None or record.last_verdict[0] is None)
            and not record.redeclared
            and self._index.stands_alone(key)
            and not awaits_admission(record)
            and unit not in self._active
            and unit not in self._unschedulable
            and key not in self._satisfied
        )

    def _record_satisfied(self, key: GangKey, asks: bool) -> None:
        record = self._state.gangs[key]
        waits = record.last_verdict is not None and record.last_verdict[0] is not None
        if waits and not asks:
            self._satisfied[key] = record
        else:
            self._satisfied.pop(key, None)

    def _expired_nominations(self, key: GangKey) -> list[PodRecord]:
        """Return nominated members of a gang that is no longer declared, or declared by another object."""
        record = self._state.gangs.get(key)
        if record is None or not (record.spec is None or record.redeclared):
            return []
        record.redeclared = False
        return [member for member in record.pending.values() if member.nomination is not None]


def _may_unblock_affinity(unit: QueuedUnit) -> bool:
    """Return whether a placement of the unit can satisfy the affinity of other pods."""
    if unit.pod is not None:
        return unit.pod.pod_class.affinity.may_unblock_others
    return any(
        member.pod_class.affinity.may_unblock_others for gang in unit.gangs for member in gang.pending.values()
    )
