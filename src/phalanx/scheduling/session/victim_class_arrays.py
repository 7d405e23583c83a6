"""Victim classes as arrays, so that a query about all pods is a few comparisons."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.pods.victim_index import VictimClass, VictimTable
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.model.account import Tree
from phalanx.scheduling.gangs.priorities import Priorities

_QUOTAS = (Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK)
_NUMBERS, _MARKS = 3, 6


class VictimClassArrays:
    """int64[K]: `charge_path` (position in `charge_paths`), `priority` (`Priorities.victim`), `pod_priority`.
    bool[K]: `other_scheduler` (pods of other schedulers), `daemon_or_static` (pods tied to their node),
    `non_preemptible` (pods marked so), `arriving`, `self_protected` (pods protected by themselves, their gangs or
    quotas), `limited` (a cooldown or a disruption budget can apply).

    The arrays are preserved across cycles. `update` adds new classes and refreshes those of changed gangs or
    composites.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._priority = Priorities(state.gangs.composites).victim
        self.charge_paths: list[ChargePath] = []
        self._places: dict[ChargePath, int] = {}
        self._generation = self._composites = self._cursor = -1
        self._count = 0
        self._numbers: IntArray = np.zeros((_NUMBERS, 0), dtype=np.int64)
        self._marks: BoolArray = np.zeros((_MARKS, 0), dtype=np.bool_)
        self._lowest: tuple[VictimTable, LowestPriority] | None = None
        self.update()

    def update(self) -> None:
        """Update the arrays from `state.victims`; the cost depends on the changes only."""
        victims, composites = self.state.victims, self.state.gangs.composites.version
        if self._generation != victims.generation:
            self._generation, self._count = victims.generation, 0
            self.charge_paths.clear()
            self._places.clear()
        stale = victims.respecified.since(self._cursor, len(victims.kinds)) if self._cursor >= 0 else None
        if stale is None or composites != self._composites:
            stale, self._count = None, 0
        numbers = sorted({number for number in stale or () if number < self._count})
        numbers += range(self._count, len(victims.kinds))
        self._cursor, self._composites = victims.respecified.end, composites
        if not numbers:
            return
        self._count, self._lowest = len(victims.kinds), None
        self._make_room(self._count)
        rows = [self._row(victims.kinds[number]) for number in numbers]
        self._numbers[:, numbers] = np.array([row[:_NUMBERS] for row in rows], dtype=np.int64).T
        self._marks[:, numbers] = np.array([row[_NUMBERS:] for row in rows], dtype=np.bool_).T

    @property
    def charge_path(self) -> IntArray:
        return self._numbers[0, : self._count]

    @property
    def priority(self) -> IntArray:
        return self._numbers[1, : self._count]

    @property
    def pod_priority(self) -> IntArray:
        return self._numbers[2, : self._count]

    @property
    def other_scheduler(self) -> BoolArray:
        return self._marks[0, : self._count]

    @property
    def daemon_or_static(self) -> BoolArray:
        return self._marks[1, : self._count]

    @property
    def non_preemptible(self) -> BoolArray:
        return self._marks[2, : self._count]

    @property
    def arriving(self) -> BoolArray:
        return self._marks[3, : self._count]

    @property
    def self_protected(self) -> BoolArray:
        return self._marks[4, : self._count]

    @property
    def limited(self) -> BoolArray:
        return self._marks[5, : self._count]

    def lowest_priority(self, table: VictimTable) -> LowestPriority:
        """Return the lowest priority of the pods in the present table."""
        if self._lowest is None or self._lowest[0] is not table:
            self._lowest = (table, LowestPriority(self, table))
        return self._lowest[1]

    def _row(self, kind: VictimClass) -> tuple[int, ...]:
        place = self._places.setdefault(kind.charge_path, len(self.charge_paths))
        if place == len(self.charge_paths):
            self.charge_paths.append(kind.charge_path)
        return (
            place,
            self._priority(kind.gang, kind.priority),
            kind.priority,
            not kind.charge_path.key.queue,
            kind.fixture,
            not kind.preemptable,
            kind.arriving,
            not kind.preemptable or kind.charge_path.key.firm or _forbids(kind.gang),
            kind.guarded,
        )

    def _make_room(self, count: int) -> None:
        """Grow the arrays by half, so that one more class costs little."""
        have = self._numbers.shape[1]
        if count > have:
            more = max(count - have, have // 2, 64)
            self._numbers = np.pad(self._numbers, ((0, 0), (0, more)))
            self._marks = np.pad(self._marks, ((0, 0), (0, more)))


class LowestPriority:
    """The `lowest` priority of all pods on nodes, and their queues and quotas."""

    def __init__(self, classes: VictimClassArrays, table: VictimTable) -> None:
        present = table.pods(len(classes.priority)) > 0
        self.lowest = int(classes.priority[present].min()) if present.any() else None
        charge_paths = [classes.charge_paths[place] for place in np.unique(classes.charge_path[present]).tolist()]
        self.queues = {charge_path.queue for charge_path in charge_paths}
        self.quotas = any(has_quota(charge_path) for charge_path in charge_paths)


def has_quota(charge_path: ChargePath) -> bool:
    """Return whether the charge path has a quota besides a queue."""
    return any(account.key.tree in _QUOTAS for account in charge_path.path)


def _forbids(gang: GangRecord | None) -> bool:
    return gang is not None and gang.spec is not None and not gang.spec.preemptable
