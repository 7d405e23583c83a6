"""What waits for a decision: units in order, and units that are parked until something can help them."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey

UnitKey = tuple[GangKey, ...] | str


class Unit:
    """The unit of the queue: a bundle of gangs (mostly of one), or a pod on its own.

    `gangs` are the members of the bundle that exist; `missing` are keys that the bundle names and nobody declares.
    """

    __slots__ = ("gangs", "key", "missing", "pod")

    def __init__(
        self, key: UnitKey, gangs: tuple[GangRecord, ...], missing: tuple[GangKey, ...], pod: PodRecord | None
    ) -> None:
        self.key = key
        self.gangs = gangs
        self.missing = missing
        self.pod = pod

    def __repr__(self) -> str:
        return f"Unit({self.pod or self.gangs})"


class WorkList:
    """Keeps the units that may get something, in O(change).

    A unit is *active* after anything about it changed; a cycle looks at active units only. One that could not be
    helped is *parked* with the cluster's relief count of that moment and becomes active again when its own
    members or declarations change, or when room may have grown anywhere.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._active: dict[UnitKey, None] = {}
        self._parked: dict[UnitKey, None] = {}
        self._parked_at = state.relief
        self._units_of: dict[GangKey, set[tuple[GangKey, ...]]] = {}

    @property
    def idle(self) -> bool:
        """Whether a cycle now would find nothing to do."""
        self._absorb()
        return not self._active and not (self._parked and self._parked_at != self._state.relief)

    def wake_all(self) -> None:
        """Looks at everything again (a new policy, say)."""
        self._absorb()
        self._active.update(self._parked)
        self._parked.clear()

    def take(self) -> list[Unit]:
        """The active units, in no particular order; each leaves the list unless `park` or `keep` brings it back."""
        self._absorb()
        if self._parked and self._parked_at != self._state.relief:
            self._active.update(self._parked)
            self._parked.clear()
        self._parked_at = self._state.relief
        active, self._active = self._active, {}
        return [unit for key in active if (unit := self._unit(key)) is not None]

    def park(self, unit: Unit) -> None:
        self._parked[unit.key] = None

    def keep(self, unit: Unit) -> None:
        """Leaves a unit active (the cycle's time was up before its turn)."""
        self._active[unit.key] = None

    def _absorb(self) -> None:
        gangs, pods = self._state.take_touched()
        for uid in pods:
            self._parked.pop(uid, None)
            if uid in self._state.lone:
                self._active[uid] = None
            else:
                self._active.pop(uid, None)
        for key in gangs:
            self._index(key)
            for unit in sorted(self._units_of.get(key, ())):
                self._parked.pop(unit, None)
                self._active[unit] = None

    def _index(self, key: GangKey) -> None:
        """Keeps the reverse index of bundles: which units a change of this gang concerns."""
        record = self._state.gangs.get(key)
        own = {unit for unit in self._units_of.get(key, ()) if key == _owner(self._state, unit, key)}
        wanted = bundle_of(record) if record is not None and record.noun is not None else None
        for unit in own:
            if unit != wanted:
                self._drop(unit)
        if wanted is not None:
            for member in wanted:
                self._units_of.setdefault(member, set()).add(wanted)

    def _drop(self, unit: tuple[GangKey, ...]) -> None:
        for member in unit:
            units = self._units_of.get(member)
            if units is not None:
                units.discard(unit)
                if not units:
                    del self._units_of[member]
        self._active.pop(unit, None)
        self._parked.pop(unit, None)

    def _unit(self, key: UnitKey) -> Unit | None:
        if isinstance(key, str):
            pod = self._state.lone.get(key)
            return Unit(key, (), (), pod) if pod is not None else None
        gangs = tuple(self._state.gangs[member] for member in key if member in self._state.gangs)
        missing = tuple(
            member for member in key if member not in self._state.gangs or self._state.gangs[member].noun is None
        )
        gangs = tuple(gang for gang in gangs if gang.noun is not None)
        if not gangs or not any(gang.pending or _awaits_admission(gang) for gang in gangs):
            return None
        return Unit(key, gangs, missing, None)


def bundle_of(record: GangRecord) -> tuple[GangKey, ...]:
    assert record.noun is not None
    return record.noun.bundle or (record.key,)


def _owner(state: ClusterState, unit: tuple[GangKey, ...], key: GangKey) -> GangKey | None:
    """`key` if no other gang declares this very bundle, else None: a shared bundle outlives one declaration."""
    for member in unit:
        record = state.gangs.get(member)
        if member != key and record is not None and record.noun is not None and bundle_of(record) == unit:
            return None
    return key


def _awaits_admission(gang: GangRecord) -> bool:
    return gang.noun is not None and gang.noun.admission and not gang.noun.admitted


def ordered(units: list[Unit], key: Callable[[Unit], object]) -> list[Unit]:
    return sorted(units, key=key)  # type: ignore[arg-type]
