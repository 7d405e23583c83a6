"""Collecting as a feature of the cycle."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.state import ClusterState
from phalanx.model.collection_records import StoredCollection
from phalanx.model.gang import GangKey
from phalanx.scheduling.collecting.clocks import WaitingClocks
from phalanx.scheduling.collecting.collected_quota import CollectedQuota
from phalanx.scheduling.collecting.collection import PATIENCE, ChosenNodes, Collection
from phalanx.scheduling.collecting.eligibility import (
    above_share,
    charges_of_parts,
    collect_after,
    may_collect,
    unit_within_share_waits,
    waits_for_nodes,
    within_hard_limits,
)
from phalanx.scheduling.collecting.openings import opens_to
from phalanx.scheduling.collecting.room import CollectedRoom
from phalanx.scheduling.collecting.run_times import LearnedRunTimes
from phalanx.scheduling.collecting.stored import nodes_of, stored_collection
from phalanx.scheduling.collecting.telling import NO_ENDS, collection_sentence
from phalanx.scheduling.collecting.texts import CollectionTexts
from phalanx.scheduling.collecting.usable_nodes import choose_usable_nodes
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.framework.reservation_settings import NEVER, ReservationSettings
from phalanx.scheduling.ordering.ranks import try_to_rank
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.window import Part
from phalanx.scheduling.session.cycle_features import CycleFeatures
from phalanx.scheduling.session.cycle_plugin import CyclePlugin, Guard, Turn
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.unit_request import expected_run_time, parts_of, run_limit

# Seconds until a gang that cannot collect now is considered again.
_RETRY = 60
# Gangs for which nodes are chosen in one cycle.
_MOST_TRIES = 8


class Collecting(CyclePlugin):
    """Collections of gangs that waited too long, applied in the turns of units and between cycles.

    It costs nothing while no gang waits for room: clocks start in the turn of a refused gang.
    """

    name = "collecting"

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._state = state
        self._queue = queue
        self._settings: ReservationSettings | None = None
        self._now = 0
        self.clocks = WaitingClocks()
        self.run_times = LearnedRunTimes()
        self._has_grants = False
        self.room = CollectedRoom(state, self._ends_in_time, lambda: self._has_grants)
        # Nodes that each collection could use: bool[N].
        self._eligible: dict[UnitKey, BoolArray] = {}
        self._texts = CollectionTexts(queue)
        self._loaded: list[StoredCollection] = []
        # Gangs without room in this cycle.
        self._refused: list[QueuedUnit] = []
        # Gangs with eligible nodes on which another gang collects.
        self._blocked: dict[UnitKey, None] = {}
        self._seen = -1
        self._plan: ReservationPlan | None = None
        #: Number that grows with every change of the stored state.
        self.version = 0
        self.collections: dict[UnitKey, Collection] = self.room.collections

    # Policy

    def configure(self, policy: Policy) -> None:
        settings = policy.reservations
        self._settings = settings if settings is not None and settings.collects else None
        if self._settings is None:
            for key in list(self.collections):
                self._end(key)
            self.clocks = WaitingClocks()

    def reserved_room(self) -> CollectedRoom | None:
        return self.room if self.collections or self._loaded else None

    def _ends_in_time(self, pod_class: ClassRecord, collection: Collection) -> bool:
        """Return whether a pod of a class that starts now ends before a collection is expected to be complete."""
        if not collection.expected or self._settings is None:
            return False
        limit = pod_class.spec.run_limit
        if not limit and collection.guesses:
            limit = self.run_times.of_class(pod_class.spec)
        if not limit:
            return False
        return self._now + self._settings.start_delay + limit <= collection.expected

    # Between cycles

    def outdated(self) -> bool:
        return bool(self._texts.changed or self._loaded) or (
            bool(self.collections) and self._seen != self._state.capacity_version
        )

    def next_due(self) -> float | None:
        times = [collection.next_end for collection in self.collections.values()]
        times += [each.expected for each in self.collections.values() if each.expected > self._now]
        if (due := self.clocks.next_due) is not None:
            times.append(due)
        return min(times, default=None)

    def observe(self, now: int) -> None:
        """Learn the run times of pods that have ended."""
        if self._state.pods.ends:
            ended = self._state.pods.ends.pop()
            if self._settings is not None:
                self.run_times.learn(ended, now)

    # Within a cycle

    def advance(self, now: int) -> None:
        self._now = now

    def wake(self, session: Session) -> Iterable[UnitKey]:
        if self._loaded:
            self._restore(session)
        if self.collections:
            self._plan = plan = plan_of(session)
            self._has_grants = plan is not None and plan.active
            for collection in list(self.collections.values()):
                if collection.expected:
                    # The time decides which pods end before the collection is complete.
                    self.room.note([collection])
                self._follow(session, collection)
                if collection.expected:
                    self.room.note([collection])
            self._seen = self._state.capacity_version
        return self._texts.pop_changed()

    def guard_turn(self, session: Session, units: list[QueuedUnit], turn: Turn) -> Guard | None:
        return self._beside(session, units[0], turn, if_needed=True) if self.collections else None

    def guard_recheck(self, session: Session, unit: QueuedUnit) -> Guard | None:
        return self._beside(session, unit, Turn()) if self.collections else None

    def guard_search(self, session: Session, unit: QueuedUnit) -> Guard | None:
        return self._beside(session, unit, Turn()) if self.collections else None

    @contextmanager
    def _beside(self, session: Session, unit: QueuedUnit, turn: Turn, *, if_needed: bool = False) -> Iterator[None]:
        """Open the collections that a unit may use, and charge the others to their accounts."""
        room, quotas = self.room, session.quota_check
        opened = {
            key: collection
            for key, collection in room.collections.items()
            if key not in room.lifted and opens_to(session, collection, unit, if_needed=if_needed)
        }
        room.lifted |= opened
        room.note(opened.values())
        turn.opened |= bool(opened)
        closed = list(room.closed())
        former = quotas.reserved_quota
        if closed:
            for collection in closed:
                collection.update(self._state.nodes.idle)
            quotas.reserved_quota = CollectedQuota(quotas, closed, self._state.space.names, former)
        try:
            yield
        finally:
            quotas.reserved_quota = former
            for key in opened:
                room.lifted.pop(key, None)
            room.note(opened.values())

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        if self._settings is not None and units[0].gangs:
            self._refused += units

    def note(self, of: GangKey | str) -> str:
        return "" if isinstance(of, str) else self._texts.of(of)

    def published(self, session: Session) -> None:
        refused, self._refused = self._refused, []
        if self.clocks:
            for unit in session.units:
                if unit.key in self.clocks and unit.key not in session.unschedulable:
                    self._stop(unit.key)
        for unit in refused:
            self._follow_clock(session, unit)
        due = self.clocks.next_due
        if due is not None and due <= session.now and session.plan.complete:
            self._start_due(session)
        for collection in list(self.collections.values()):
            if not self._queue.waits(collection.key):
                self._stop(collection.key)
                continue
            collection.update(self._state.nodes.idle)
            if collection.complete and collection.key in session.attempted & session.unschedulable.keys():
                # All of its room is idle and reserved for it, and it does not fit.
                self._fail(session, collection.key)

    def _follow_clock(self, session: Session, unit: QueuedUnit) -> None:
        """Start or stop the clock of a refused gang."""
        refusal, settings = session.unschedulable.get(unit.key), self._settings
        if settings is None or refusal is None or not waits_for_nodes(session, unit, *refusal):
            self._stop(unit.key)
        elif unit.key not in self.collections:
            wait = collect_after(session, unit, settings.collect_after)
            if wait == NEVER:
                self._stop(unit.key)
            else:
                self.clocks.start(unit.key, session.now, wait)

    # State that outlives the process

    def export(self) -> list[StoredCollection]:
        """Return the collections, and the failures of units that wait, to store."""
        uids = {key: record.spec.uid for key, record in self._state.gangs.items() if record.spec is not None}
        keys = dict.fromkeys((*self.collections, *self.clocks.failures))
        nodes = self._state.nodes
        return [
            stored_collection(key, self.collections.get(key), self.clocks.failures.get(key, 0), nodes, uids)
            for key in keys
        ]

    def restore(self, collections: Iterable[StoredCollection]) -> None:
        """Load the collections of an earlier process. The next cycle continues those of units that still wait."""
        self._loaded += collections

    def _restore(self, session: Session) -> None:
        loaded, self._loaded = self._loaded, []
        for stored in loaded if self._settings is not None else ():
            unit = self._queue.unit(stored.key)
            records = [(self._state.gangs.get(GangKey(*gang[:2])), gang[2]) for gang in stored.gangs]
            known = all(record and record.spec and record.spec.uid == uid for record, uid in records)
            if unit is None or not known or stored.key in self.collections:
                continue
            if stored.failures:
                self.clocks.failures[stored.key] = stored.failures
            parts = parts_of(session, unit)
            if not stored.since or not parts or not may_collect(session, unit):
                continue
            nodes = nodes_of(stored, parts, self._state.nodes) or self._choose(session, parts)
            if nodes is not None:
                self._continue(session, unit, parts, nodes, stored)

    def _continue(
        self,
        session: Session,
        unit: QueuedUnit,
        parts: tuple[Part, ...],
        nodes: ChosenNodes,
        stored: StoredCollection,
    ) -> None:
        """Continue the collection of an earlier process."""
        collection = self._begin(session, unit, parts, nodes)
        collection.since, collection.progress_at = stored.since, stored.progress_at
        collection.counted_at, collection.most = stored.counted_at, stored.most
        collection.guesses = stored.guesses
        collection.idle_seconds = stored.idle_seconds

    # Start and end

    def _start_due(self, session: Session) -> None:
        """Start the collections of gangs that have waited long enough, the first in order first."""
        units: list[QueuedUnit] = []
        for key in self.clocks.pop_due(session.now):
            unit = self._candidate(session, key)
            if unit is None:
                self._stop(key)
            else:
                try_to_rank(session, unit)
                units.append(unit)
        for place, unit in enumerate(sorted(units, key=lambda unit: unit.rank)):
            if place < _MOST_TRIES:
                self._try_to_start(session, unit)
            else:
                self.clocks.retry_at(unit.key, session.now + _RETRY)

    def _candidate(self, session: Session, key: UnitKey) -> QueuedUnit | None:
        """Return the unit if it is a gang that still waits for nothing but room on nodes; else None."""
        unit = self._queue.unit(key)
        demand, fit_error = self._queue.demand_of(key), self._queue.fit_error_of(key)
        if unit is None or demand is None or fit_error is None:
            return None
        waits = waits_for_nodes(session, unit, demand, fit_error)
        return unit if waits and may_collect(session, unit) else None

    def _try_to_start(self, session: Session, unit: QueuedUnit) -> None:
        settings = self._settings
        assert settings is not None
        wait = collect_after(session, unit, settings.collect_after)
        parts = parts_of(session, unit)
        charges = charges_of_parts(parts)
        if wait == NEVER or not parts or not within_hard_limits(session, charges):
            self._stop(unit.key)
            return
        eligible = np.logical_or.reduce([part.rows for part in parts])
        if (above_share(session, charges) and unit_within_share_waits(session)) or self._is_behind_promise(
            session, unit, eligible
        ):
            self.clocks.retry_at(unit.key, session.now + _RETRY)
            return
        priority = session.unit_priority(unit)
        rivals = [key for key in self.collections if _overlap(self._eligible[key], eligible)]
        if any(self.collections[key].priority >= priority for key in rivals):
            self._blocked[unit.key] = None
            return
        nodes = self._choose(session, parts)
        if nodes is None or self._collection(session, unit, nodes).complete:
            self.clocks.retry_at(unit.key, session.now + (_RETRY if nodes is None else max(wait, _RETRY)))
            if nodes is None:
                self._texts.publish(unit.key, NO_ENDS)
            return  # amounts are not in its way, or nothing ends
        for key in rivals:
            self._end(key)
        collection = self._begin(session, unit, parts, nodes)
        self.clocks.stop(unit.key)
        self._tell_collection(collection)

    def _is_behind_promise(self, session: Session, unit: QueuedUnit, eligible: BoolArray) -> bool:
        """Return whether a unit before this one in the order has a promised start on nodes that both can use."""
        plan = plan_of(session)
        for reservation in plan.all() if plan is not None else ():
            ahead = self._queue.unit(reservation.key)
            if ahead is None or not any(_overlap(part.rows, eligible) for part in reservation.parts):
                continue
            try_to_rank(session, ahead)
            if ahead.rank < unit.rank:
                return True
        return False

    def _begin(self, session: Session, unit: QueuedUnit, parts: tuple[Part, ...], nodes: ChosenNodes) -> Collection:
        """Withhold room on the chosen nodes from now on."""
        self.collections[unit.key] = collection = self._collection(session, unit, nodes)
        self._eligible[unit.key] = np.logical_or.reduce([part.rows for part in parts])
        self._plan = plan_of(session)
        self.version += 1
        self._note([collection])
        return collection

    def _collection(self, session: Session, unit: QueuedUnit, nodes: ChosenNodes) -> Collection:
        priority = session.unit_priority(unit)
        run_time, idle = run_limit(unit) or expected_run_time(unit), self._state.nodes.idle
        return Collection(unit.key, unit.name, priority, nodes, run_time, idle, session.now)

    def _choose(
        self, session: Session, parts: tuple[Part, ...], former: Collection | None = None
    ) -> ChosenNodes | None:
        assert self._settings is not None
        return choose_usable_nodes(session, parts, self.run_times, self._settings.start_delay, former)

    def _follow(self, session: Session, collection: Collection) -> None:
        """Update a collection to the present cluster; end it if its reason or its patience has ended."""
        key, idle = collection.key, self._state.nodes.idle
        unit = self._queue.unit(key)
        collection.count_idle(session.now)
        if unit is None or not may_collect(session, unit):
            self._end(key)
            return
        parts = parts_of(session, unit)
        charges = charges_of_parts(parts)
        if above_share(session, charges) and unit_within_share_waits(session):
            self._end(key)
            return
        nodes = self._choose(session, parts, collection) or self._choose(session, parts)
        if nodes is None:
            self._end(key)
            self._texts.publish(key, NO_ENDS)
            return
        if session.now >= collection.expected > 0:
            collection.guesses = False
        former, wanted = collection.rows, collection.wanted
        collection.use_nodes(nodes, idle)
        if not (np.array_equal(former, collection.rows) and np.array_equal(wanted, collection.wanted)):
            self._state.nodes.changes.note_all(former.tolist())
            self._note([collection])
            self._state.room_opened()
        if collection.withheld > collection.most:
            collection.most, collection.progress_at = collection.withheld, session.now
            self.version += 1
        if collection.complete:
            # Its turn is due: no pod is backfilled before it.
            collection.expected = session.now
            self._texts.ask_turn(key)
        elif collection.overdue or session.now >= collection.progress_at + PATIENCE:
            self._fail(session, key)
            return
        self._tell_collection(collection)

    def _fail(self, session: Session, key: UnitKey) -> None:
        """End a collection in vain: the next try waits twice as long."""
        unit = self._queue.unit(key)
        self._end(key)
        if unit is not None and self._settings is not None:
            wait = collect_after(session, unit, self._settings.collect_after)
            if wait != NEVER:
                self.clocks.failed(key, session.now, wait)

    def _stop(self, key: UnitKey) -> None:
        """Stop the clock and the collection of a gang that has started, or lacks something else than room."""
        self._end(key)
        if self._queue.waits(key):
            self.clocks.stop(key)
        else:
            self.clocks.forget(key)
        self._texts.withdraw(key)

    def _end(self, key: UnitKey) -> None:
        """End a collection, and open its room to other units."""
        self._blocked.pop(key, None)
        collection = self.collections.pop(key, None)
        if collection is None:
            return
        self.room.lifted.pop(key, None)
        self._eligible.pop(key, None)
        self.version += 1
        self._note([collection])
        self._state.room_opened()
        self._texts.withdraw(key)
        for blocked in self._blocked:
            self.clocks.retry_at(blocked, self._now)
        self._blocked.clear()

    def _note(self, collections: Iterable[Collection]) -> None:
        """Invalidate the placements on the rows of changed collections, and exclude these rows from new windows."""
        self.room.note(collections)
        if self._plan is not None:
            self._plan.collect_on({key: each.rows for key, each in self.collections.items()})

    def _tell_collection(self, collection: Collection) -> None:
        self._texts.publish(collection.key, collection_sentence(self._state, collection, self._now))


def _overlap(one: BoolArray, other: BoolArray) -> bool:
    width = min(len(one), len(other))
    return bool((one[:width] & other[:width]).any())


def load_collections(features: CycleFeatures, collections: Iterable[StoredCollection]) -> None:
    """Load the collections of another process into the features of a scheduler."""
    feature = features.get(Collecting)
    if feature is not None:
        feature.restore(collections)
