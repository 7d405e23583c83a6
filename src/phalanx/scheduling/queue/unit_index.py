"""Which unit each gang belongs to: gang groups, groups of groups, gangs and pods on their own."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.scheduling.gangs.gang_groups import gang_group_of_gangs
from phalanx.scheduling.queue.unit import QueuedUnit, UnitKinds, awaits_admission
from phalanx.scheduling.queue.unschedulable import GangGroupKey, UnitKey


class UnitIndex:
    """Kept in O(change): `update` is told of the gangs whose declarations may have changed."""

    def __init__(self, state: ClusterState, kinds: UnitKinds | None = None) -> None:
        self._kinds = kinds or UnitKinds()
        self._forest = state.gangs.composites
        self._gangs = state.gangs
        self._lone_pods = state.pods.standalone
        # The units of gangs that are tied to no other, as nearly all are.
        self._alone: dict[GangKey, GangGroupKey] = {}
        # Of the others: a gang's own unit, the gangs whose unit one is, and the units in which a gang takes part.
        self._unit_of: dict[GangKey, GangGroupKey] = {}
        self._owners: dict[GangGroupKey, set[GangKey]] = {}
        self._units_with: dict[GangKey, set[GangGroupKey]] = {}
        self._oversized_groups: set[GangKey] = set()

    def gang_groups(self) -> list[GangGroupKey]:
        """All units of gangs, in order."""
        return sorted([*self._alone.values(), *self._owners])

    def asking(self) -> list[GangGroupKey]:
        """Those that ask for something, in order; nearly all have what they want."""
        alone = [unit for gang, unit in self._alone.items() if self._asks(gang)]
        return sorted([*alone, *(unit for unit, owners in self._owners.items() if any(map(self._asks, owners)))])

    def units_with(self, gang: GangKey) -> set[GangGroupKey]:
        """The units in which a gang takes part."""
        alone = self._alone.get(gang)
        return {alone} if alone is not None else self._units_with.get(gang, set())

    def stands_alone(self, gang: GangKey) -> bool:
        """Whether its own unit is the only one in which it takes part, and nobody else's."""
        return gang in self._alone or (
            len(self._units_with.get(gang, ())) == 1 and self._unit_of.get(gang) == (gang,)
        )

    def gangs_of(self, unit: GangGroupKey) -> set[GangKey]:
        """The gangs whose own unit it is."""
        return set(unit) if self._is_alone(unit) else self._owners[unit]

    def update(self, keys: list[GangKey]) -> tuple[set[GangGroupKey], list[GangGroupKey]]:
        """Follows declarations that may have changed: the gangs' own units, and those that name them.

        (the units that are new because of that, of a tree that a gang has left, say; those that are no more)
        """
        fresh: set[GangGroupKey] = set()
        dropped: list[GangGroupKey] = []
        ask = dict.fromkeys(key for key in keys if not self._stays_alone(key))
        for key in list(ask):
            self._tie(key)
            former = (self._owners[unit] for unit in self._units_with.get(key, ()))
            ask.update(dict.fromkeys(sorted(set[GangKey]().union(*former, self._forest.gangs_of_tree(key)))))
        settled: set[GangKey] = set()
        while ask:
            gang, _ = ask.popitem()
            if gang in settled:
                continue
            unit, owners = self._gang_group(gang)
            for owner in owners:
                # Whoever was tied to it may not be any more, or be so to others that were too many before.
                news = self._move(owner, unit, dropped)
                ask.update(dict.fromkeys(sorted(news - settled)))
                if news and unit is not None:
                    fresh.add(unit)
            settled.update(owners)
        return {unit for unit in fresh if unit in self._owners}, dropped

    def _stays_alone(self, key: GangKey) -> bool:
        """Whether a gang is tied to no other and never was, as nearly all are: its unit is itself."""
        record = self._gangs.get(key)
        if record is None or (spec := record.spec) is None or spec.gang_group or spec.composite is not None:
            return False
        if key in self._alone:
            return True
        if key not in self._units_with:
            self._alone[key] = (key,)
        return self.stands_alone(key)

    def _is_alone(self, unit: GangGroupKey) -> bool:
        return len(unit) == 1 and unit[0] in self._alone

    def _tie(self, key: GangKey) -> None:
        """The gang may be tied to others from now on."""
        own = self._alone.pop(key, None)
        if own is not None:
            self._unit_of[key] = own
            self._owners[own] = {key}
            self._units_with[key] = {own}

    def _move(self, gang: GangKey, unit: GangGroupKey | None, dropped: list[GangGroupKey]) -> set[GangKey]:
        """Makes `unit` the gang's own; all gangs of the former and of the new one, if that is another."""
        for each in (gang, *(unit or ())):
            self._tie(each)
        last = self._unit_of.get(gang)
        if last == unit:
            return set()
        if last is not None:
            del self._unit_of[gang]
            self._owners[last].discard(gang)
            if not self._owners[last]:
                self._drop(last)
                dropped.append(last)
        if unit is not None:
            self._unit_of[gang] = unit
            self._owners.setdefault(unit, set()).add(gang)
            for member in unit:
                self._units_with.setdefault(member, set()).add(unit)
        return {*(last or ()), *(unit or ())} - {gang}

    def _gang_group(self, key: GangKey) -> tuple[GangGroupKey | None, tuple[GangKey, ...]]:
        """The gang's unit, with those for whose word it waits, and the gangs whose unit that is."""
        record = self._declared(key)
        self._oversized_groups.discard(key)
        if record is None or record.spec is None:
            return None, (key,)
        if record.spec.composite is not None:
            return self._forest.gangs_of_tree(key), (key,)
        if not record.spec.gang_group:
            return (key,), (key,)
        gang_group = gang_group_of_gangs(record, self._gangs)
        if gang_group is None:
            self._oversized_groups.add(key)
            gang_group = {key: record}
        else:
            self._oversized_groups -= gang_group.keys()
        named = (each.spec.gang_group for each in gang_group.values() if each.spec is not None)
        return tuple(sorted({key}.union(*named))), tuple(gang_group)

    def _declared(self, key: GangKey) -> GangRecord | None:
        record = self._gangs.get(key)
        return record if record is not None and record.spec is not None else None

    def _asks(self, key: GangKey) -> bool:
        record = self._declared(key)
        return record is not None and _asks(record)

    def _drop(self, unit: GangGroupKey) -> None:
        del self._owners[unit]
        for member in unit:
            units = self._units_with[member]
            units.discard(unit)
            if not units:
                del self._units_with[member]

    def unit(self, key: UnitKey) -> QueuedUnit | None:
        """The unit as it is now; None if it wants nothing."""
        if isinstance(key, str):
            pod = self._lone_pods.get(key)
            return self._kinds.pod(key, pod, (), (), None, False) if pod is not None else None
        owners = key if self._is_alone(key) else self._owners.get(key, ())
        gangs = tuple(
            [record for member in key if member in owners and (record := self._declared(member)) is not None]
        )
        if not any(map(_asks, gangs)):
            return None
        composite, missing = self._forest.root(gangs[0]), tuple(member for member in key if member not in owners)
        over = any(gang.key in self._oversized_groups for gang in gangs)
        new_unit = self._kinds.gang_group if composite is None else self._kinds.composite
        return new_unit(key, None, gangs, missing, composite, over)


def _asks(gang: GangRecord) -> bool:
    return bool(gang.pending) or awaits_admission(gang)
