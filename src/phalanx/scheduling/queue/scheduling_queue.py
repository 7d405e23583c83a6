"""What waits for a decision: units in order, and units that are parked until something can help them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from math import inf

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.account import AccountKey
from phalanx.model.gang import GangKey
from phalanx.scheduling.gangs.bundles import tied
from phalanx.scheduling.queue.signatures import Alone, Demand, Parts, Quorum, Surplus, hopes
from phalanx.scheduling.queue.unschedulable import BundleKey, Group, Rank, Refusal, UnitKey
from phalanx.scheduling.quota.limits import Turn


class Unit:
    """The unit of the queue: a bundle of gangs (mostly of one), or a pod on its own.

    `gangs` are tied to each other (`bundles`), `missing` are keys that they name and that nobody declares, or that
    do not name them in turn: they are waited for. A gang is `overbundled` where more are tied to it than may start
    as one. Of gangs in a group of groups `composite` is the root of their tree: they are one unit. `rank` and
    `band` (a prefix of it) are set when the cycle puts its units in order.
    """

    __slots__ = ("band", "composite", "gangs", "key", "missing", "overbundled", "pod", "rank")

    def __init__(
        self,
        key: UnitKey,
        pod: PodRecord | None = None,
        gangs: tuple[GangRecord, ...] = (),
        missing: tuple[GangKey, ...] = (),
        composite: GangKey | None = None,
        overbundled: bool = False,
    ) -> None:
        self.composite = composite
        self.key = key
        self.pod = pod
        self.gangs = gangs
        self.missing = missing
        self.overbundled = overbundled
        self.rank: Rank = ()
        self.band: Rank = ()

    @property
    def members(self) -> tuple[GangRecord | PodRecord, ...]:
        """The gangs, or the pod, for whom accounts are charged."""
        return (self.pod,) if self.pod is not None else self.gangs

    @property
    def name(self) -> str:
        """For people."""
        return f"pod {self.pod.pod.key}" if self.pod is not None else f"gang {self.gangs[0].key}"

    def __repr__(self) -> str:
        return f"Unit({self.pod or self.gangs})"


class WorkList:
    """Keeps the units that may get something, in O(change).

    A unit is *active* after anything about it changed; a cycle looks at active units only. One that lacks room is
    *parked* with all others of the same demand. When room may have grown anywhere, the first of them wake, as
    many as there may be room for: those behind could not get anything. One that waits for a change of its own (a
    missing member, say) is not kept here at all; the change brings it back.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._forest = state.surroundings.composites
        # With the unit where it is known and in its place in the order, None where it must be looked up.
        self._active: dict[UnitKey, Unit | None] = {}
        self._parked: dict[UnitKey, Demand] = {}
        self._groups: dict[Demand, Group] = {}
        self._content: dict[GangKey, GangRecord] = {}
        self._stray: dict[str, PodRecord] = {}
        self._unasked: dict[UnitKey, None] = {}
        self._unripe: dict[UnitKey, None] = {}
        self._ripened = state.ripened
        self._relief = state.eased()
        self._openings = state.openings
        self._all_true_at = -1
        self._heads: dict[AccountKey, dict[UnitKey, tuple[Rank, Turn]]] = {}
        self._alarms: list[tuple[float, int, UnitKey]] = []
        self._earliest: dict[UnitKey, float] = {}
        self._numbers = count()
        # A gang's own unit, the gangs whose unit one is, and the units in which a gang takes part.
        self._unit_of: dict[GangKey, BundleKey] = {}
        self._owners: dict[BundleKey, set[GangKey]] = {}
        self._units_with: dict[GangKey, set[BundleKey]] = {}
        self._overbundled: set[GangKey] = set()

    @property
    def idle(self) -> bool:
        """Whether a cycle now would find nothing to do."""
        self._absorb()
        if self._ripened != self._state.ripened:
            self._ripen()
        if self._active or self._content or self._stray or any(key in self._parked for key in self._unasked):
            return False
        if self._relief != self._state.eased() or any(map(self._has_opened, self._groups)):
            return not self._groups
        return self.next_stale() is None

    def wake_all(self) -> None:
        """Looks at everything again (a new policy, say)."""
        self._absorb()
        self._parked.clear()
        self._groups.clear()
        self._active.update(dict.fromkeys(self._state.lone))
        self._active.update(dict.fromkeys(key for key in sorted(self._owners) if self._unit(key) is not None))

    def take(self, bound: Callable[[Demand, Unit], int], rank: Callable[[Unit], Rank] | None = None) -> list[Unit]:
        """The active units, in no particular order; each leaves the list unless `park` or `keep` brings it back.

        `bound` tells at most how many units of a demand (one of which it gets) could be helped now. With `rank`
        parked units are put in order anew, for orders that change by themselves.
        """
        self._absorb()
        eased = self._relief != self._state.eased()
        for demand, group in list(self._groups.items()) if eased or self._openings != self._state.openings else ():
            if eased or self._has_opened(demand):
                self._wake(demand, group, bound, rank)
        self._relief, self._openings = self._state.eased(), self._state.openings
        units = self._take_active()
        hopeful = [demand for demand in self._groups if hopes(demand)]
        if hopeful and any(map(_opens, units)):
            # Their turn may be right after somebody of this cycle for whose sake they may go where they could not.
            for demand in hopeful:
                self._wake(demand, self._groups[demand], bound, rank)
            units += self._take_active()
        return units

    def _take_active(self) -> list[Unit]:
        active, self._active = self._active, {}
        return [unit for key, known in active.items() if (unit := known or self._unit(key)) is not None]

    def everything(self) -> list[Unit]:
        """Every unit that asks for something, parked or not, for those who ask; the list stays as it is."""
        self._absorb()
        keys: list[UnitKey] = [*self._state.lone, *sorted(self._owners)]
        return [unit for key in keys if (unit := self._unit(key)) is not None]

    def take_content(self) -> list[GangRecord]:
        """Gangs that were told why they wait and now ask for nothing (their pending pods are gone, say)."""
        content, self._content = self._content, {}
        return list(content.values())

    def take_stray(self) -> list[PodRecord]:
        """Pods for which room is held, of gangs that are not declared any more, or by another object: nobody asks
        for it."""
        stray, self._stray = self._stray, {}
        return [member for member in stray.values() if member.nomination is not None]

    def park(self, unit: Unit, demand: Demand, refusal: Refusal) -> None:
        group = self._groups.get(demand)
        if group is None:
            group = self._groups[demand] = Group(refusal)
        group.add(unit.key, unit.rank)
        self._parked[unit.key] = demand
        self._renew(group, refusal)
        group.unheard.pop(unit.key, None)

    def ask_later(self, key: UnitKey) -> None:
        """Notes that nobody has asked yet whether others may go for a parked unit."""
        self._unasked[key] = None

    def ask_when_ripe(self, key: UnitKey) -> None:
        """Notes that others may go for a unit once pods that are on their way have arrived."""
        if self._ripened != self._state.ripened:
            self._ripen()
        self._unripe[key] = None

    def _ripen(self) -> None:
        self._ripened = self._state.ripened
        self._unasked.update(self._unripe)
        self._unripe.clear()

    def ask_all(self) -> None:
        """Somebody may get room now if others go: whoever may evict and is first in order, of each demand, is asked
        about."""
        for demand in self._groups:
            unit = self.asker(demand) if isinstance(demand, Alone | Quorum | Surplus | Parts) else None
            if unit is not None:
                self._unasked[unit.key] = None

    def asker(self, demand: Demand) -> Unit | None:
        """Of those who wait with the demand the first that may evict others."""
        group = self._groups[demand]
        first = group.first()
        unit = self._unit(first) if first is not None else None
        if unit is None or self._evicts(unit):
            return unit
        others = ((rank, other) for key, rank in group.units.items() if (other := self._unit(key)) is not None)
        return min(
            (each for each in others if self._evicts(each[1])), key=lambda each: each[0], default=(None, None)
        )[1]

    def _evicts(self, unit: Unit) -> bool:
        """Whether the preemption policies of all who wait let others go for them."""
        if unit.pod is not None:
            return unit.pod.pod.preempts
        members = (member for gang in unit.gangs for member in gang.pending.values())
        return all(member.pod.preempts for member in members) and all(map(self._forest.preempts, unit.gangs))

    def take_unasked(self) -> list[tuple[Unit, Demand, Refusal]]:
        """The parked units that nobody has asked about, with what they wait for; to be parked again."""
        found = []
        if self._ripened != self._state.ripened:
            self._ripen()
        for key in self._unasked:
            demand, unit = self._parked.get(key), self._unit(key)
            if demand is not None and unit is not None:
                found.append((unit, demand, self._groups[demand].refusal))
                self._leave(key)
        self._unasked.clear()
        return found

    def set_aside(self, keys: Iterable[UnitKey]) -> None:
        """Lets units wait for a change of their own, whatever this cycle has changed about them."""
        self._absorb()
        for key in keys:
            self._leave(key)
            self._active.pop(key, None)

    def keep(self, unit: Unit) -> None:
        """Leaves a unit active (the cycle's time was up before its turn)."""
        self._active[unit.key] = unit

    def known(self, demand: Demand) -> Refusal | None:
        """The refusal of a demand for which room has not grown since."""
        group = self._groups.get(demand)
        if group is None or group.open or self._relief != self._state.eased() or self._has_opened(demand):
            return None
        return group.refusal

    def _has_opened(self, demand: Demand) -> bool:
        """Whether those have been placed since the last cycle began for whose sake it may be met."""
        return self._openings != self._state.openings and hopes(demand)

    # whether what parked units were told is still true

    def next_stale(self) -> tuple[Demand, Unit] | None:
        """A demand that was refused when the cluster looked otherwise, and the first unit that waits with it."""
        if self._all_true_at == self._state.version:
            return None
        for demand, group in self._groups.items():
            if group.unheard or group.open or group.refusal.version != self._state.version:
                key = group.first()
                unit = self._unit(key) if key is not None else None
                if unit is not None:
                    return demand, unit
        self._all_true_at = self._state.version
        return None

    def renew(self, demand: Demand, refusal: Refusal) -> Iterator[Unit]:
        """Takes in what holds now; yields the units that have not been told yet."""
        group = self._groups.pop(demand)
        self._groups[demand] = group  # last in the dict: looked at last the next time
        self._renew(group, refusal)
        for key in list(group.unheard):
            del group.unheard[key]
            unit = self._unit(key)
            if unit is not None:
                yield unit

    def wake(self, demand: Demand) -> None:
        """The first unit with this demand may get something after all."""
        group = self._groups[demand]
        group.open = True
        key = group.first()
        if key is not None:
            self._leave(key)
            self._active[key] = None

    def _renew(self, group: Group, refusal: Refusal) -> None:
        if group.refusal.facts != refusal.facts:
            # Whoever has not heard the last news either stays in front.
            group.unheard |= dict.fromkeys(group.units)
        group.refusal = refusal
        group.open = False
        self._all_true_at = -1

    # queues that keep their order

    def lead(self, queue: AccountKey, unit: Unit, rank: Rank, facts: Turn) -> None:
        """The unit holds up those behind it in its queue while it is parked."""
        self._heads.setdefault(queue, {})[unit.key] = (rank, facts)

    def head(self, queue: AccountKey) -> tuple[Rank, Turn] | None:
        """The first parked unit that holds up the queue."""
        heads = self._heads.get(queue, {})
        for key in [key for key in heads if key not in self._parked]:
            del heads[key]
        return min(heads.values(), key=lambda head: head[0], default=None)

    def release(self, demand: Demand) -> None:
        """All units with this demand may get something now."""
        group = self._groups.get(demand)
        for key in list(group.units) if group is not None else ():
            self._leave(key)
            self._active[key] = None

    # what changes by itself

    def set_alarm(self, unit: Unit, when: float) -> None:
        """Looks at the unit again at a time, in seconds since the epoch."""
        heapq.heappush(self._alarms, (when, next(self._numbers), unit.key))
        self._earliest[unit.key] = min(when, self._earliest.get(unit.key, when))

    def set_alarm_by(self, unit: Unit, when: float) -> None:
        """The same, unless it is looked at earlier anyway."""
        if self._earliest.get(unit.key, inf) > when:
            self.set_alarm(unit, when)

    def ring(self, now: float) -> None:
        """Wakes the units whose time has come."""
        while self._alarms and self._alarms[0][0] <= now:
            key = self._pop_alarm()
            if key in self._parked:
                self._leave(key)
                self._active[key] = None

    @property
    def next_alarm(self) -> float | None:
        """When `ring` next has something to do."""
        while self._alarms and self._alarms[0][2] not in self._parked:
            self._pop_alarm()
        return self._alarms[0][0] if self._alarms else None

    def _pop_alarm(self) -> UnitKey:
        _, _, key = heapq.heappop(self._alarms)
        self._earliest.pop(key, None)
        return key

    # bookkeeping

    def _wake(
        self,
        demand: Demand,
        group: Group,
        bound: Callable[[Demand, Unit], int],
        rank: Callable[[Unit], Rank] | None,
    ) -> None:
        key = group.first()
        unit = self._unit(key) if key is not None else None
        most = bound(demand, unit) if unit is not None else 0
        if not most:
            return
        if rank is not None:
            units = (self._unit(key) for key in list(group.units))
            group.rank_anew({unit.key: rank(unit) for unit in units if unit is not None})
        group.open = True
        self._all_true_at = -1
        while most and (key := group.first()) is not None:
            self._leave(key)
            self._active[key] = None
            most -= 1

    def _leave(self, key: UnitKey) -> None:
        demand = self._parked.pop(key, None)
        if demand is not None:
            group = self._groups[demand]
            group.discard(key)
            if not group.units:
                del self._groups[demand]

    def _absorb(self) -> None:
        gangs, pods = self._state.take_touched()
        for uid in pods:
            self._leave(uid)
            self._active.pop(uid, None)
            if uid in self._state.lone:
                self._active[uid] = None
        touched = [*gangs, *self._forest.moved(gangs)]
        units = self._index(touched) if touched else set()
        for key in touched:
            self._stray.update((member.pod.uid, member) for member in self._lapsed(key))
            units |= self._units_with.get(key, set())
        for unit in sorted(units):
            self._leave(unit)
            self._active.pop(unit, None)
            asks = self._unit(unit) is not None
            if asks:
                self._active[unit] = None
            for gang in self._owners[unit]:
                self._note_content(gang, asks)

    def _note_content(self, key: GangKey, asks: bool) -> None:
        record = self._state.gangs[key]
        waits = record.last_verdict is not None and record.last_verdict[0] is not None
        if waits and not asks:
            self._content[key] = record
        else:
            self._content.pop(key, None)

    def _index(self, keys: list[GangKey]) -> set[BundleKey]:
        """Keeps the index of bundles when declarations may have changed: their own units, and those that name them.
        The units that are new because of that (of a tree that a gang has left, say)."""
        fresh: set[BundleKey] = set()
        ask = dict.fromkeys(keys)
        for key in keys:
            former = (self._owners[unit] for unit in self._units_with.get(key, ()))
            ask.update(dict.fromkeys(sorted(set[GangKey]().union(*former, self._forest.kin(key)))))
        settled: set[GangKey] = set()
        while ask:
            gang, _ = ask.popitem()
            if gang in settled:
                continue
            unit, owners = self._bundle(gang)
            for owner in owners:
                # Whoever was tied to it may not be any more, or be so to others that were too many before.
                news = self._move(owner, unit)
                ask.update(dict.fromkeys(sorted(news - settled)))
                if news and unit is not None:
                    fresh.add(unit)
            settled.update(owners)
        return {unit for unit in fresh if unit in self._owners}

    def _move(self, gang: GangKey, unit: BundleKey | None) -> set[GangKey]:
        """Makes `unit` the gang's own; all gangs of the former and of the new one, if that is another."""
        last = self._unit_of.get(gang)
        if last == unit:
            return set()
        if last is not None:
            del self._unit_of[gang]
            self._owners[last].discard(gang)
            if not self._owners[last]:
                self._drop(last)
        if unit is not None:
            self._unit_of[gang] = unit
            self._owners.setdefault(unit, set()).add(gang)
            for member in unit:
                self._units_with.setdefault(member, set()).add(unit)
        return {*(last or ()), *(unit or ())} - {gang}

    def _bundle(self, key: GangKey) -> tuple[BundleKey | None, tuple[GangKey, ...]]:
        """The gang's unit, with those for whose word it waits, and the gangs whose unit that is."""
        record = self._declared(key)
        self._overbundled.discard(key)
        if record is None or record.spec is None:
            return None, (key,)
        if record.spec.composite is not None:
            return self._forest.kin(key), (key,)
        if not record.spec.bundle:
            return (key,), (key,)
        bundle = tied(record, self._state.gangs)
        if bundle is None:
            self._overbundled.add(key)
            bundle = {key: record}
        else:
            self._overbundled -= bundle.keys()
        named = (each.spec.bundle for each in bundle.values() if each.spec is not None)
        return tuple(sorted({key}.union(*named))), tuple(bundle)

    def _declared(self, key: GangKey) -> GangRecord | None:
        record = self._state.gangs.get(key)
        return record if record is not None and record.spec is not None else None

    def _lapsed(self, key: GangKey) -> list[PodRecord]:
        """Members for whom room is held although nobody declares their gang, or another object does now."""
        record = self._state.gangs.get(key)
        if record is None or not (record.spec is None or record.redeclared):
            return []
        record.redeclared = False
        return [member for member in record.pending.values() if member.nomination is not None]

    def _drop(self, unit: BundleKey) -> None:
        del self._owners[unit]
        for member in unit:
            units = self._units_with[member]
            units.discard(unit)
            if not units:
                del self._units_with[member]
        self._active.pop(unit, None)
        self._leave(unit)

    def _unit(self, key: UnitKey) -> Unit | None:
        """The unit as it is now; None if it wants nothing."""
        if isinstance(key, str):
            pod = self._state.lone.get(key)
            return Unit(key, pod) if pod is not None else None
        owners = self._owners.get(key, ())
        gangs = tuple(
            record for member in key if member in owners and (record := self._declared(member)) is not None
        )
        if not any(gang.pending or awaits_admission(gang) for gang in gangs):
            return None
        composite, missing = self._forest.root(gangs[0]), tuple(member for member in key if member not in owners)
        over = any(gang.key in self._overbundled for gang in gangs)
        return Unit(key, None, gangs, missing, composite, over)


def awaits_admission(gang: GangRecord) -> bool:
    noun = gang.spec
    return noun is not None and noun.admission and not noun.admitted and not gang.admitted


def _opens(unit: Unit) -> bool:
    """Whether others may go where they could not if its pods are placed."""
    if unit.pod is not None:
        return unit.pod.pod_class.affinity.may_unblock_others
    return any(
        member.pod_class.affinity.may_unblock_others for gang in unit.gangs for member in gang.pending.values()
    )
