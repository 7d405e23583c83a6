"""Order in which waiting units have their turns: queues alternate, then tenants within a queue, then jobs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, count

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import ROOT_QUEUE
from phalanx.scheduling.framework.plugin import Plugin
from phalanx.scheduling.ordering.surplus import SurplusTurn
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import Rank
from phalanx.scheduling.session.session import Session

Head = tuple[int, str, str]
"""(created, namespace, name) of the next unit: the tie-breaker between siblings."""
_NOBODY: Head = (0, "", "")
_OWN, _BELOW = 0, 1
CertainRoom = Callable[[list[QueuedUnit], int], list[int]]
"""For each of some pods: the number of pods like these that certainly leave room for it, itself included, in any
order. Larger numbers than the given one need not be exact."""
# Largest number of pods that are sorted by kind together, and of kinds.
_MOST_TOGETHER = 1024
_MOST_KINDS = 64


class TurnQueue:
    """Units and surplus turns in one lane, ordered by their rank alone."""

    def __init__(self) -> None:
        self._units: list[QueuedUnit] = []
        self._next = 0
        self._sorted = True
        # Index up to which units that differ in name only are sorted by kind.
        self._grouped = 0
        self._turns: list[tuple[Rank, int, SurplusTurn]] = []

    def __len__(self) -> int:
        return len(self._units) - self._next + len(self._turns)

    def add(self, unit: QueuedUnit) -> None:
        self._units.append(unit)
        self._sorted = False

    def add_turn(self, rank: Rank, number: int, turn: SurplusTurn) -> None:
        heapq.heappush(self._turns, (rank, number, turn))

    def head(self) -> Head:
        """Return the tie-breaker of the next unit; the lane must not be empty."""
        if self._next < len(self._units):
            self._sort()
            created, namespace, name = self._units[self._next].rank[-3:]
            return created, namespace, name  # type: ignore[return-value]
        gang = self._turns[0][2].gang
        return gang.spec.created if gang.spec is not None else 0, gang.key.namespace, gang.key.name

    def take(self, alone: bool, room: CertainRoom | None = None) -> list[QueuedUnit] | SurplusTurn:
        """Remove and return the next unit or turn; `alone` (no other lane waits) also the following units of its
        kind.

        Pods of one kind that were created in the same second are returned together, whatever their names: one step
        for many. With `room`, later pods of the kind too, as long as all pods that they overtake fit as well.
        """
        if self._next == len(self._units):
            return heapq.heappop(self._turns)[2]
        self._sort()
        start = self._next
        kind = _kind(self._units[start])
        if alone and kind is not None:
            if self._grouped <= start:
                self._group(start, room)
            self._next += 1
            while self._next < len(self._units) and _kind(self._units[self._next]) == kind:
                if self._grouped <= self._next:
                    if room is not None:
                        break  # the certain room of the next turn counts the units that are taken now
                    self._group(self._next, None)
                self._next += 1
        else:
            self._next += 1
        return self._units[start : self._next]

    def _sort(self) -> None:
        if not self._sorted:
            self._units[self._next :] = sorted(self._units[self._next :], key=_rank)
            self._sorted, self._grouped = True, self._next

    def _group(self, start: int, room: CertainRoom | None) -> None:
        """Sort units that differ from the one at `start` in name only by kind, in order of each kind's first unit.

        The sort ends at the first unit without kind. With `room` it includes later units.
        """
        units, age = self._units, self._units[start].rank[:-2]
        kinds: dict[Hashable, list[QueuedUnit]] = {}
        end = start
        while end < len(units) and units[end].rank[:-2] == age and (kind := _kind(units[end])) is not None:
            kinds.setdefault(kind, []).append(units[end])
            end += 1
        if room is not None and end < len(units):
            end = self._group_others(start, end, kinds, room)
        if len(kinds) > 1:
            units[start:end] = chain.from_iterable(kinds.values())
        self._grouped = end

    def _group_others(
        self, start: int, end: int, kinds: dict[Hashable, list[QueuedUnit]], room: CertainRoom
    ) -> int:
        """Add later units to `kinds` while all from `start` on certainly fit in any order; return the end index."""
        units = self._units
        # By kind: its first unit, and the place of this unit.
        first: dict[Hashable, tuple[QueuedUnit, int]] = {kind: (group[0], end) for kind, group in kinds.items()}
        if len(first) > _MOST_KINDS:
            return end
        stop = end
        while stop < len(units) and stop - start < _MOST_TOGETHER and (kind := _kind(units[stop])) is not None:
            if kind not in first:
                if len(first) > _MOST_KINDS:
                    break
                first[kind] = units[stop], stop
            stop += 1
        for (_, place), certain_count in zip(
            first.values(), room([unit for unit, _ in first.values()], stop - start), strict=True
        ):
            if place < stop:
                # A unit that is not certain to fit ends the sort before it.
                stop = min(stop, max(place, start + certain_count))
        for unit in units[end:stop]:
            kinds.setdefault(_kind(unit), []).append(unit)
        return stop


class QueueBranch:
    """Siblings of one level as a heap with sort keys that can be out of date.

    Keys only grow while a cycle allocates, as an account that gets more moves back. So only the top needs a
    recheck. `len` is the number of units and turns in all lanes below.
    """

    def __init__(self) -> None:
        self.children: dict[Hashable, tuple[Place, QueueBranch | TurnQueue]] = {}
        self.size = 0
        self._heap: list[tuple[Rank, int, Hashable]] = []

    def __len__(self) -> int:
        return self.size

    def child(self, step: Step, numbers: Iterator[int], lane: bool) -> QueueBranch | TurnQueue:
        key, place = step
        entry = self.children.get(key)
        if entry is None:
            entry = self.children[key] = (place, TurnQueue() if lane else QueueBranch())
            # A new child is empty: it goes on top, where its key is computed before the first removal.
            heapq.heappush(self._heap, ((), next(numbers), key))
        return entry[1]

    def head(self) -> Head:
        first = self.first()
        return first.head() if first is not None else _NOBODY

    def first(self) -> QueueBranch | TurnQueue | None:
        while self._heap:
            known, number, key = self._heap[0]
            place, child = self.children[key]
            if not len(child):
                heapq.heappop(self._heap)
                del self.children[key]
            elif len(self._heap) == 1 or (now := place(child)) == known:
                return child
            else:
                heapq.heapreplace(self._heap, (now, number, key))
        return None


Place = Callable[[QueueBranch | TurnQueue], Rank]
AccountPlace = Callable[[AccountRecord, QueueBranch | TurnQueue], Rank]
Step = tuple[Hashable, Place]
"""One level of the path to a lane: the key of a sibling, and the function that computes its sort key.

