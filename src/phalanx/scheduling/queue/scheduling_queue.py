"""What waits for a decision: units in order, and units that are unschedulable until something can help them."""

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
    """Keeps the units that may get something, in O(change).

    A unit is *active* after anything about it changed; a cycle looks at active units only. One that lacks room is
    *unschedulable* with all others of the same demand. When room may have grown anywhere, the first of them wake,
    as many as there may be room for: those behind could not get anything. One that waits for a change of its own (a
    missing member, say) is not kept here at all; the change brings it back.
    """

    def __init__(self, state: ClusterState, kinds: UnitKinds | None = None) -> None:
        self._state = state
        self._forest = state.gangs.composites
        # With the unit where it is known and in its place in the order, None where it must be looked up.
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
        self._heads = FifoHeads()
        self._rechecks: list[tuple[float, int, UnitKey]] = []
        self._earliest: dict[UnitKey, float] = {}
        self._numbers = count()
        self._index = UnitIndex(state, kinds)

    @property
    def idle(self) -> bool:
        """Whether a cycle now would find nothing to do."""
        return self.idle_but_for_news(True)

    def idle_but_for_news(self, refresh_verdicts: bool) -> bool:
        """Whether a cycle now would find nothing to do; without `refresh_verdicts` it does nothing to keep true
        what was told."""
        self._absorb()
        self._release_fifo_queues()
        if self._bound_version != self._state.bound_version:
            self._ask_when_bound()
        if (
            self._active
            or self._satisfied
            or self._orphaned
            or any(key in self._unschedulable for key in self._unasked)
        ):
            return False
        if self._freed_version != self._state.capacity_version or any(map(self._has_opened, self._groups)):
            return not self._groups
        return not refresh_verdicts or self.next_outdated() is None

    def absorb_changes(self) -> None:
        """Takes note of what has changed; to be called now and then by whoever runs no cycles."""
        self._absorb()

    def activate_everything(self) -> None:
        """Looks at everything again (a new policy, say)."""
        self._absorb()
        self._unschedulable.clear()
        self._groups.clear()
        self._active.update(dict.fromkeys(self._state.pods.standalone))
        self._active.update(dict.fromkeys(self._index.asking()))

    def pop_active(
        self,
        bound: Callable[[WaitReason, QueuedUnit], int],
        rank: Callable[[QueuedUnit], Rank] | None = None,
    ) -> list[QueuedUnit]:
        """The active units, in no particular order; each leaves the list unless `add_unschedulable` or `requeue`
        brings it back.

        `bound` tells at most how many units of a demand (one of which it gets) could be helped now. With `rank`
        unschedulable units are put in order anew, for orders that change by themselves.
        """
        self._absorb()
        freed = self._freed_version != self._state.capacity_version
        for demand, group in (
            list(self._groups.items()) if freed or self._affinity_version != self._state.affinity_version else ()
        ):
            if freed or self._has_opened(demand):
                self._wake(demand, group, bound, rank)
        self._freed_version, self._affinity_version = self._state.capacity_version, self._state.affinity_version
        units = self._take_active()
        helped = [demand for demand in self._groups if demand.helped_by_placements]
        if helped and any(map(_opens, units)):
            # Their turn may be right after somebody of this cycle for whose sake they may go where they could not.
            for demand in helped:
                self._wake(demand, self._groups[demand], bound, rank)
            units += self._take_active()
        return units

    def _take_active(self) -> list[QueuedUnit]:
        active, self._active = self._active, {}
        return [unit for key, known in active.items() if (unit := known or self._index.unit(key)) is not None]

    def all_units(self) -> list[QueuedUnit]:
        """Every unit that asks for something, unschedulable or not, for those who ask; the list stays as it is."""
        self._absorb()
        keys: list[UnitKey] = [*self._state.pods.standalone, *self._index.asking()]
        return [unit for key in keys if (unit := self._index.unit(key)) is not None]

    def pending_counts(self) -> dict[str, int]:
        """How many pods wait in each of kube-scheduler's queues: `active` have a turn in the next cycle, `backoff`
        wait for a time, `unschedulable` for room, `gated` have scheduling gates or belong to a gang that cannot be
        placed before others of it come. Nothing moves."""
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
        """Gangs that were told why they wait and now ask for nothing (their pending pods are gone, say)."""
        satisfied, self._satisfied = self._satisfied, {}
        return [satisfied[key] for key in sorted(satisfied)]

    def pop_orphaned_nominations(self) -> list[PodRecord]:
        """Pods for which room is held, of gangs that are not declared any more, or by another object: nobody asks
        for it."""
        orphaned, self._orphaned = self._orphaned, {}
        # (A standby hears of them long before it may act: what is known of a pod may be another record by then.)
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
        self._renew(group, fit_error)
        group.untold.pop(unit.key, None)

    def ask_preemption_later(self, key: UnitKey) -> None:
        """Notes that nobody has asked yet whether others may go for an unschedulable unit."""
        self._unasked[key] = None

    def ask_preemption_when_bound(self, key: UnitKey) -> None:
        """Notes that others may go for a unit once pods that are on their way have arrived."""
        if self._bound_version != self._state.bound_version:
            self._ask_when_bound()
        self._unasked_until_bound[key] = None

    def _ask_when_bound(self) -> None:
        self._bound_version = self._state.bound_version
        self._unasked.update(self._unasked_until_bound)
        self._unasked_until_bound.clear()

    def ask_preemption_for_all(self) -> None:
        """Somebody may get room now if others go: whoever may evict and is first in order, of each demand, is asked
        about."""
        for demand in self._groups:
            unit = self.first_preemptor(demand) if demand.may_preempt else None
            if unit is not None:
                self._unasked[unit.key] = None

    def first_preemptor(self, demand: WaitReason) -> QueuedUnit | None:
        """Of those who wait with the demand the first that may evict others."""
        group = self._groups[demand]
        first = group.first()
        unit = self._index.unit(first) if first is not None else None
        if unit is None or self._evicts(unit):
            return unit
        others = (
            (rank, other) for key, rank in group.units.items() if (other := self._index.unit(key)) is not None
        )
        return min(
            (each for each in others if self._evicts(each[1])), key=lambda each: each[0], default=(None, None)
        )[1]

    def _evicts(self, unit: QueuedUnit) -> bool:
        """Whether the preemption policies of all who wait let others go for them."""
        if unit.pod is not None:
            return unit.pod.pod.preempts
        members = (member for gang in unit.gangs for member in gang.pending.values())
        return all(member.pod.preempts for member in members) and all(map(self._forest.preempts, unit.gangs))

    def pop_unasked(self) -> list[tuple[QueuedUnit, WaitReason, FitError]]:
        """The unschedulable units that nobody has asked about, with what they wait for; to be added again."""
        found = []
        if self._bound_version != self._state.bound_version:
            self._ask_when_bound()
        for key in self._unasked:
            demand, unit = self._unschedulable.get(key), self._index.unit(key)
            if demand is not None and unit is not None:
                found.append((unit, demand, self._groups[demand].fit_error))
                self._leave(key)
        self._unasked.clear()
        return found

    def set_aside(self, keys: Iterable[UnitKey]) -> None:
        """Lets units wait for a change of their own, whatever this cycle has changed about them."""
        self._absorb()
        for key in keys:
            self._leave(key)
            self._active.pop(key, None)

    def requeue(self, unit: QueuedUnit) -> None:
        """Leaves a unit active (the cycle's time was up before its turn)."""
        self._active[unit.key] = unit

    def known_fit_error(self, demand: WaitReason) -> FitError | None:
        """The fit error of a demand for which room has not grown since."""
        group = self._groups.get(demand)
        if (
            group is None
            or group.may_fit
            or self._freed_version != self._state.capacity_version
            or self._has_opened(demand)
        ):
            return None
        return group.fit_error

    def _has_opened(self, demand: WaitReason) -> bool:
        """Whether those have been placed since the last cycle began for whose sake it may be met."""
        return self._affinity_version != self._state.affinity_version and demand.helped_by_placements

    # whether what unschedulable units were told is still true

    def next_outdated(self) -> tuple[WaitReason, QueuedUnit] | None:
        """A demand that was refused when the cluster looked otherwise, and the first unit that waits with it."""
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
        """Takes in what holds now; yields the units that have not been told yet."""
        group = self._groups.pop(demand)
        self._groups[demand] = group  # last in the dict: looked at last the next time
        self._renew(group, fit_error)
        for key in list(group.untold):
            del group.untold[key]
            unit = self._index.unit(key)
            if unit is not None:
                yield unit

    def activate_first(self, demand: WaitReason) -> None:
        """The first unit with this demand may get something after all."""
        group = self._groups[demand]
        group.may_fit = True
        key = group.first()
        if key is not None:
            self._leave(key)
            self._active[key] = None

    def _renew(self, group: UnschedulableUnits, fit_error: FitError) -> None:
        if group.fit_error.facts != fit_error.facts:
            # Whoever has not heard the last news either stays in front.
            group.untold |= dict.fromkeys(group.units)
        group.fit_error = fit_error
        group.may_fit = False
        self._all_true_at = -1

    # starts that are kept

    def unit(self, key: UnitKey) -> QueuedUnit | None:
        """The unit, if it asks for something."""
        self._absorb()
        return self._index.unit(key)

    def waits(self, key: UnitKey) -> bool:
        """Whether the unit asks for something still."""
        return self._index.unit(key) is not None

    def demand_of(self, key: UnitKey) -> WaitReason | None:
        """What an unschedulable unit waits with; None where it is not unschedulable."""
        return self._unschedulable.get(key)

    def waiting_demands(self) -> list[WaitReason]:
        """Return what unschedulable units wait with."""
        return list(self._groups)

    def units_with(self, demand: WaitReason) -> list[UnitKey]:
        """Return the unschedulable units that wait with a demand."""
        group = self._groups.get(demand)
        return list(group.units) if group is not None else []

    def fit_error_of(self, key: UnitKey) -> FitError | None:
        """Why an unschedulable unit was refused."""
        demand = self._unschedulable.get(key)
        return self._groups[demand].fit_error if demand is not None else None

    def awaits_turn(self, key: UnitKey) -> bool:
        """Whether the unit has its turn in the next cycle."""
        return key in self._active

    def activate(self, keys: Iterable[UnitKey]) -> None:
        """Gives units that are unschedulable a turn in the next cycle."""
        for key in keys:
            if key in self._unschedulable:
                self._leave(key)
                self._active[key] = None

    def first_unschedulable(self, most: int) -> list[tuple[Rank, QueuedUnit]]:
        """Of each demand the first `most` that are unschedulable, in no particular order."""
        self._absorb()
        found = []
        for group in self._groups.values():
            first = group.first() if most == 1 else None
            chosen = (
                [(first, group.units[first])]
                if first is not None
                else heapq.nsmallest(most, group.units.items(), key=lambda entry: entry[1])
            )
            for key, rank in chosen:
                unit = self._index.unit(key)
                if unit is not None:
                    found.append((rank, unit))
        return found

    # queues that keep their order

    def set_fifo_head(self, queue: AccountKey, key: UnitKey, head: Head) -> None:
        """Let a unit hold up the units behind it in its queue while it is unschedulable."""
        former = self._heads.put(key, queue, head)
        if former is not None:
            self.activate_all_of(FifoBlocked(former))

    def remove_fifo_head(self, key: UnitKey) -> None:
        """Let a unit hold up no queue; activate the units behind it if it did."""
        former = self._heads.remove(key)
        if former is not None:
            self.activate_all_of(FifoBlocked(former))

    def fifo_head(self, queue: AccountKey, refused: Container[UnitKey], but: UnitKey) -> Head | None:
        """Return the first unit, except for one, that holds up the queue: unschedulable, or `refused` in this
        cycle."""
        return self._heads.first(queue, lambda key: key in refused or key in self._unschedulable, but)

    def _release_fifo_queues(self) -> None:
        """Activate the units behind heads that ask for nothing any more, or wait for a change of their own.

        Only between cycles: the units of a cycle are neither active nor unschedulable.
        """
        for queue in self._heads.remove_gone(lambda key: key in self._unschedulable or key in self._active):
            self.activate_all_of(FifoBlocked(queue))

    def activate_all_of(self, demand: WaitReason) -> None:
        """All units with this demand may get something now."""
        group = self._groups.get(demand)
        for key in list(group.units) if group is not None else ():
            self._leave(key)
            self._active[key] = None

    # what changes by itself

    def recheck_at(self, unit: QueuedUnit, when: float) -> None:
        """Looks at the unit again at a time, in seconds since the epoch."""
        heapq.heappush(self._rechecks, (when, next(self._numbers), unit.key))
        self._earliest[unit.key] = min(when, self._earliest.get(unit.key, when))

    def recheck_by(self, unit: QueuedUnit, when: float) -> None:
        """The same, unless it is looked at earlier anyway."""
        if self._earliest.get(unit.key, inf) > when:
            self.recheck_at(unit, when)

    def activate_due(self, now: float) -> None:
        """Wakes the units whose time has come; from then on `waits` knows who is there now."""
        self._absorb()
        self._release_fifo_queues()
        while self._rechecks and self._rechecks[0][0] <= now:
            key = self._pop_recheck()
            if key in self._unschedulable:
                self._leave(key)
                self._active[key] = None

    @property
    def next_recheck(self) -> float | None:
        """When `activate_due` next has something to do."""
        while self._rechecks and self._rechecks[0][2] not in self._unschedulable:
            self._pop_recheck()
        return self._rechecks[0][0] if self._rechecks else None

    def _pop_recheck(self) -> UnitKey:
        _, _, key = heapq.heappop(self._rechecks)
        self._earliest.pop(key, None)
        return key

    # bookkeeping

    def _wake(
        self,
        demand: WaitReason,
        group: UnschedulableUnits,
        bound: Callable[[WaitReason, QueuedUnit], int],
        rank: Callable[[QueuedUnit], Rank] | None,
    ) -> None:
        key = group.first()
        unit = self._index.unit(key) if key is not None else None
        most = bound(demand, unit) if unit is not None else 0
        if not most:
            return
        if rank is not None:
            units = (self._index.unit(key) for key in list(group.units))
            group.reorder({unit.key: rank(unit) for unit in units if unit is not None})
        group.may_fit = True
        self._all_true_at = -1
        while most and (key := group.first()) is not None:
            self._leave(key)
            self._active[key] = None
            most -= 1

    def _leave(self, key: UnitKey) -> None:
        demand = self._unschedulable.pop(key, None)
        if demand is not None:
            group = self._groups[demand]
            group.discard(key)
            if not group.units:
                del self._groups[demand]

    def _absorb(self) -> None:
        gangs, pods = self._state.pop_changed()
        for uid in pods:
            self._leave(uid)
            self._active.pop(uid, None)
            if uid in self._state.pods.standalone:
                self._active[uid] = None
        touched = [*gangs, *self._forest.moved(gangs)]
        units, dropped = self._index.update(touched) if touched else (set(), [])
        for unit in dropped:
            self._active.pop(unit, None)
            self._leave(unit)
        for key in touched:
            if self._is_at_rest(key):
                continue
            if expired := self._expired_nominations(key):
                self._orphaned.update((member.pod.uid, member) for member in expired)
            units |= self._index.units_with(key)
        asking = {unit for unit in units if self._index.unit(unit) is not None}
        for unit in units:
            self._leave(unit)
            self._active.pop(unit, None)
            for gang in self._index.gangs_of(unit):
                self._note_satisfied(gang, unit in asking)
        self._active.update(dict.fromkeys(sorted(asking)))

    def _is_at_rest(self, key: GangKey) -> bool:
        """Whether a gang that is tied to no other asked for nothing and asks for nothing, as nearly all do."""
        record, unit = self._state.gangs.get(key), (key,)
        return (
            record is not None
            and not record.pending
            and record.last_verdict is None
            and not record.redeclared
            and self._index.stands_alone(key)
            and not awaits_admission(record)
            and unit not in self._active
            and unit not in self._unschedulable
            and key not in self._satisfied
        )

    def _note_satisfied(self, key: GangKey, asks: bool) -> None:
        record = self._state.gangs[key]
        waits = record.last_verdict is not None and record.last_verdict[0] is not None
        if waits and not asks:
            self._satisfied[key] = record
        else:
            self._satisfied.pop(key, None)

    def _expired_nominations(self, key: GangKey) -> list[PodRecord]:
        """Members for whom room is held although nobody declares their gang, or another object does now."""
        record = self._state.gangs.get(key)
        if record is None or not (record.spec is None or record.redeclared):
            return []
        record.redeclared = False
        return [member for member in record.pending.values() if member.nomination is not None]


def _opens(unit: QueuedUnit) -> bool:
    """Whether others may go where they could not if its pods are placed."""
    if unit.pod is not None:
        return unit.pod.pod_class.affinity.may_unblock_others
    return any(
        member.pod_class.affinity.may_unblock_others for gang in unit.gangs for member in gang.pending.values()
    )
