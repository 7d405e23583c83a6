"""Index of units by gang: gang groups, composites, independent gangs and single pods."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.scheduling.gangs.gang_groups import gang_group_of_gangs
from phalanx.scheduling.queue.unit import QueuedUnit, UnitKinds, awaits_admission
from phalanx.scheduling.queue.unschedulable import GangGroupKey, UnitKey


class UnitIndex:
    """Index of units by their gangs. Updates cost O(change): `update` gets the gangs with a possibly changed
    declaration."""

    def __init__(self, state: ClusterState, kinds: UnitKinds | None = None) -> None:
        self._kinds = kinds or UnitKinds()
        self._forest = state.gangs.composites
        self._gangs = state.gangs
        self._lone_pods = state.pods.standalone
        # Units of independent gangs, as nearly all are.
        self._independent: dict[GangKey, GangGroupKey] = {}
        # For dependent gangs: a gang's own unit, the gangs of a unit, and all units in which a gang takes part.
        self._unit_of: dict[GangKey, GangGroupKey] = {}
        self._owners: dict[GangGroupKey, set[GangKey]] = {}
        self._units_with: dict[GangKey, set[GangGroupKey]] = {}
        self._oversized_groups: set[GangKey] = set()

    def gang_groups(self) -> list[GangGroupKey]:
        """Return the keys of all units that consist of gangs, sorted."""
        return sorted([*self._independent.values(), *self._owners])

    def asking(self) -> list[GangGroupKey]:
        """Return the units with pending pods or awaiting admission, sorted; most units have none."""
        independent = [unit for gang, unit in self._independent.items() if self._waits(gang)]
        return sorted(
            [*independent, *(unit for unit, owners in self._owners.items() if any(map(self._waits, owners)))]
        )

    def units_with(self, gang: GangKey) -> set[GangGroupKey]:
        """Return the keys of the units in which a gang takes part."""
        independent = self._independent.get(gang)
        return {independent} if independent is not None else self._units_with.get(gang, set())

    def stands_alone(self, gang: GangKey) -> bool:
        """Return whether the gang's own unit contains only the gang, and no other unit contains it."""
        return gang in self._independent or (
            len(self._units_with.get(gang, ())) == 1 and self._unit_of.get(gang) == (gang,)
        )

    def gangs_of(self, unit: GangGroupKey) -> set[GangKey]:
        """Return the gangs with `unit` as their own unit."""
        return set(unit) if self._is_independent(unit) else self._owners[unit]

    def update(self, keys: list[GangKey]) -> tuple[set[GangGroupKey], list[GangGroupKey]]:
        """Update the units of gangs with a possibly changed declaration, and of gangs that name them.

        Returns (new units, for example of a tree that a gang has left; removed units).
        """
        new_units: set[GangGroupKey] = set()
        dropped: list[GangGroupKey] = []
        queue = dict.fromkeys(key for key in keys if not self._stays_independent(key))
        for key in list(queue):
            self._index_as_dependent(key)
            former = (self._owners[unit] for unit in self._units_with.get(key, ()))
            queue.update(dict.fromkeys(sorted(set[GangKey]().union(*former, self._forest.gangs_of_tree(key)))))
        done: set[GangKey] = set()
        while queue:
            gang, _ = queue.popitem()
            if gang in done:
                continue
            unit, owners = self._gang_group(gang)
            for owner in owners:
                # Gangs of its former group can be independent now, or join gangs whose group was too large before.
                affected = self._set_unit(owner, unit, dropped)
                queue.update(dict.fromkeys(sorted(affected - done)))
                if affected and unit is not None:
                    new_units.add(unit)
            done.update(owners)
        return {unit for unit in new_units if unit in self._owners}, dropped

    def _stays_independent(self, key: GangKey) -> bool:
        """Return whether a gang is and always was independent, as nearly all are: its unit is the gang itself."""
        record = self._gangs.get(key)
        if record is None or (spec := record.spec) is None or spec.gang_group or spec.composite is not None:
            return False
        if key in self._independent:
            return True
        if key not in self._units_with:
            self._independent[key] = (key,)
        return self.stands_alone(key)

    def _is_independent(self, unit: GangGroupKey) -> bool:
        return len(unit) == 1 and unit[0] in self._independent

    def _index_as_dependent(self, key: GangKey) -> None:
        """Move a gang from the independent gangs to the index of dependent ones."""
        own = self._independent.pop(key, None)
        if own is not None:
            self._unit_of[key] = own
            self._owners[own] = {key}
            self._units_with[key] = {own}

    def _set_unit(self, gang: GangKey, unit: GangGroupKey | None, dropped: list[GangGroupKey]) -> set[GangKey]:
        """Make `unit` the gang's own unit. Return the other gangs of the former and the new unit if it has
        changed.
        """
        for member in (gang, *(unit or ())):
            self._index_as_dependent(member)
        former = self._unit_of.get(gang)
        if former == unit:
            return set()
        if former is not None:
            del self._unit_of[gang]
            self._owners[former].discard(gang)
            if not self._owners[former]:
                self._remove_unit(former)
                dropped.append(former)
        if unit is not None:
            self._unit_of[gang] = unit
            self._owners.setdefault(unit, set()).add(gang)
            for member in unit:
                self._units_with.setdefault(member, set()).add(unit)
        return {*(former or ()), *(unit or ())} - {gang}

    def _gang_group(self, key: GangKey) -> tuple[GangGroupKey | None, tuple[GangKey, ...]]:
        """Return the gang's unit, including gangs that it waits for, and the gangs that share this unit."""
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
        named = (member.spec.gang_group for member in gang_group.values() if member.spec is not None)
        return tuple(sorted({key}.union(*named))), tuple(gang_group)

    def _declared(self, key: GangKey) -> GangRecord | None:
        record = self._gangs.get(key)
        return record if record is not None and record.spec is not None else None

    def _waits(self, key: GangKey) -> bool:
        record = self._declared(key)
        return record is not None and _waits(record)

    def _remove_unit(self, unit: GangGroupKey) -> None:
        del self._owners[unit]
        for member in unit:
            units = self._units_with[member]
            units.discard(unit)
            if not units:
                del self._units_with[member]

    def waits(self, key: UnitKey) -> bool:
        """Return whether `unit` returns a unit, without building it."""
        if isinstance(key, str):
            return key in self._lone_pods
        owners = key if self._is_independent(key) else self._owners.get(key, ())
        return any(self._waits(member) for member in key if member in owners)

    def unit(self, key: UnitKey) -> QueuedUnit | None:
        """Return the unit with this key; None if it has no pending pods and does not await admission."""
        if isinstance(key, str):
            pod = self._lone_pods.get(key)
            return self._kinds.pod(key, pod, (), (), None, False) if pod is not None else None
        owners = key if self._is_independent(key) else self._owners.get(key, ())
        gangs = tuple(
            [record for member in key if member in owners and (record := self._declared(member)) is not None]
        )
        if not any(map(_waits, gangs)):
            return None
        composite, missing = self._forest.root(gangs[0]), tuple(member for member in key if member not in owners)
        over = any(gang.key in self._oversized_groups for gang in gangs)
        new_unit = self._kinds.gang_group if composite is None else self._kinds.composite
        return new_unit(key, None, gangs, missing, composite, over)


def _waits(gang: GangRecord) -> bool:
    return bool(gang.pending) or awaits_admission(gang)