An account can have both own units and child accounts with units (a queue with children, a namespace whose pods name
users): its own units (`_OWN`) come before the accounts `_BELOW`.
"""


class QueueOrder:
    """Tree of all units of a cycle: repairs; queues by level; priority bands; quorums before surplus; tenants; the
    plugins' other keys, age and name.

    Every allocation can change the next unit, at a cost that only depends on the tree's depth.
    """

    def __init__(self, session: Session, units: Iterable[QueuedUnit]) -> None:
        self._session = session
        self._root = QueueBranch()
        self._numbers = count()
        self._queues = session.plugin_runtime.plugins("queue_order")
        self._tenants = session.plugin_runtime.plugins("subqueues")
        self._way: list[QueueBranch] = []
        # Lane and the branches on its path, from the root down.
        self._lanes: dict[tuple[ChargePath, Rank, int], tuple[TurnQueue, list[QueueBranch]]] = {}
        # Set where pods can be placed in another order without harm to other pods.
        self.room: CertainRoom | None = None
        # Only lane that is not empty, once known: no comparison is needed then.
        self._sole: TurnQueue | None = None
        for unit in units:
            self._lane(unit, unit.band, 0).add(unit)

    def add_turn(self, turn: SurplusTurn) -> None:
        """Add the surplus turn of a satisfied unit, after the quorums of the unit's band."""
        band = (True, *turn.unit.band[1:])
        lane = self._lane(turn.unit, band, 1)
        if lane is not self._sole:
            self._sole = None
        lane.add_turn(turn.rank(self._session), next(self._numbers), turn)

    def next(self) -> list[QueuedUnit] | SurplusTurn | None:
        """Return the next unit, run of equal pods, or surplus turn; None at the end."""
        if self._sole is not None and len(self._sole):
            return self._taken(self._sole, self._way, alone=True)
        node: QueueBranch | TurnQueue | None = self._root
        way: list[QueueBranch] = []
        while isinstance(node, QueueBranch):
            way.append(node)
            node = node.first()
        if node is None:
            return None
        alone = len(node) == len(self._root)
        self._sole, self._way = (node, way) if alone else (None, [])
        return self._taken(node, way, alone)

    @property
    def charge_paths(self) -> set[ChargePath]:
        """Charge paths of all units so far."""
        return {charge_path for charge_path, _, _ in self._lanes}

    @property
    def single(self) -> bool:
        """Whether no further unit waits."""
        return not len(self._root)

    def _taken(self, lane: TurnQueue, way: list[QueueBranch], alone: bool) -> list[QueuedUnit] | SurplusTurn:
        before = len(lane)
        turn = lane.take(alone, self.room)
        removed = before - len(lane)
        for branch in way:
            branch.size -= removed
        return turn

    def _lane(self, unit: QueuedUnit, band: Rank, stage: int) -> TurnQueue:
        """Return the lane of one more unit or turn, which the caller adds."""
        charge_path = self._charge_path(unit)
        key = (charge_path, band, stage)
        known = self._lanes.get(key)
        if known is None or not len(known[0]):
            way: list[QueueBranch] = []
            node: QueueBranch | TurnQueue = self._root
            steps = self._steps(charge_path, band, stage)
            for number, step in enumerate(steps, start=1):
                assert isinstance(node, QueueBranch)
                way.append(node)
                node = node.child(step, self._numbers, lane=number == len(steps))
            assert isinstance(node, TurnQueue)
            known = self._lanes[key] = (node, way)
        for branch in known[1]:
            branch.size += 1
        return known[0]

    def _charge_path(self, unit: QueuedUnit) -> ChargePath:
        """Return the charge path of the first gang of a gang group, or of the pod."""
        if unit.pod is not None:
            return self._session.charge_path(unit.pod)
        if len(unit.gangs) == 1:
            return self._session.charge_path(unit.gangs[0])
        return self._session.charge_path(min(unit.gangs, key=lambda gang: (self._session.rank(gang), gang.key)))

    def _steps(self, charge_path: ChargePath, band: Rank, stage: int) -> list[Step]:
        steps: list[Step] = [(band[0], lambda _: (band[0],))]
        if self._queues and charge_path.queue is not None:
            lineage = [account for account in charge_path.queue.lineage() if account.key.name != ROOT_QUEUE]
            place = partial(_queue_place, self._session, self._queues)
            steps += [_by_account(account, place) for account in reversed(lineage)]
        steps.append((("band", band, stage), lambda _: (_OWN, *band[1:], stage)))
        for plugin in self._tenants:
            for account in plugin.subqueues(self._session, charge_path):
                steps.append(_by_account(account, partial(_tenant_place, self._session)))
        steps.append(("units", lambda _: (_OWN,)))
        return steps


def _by_account(account: AccountRecord, place: AccountPlace) -> Step:
    return account.key, lambda below: (_BELOW, *place(account, below))


def _queue_place(
    session: Session, plugins: Sequence[Plugin], account: AccountRecord, below: QueueBranch | TurnQueue
) -> Rank:
    """Return the sort key of a queue. As in Volcano, the older queue is first where plugins are indifferent."""
    session.state.ledger.refresh_sums()
    created = account.spec.created if account.spec is not None else 0
    return (*[plugin.queue_order(session, account) for plugin in plugins], created, account.key.name)


def _tenant_place(session: Session, account: AccountRecord, below: QueueBranch | TurnQueue) -> Rank:
    """Return the sort key of a tenant.

    The tenant with the older next unit is first where plugins are indifferent.
    """
    session.state.ledger.refresh_sums()
    plugins = session.plugin_runtime.plugins("subqueue_order")
    return (*[plugin.subqueue_order(session, account) for plugin in plugins], *below.head(), account.key)


def _rank(unit: QueuedUnit) -> Rank:
    return unit.rank


def _kind(unit: QueuedUnit) -> Hashable:
    """Return a key that is equal for pods that can form a run; None for units that have a turn alone."""
    record: PodRecord | None = unit.pod
    if record is None or record.pod.problem or record.nomination is not None or unit.reserved:
        return None
    return record.pod_class, record.charge_path
