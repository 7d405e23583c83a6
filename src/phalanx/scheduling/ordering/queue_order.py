"""The order in which waiting units get their turn: queues take turns, then tenants within a queue, then jobs."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator
from itertools import chain, count

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.account import ROOT_QUEUE
from phalanx.scheduling.ordering.surplus import SurplusTurn
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import Rank
from phalanx.scheduling.session.session import Session

Head = tuple[int, str, str]
"""(created, namespace, name) of who is next: what decides between siblings that are equal in all else."""
_NOBODY: Head = (0, "", "")
_OWN, _BELOW = 0, 1
CertainRoom = Callable[[QueuedUnit], int]
"""Asked of a pod on its own: how many, itself included, may be placed in any order before it could find no room."""
# Pods that are put in order by kind together, at most, and kinds of them.
_MOST_TOGETHER = 1024
_MOST_KINDS = 64


class TurnQueue:
    """Units or turns that nothing but their own rank puts in order."""

    def __init__(self) -> None:
        self._units: list[QueuedUnit] = []
        self._next = 0
        self._sorted = True
        # Up to where units that differ in nothing but their names stand by kind.
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
        """Whoever is next; the lane must not be empty."""
        if self._next < len(self._units):
            self._sort()
            created, namespace, name = self._units[self._next].rank[-3:]
            return created, namespace, name  # type: ignore[return-value]
        gang = self._turns[0][2].gang
        return gang.spec.created if gang.spec is not None else 0, gang.key.namespace, gang.key.name

    def take(self, alone: bool, room: CertainRoom | None = None) -> list[QueuedUnit] | SurplusTurn:
        """The first unit (with those behind it that are of its kind, if nobody else is waiting) or turn.

        Pods of its kind that were created in the same second come along, whatever their names: one step for many.
        With `room` so do later ones, as long as all that they overtake find room as well.
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
                        break  # what is certain then must count those that are taken now
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
        """Puts those who differ from the one at `start` in nothing but their names by kind, each kind where its
        first one was; up to the first that goes by itself. With `room` others behind them, too."""
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
        """Adds to `kinds` who comes later, while all from `start` on are certain to find room in whatever order; up
        to where it got."""
        units, least = self._units, _MOST_TOGETHER
        for alike in list(kinds.values()) if len(kinds) <= _MOST_KINDS else ():
            least = min(least, room(alike[0]))
            if least <= end - start:
                return end
        while len(kinds) <= _MOST_KINDS and end < len(units) and end - start < least:
            unit = units[end]
            kind = _kind(unit)
            if kind is None:
                break
            if kind not in kinds:
                least = min(least, room(unit))
                if end - start >= least:
                    break
                kinds[kind] = []
            kinds[kind].append(unit)
            end += 1
        return end


class QueueBranch:
    """Siblings of one level, the first in order on top of a heap whose places may be out of date.

    Places only grow while a cycle allocates (who gets more goes further back), so it is enough to look again at
    the one on top. `len` counts the units and turns in all lanes below.
    """

    def __init__(self) -> None:
        self.children: dict[Hashable, tuple[Place, QueueBranch | TurnQueue]] = {}
        self.size = 0
        self._heap: list[tuple[Rank, int, Hashable]] = []

    def __len__(self) -> int:
        return self.size

    def child(self, step: Step, numbers: Iterator[int], lane: bool) -> QueueBranch | TurnQueue:
        key, place = step
        found = self.children.get(key)
        if found is None:
            found = self.children[key] = (place, TurnQueue() if lane else QueueBranch())
            # Nobody is in it yet: it goes on top, where its place is looked up before anybody is taken from it.
            heapq.heappush(self._heap, ((), next(numbers), key))
        return found[1]

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
Step = tuple[Hashable, Place]
"""One level of the way to a lane: what tells siblings apart, and the place of one among them now.

An account may have units of its own and accounts below that have some (a queue that takes none but has children, a
namespace of which some pods name their user): what is its own, `_OWN`, comes before what is `_BELOW`.
"""


class QueueOrder:
    """All units of a cycle, as a tree: repairs; queues, level by level; bands of priority; quorums before surplus;
    tenants; the plugins' other keys, age and name.

    Every allocation may change who is next, at a cost that depends on the depth of the tree only.
    """

    def __init__(self, session: Session, units: Iterable[QueuedUnit]) -> None:
        self._session = session
        self._root = QueueBranch()
        self._numbers = count()
        self._queues = session.plugin_runtime.plugins("queue_order")
        self._tenants = session.plugin_runtime.plugins("subqueues")
        self._way: list[QueueBranch] = []
        # A lane and the branches that lead to it, from the root down.
        self._lanes: dict[tuple[ChargePath, Rank, int], tuple[TurnQueue, list[QueueBranch]]] = {}
        # Set where pods may be placed in another order if that is to nobody's harm.
        self.room: CertainRoom | None = None
        # The one lane that has anybody left, once that is known: then nobody needs to be compared.
        self._sole: TurnQueue | None = None
        for unit in units:
            self._lane(unit, unit.band, 0).add(unit)

    def add_turn(self, turn: SurplusTurn) -> None:
        """Surplus of a content unit has its turn after the quorums of the unit's band."""
        band = (True, *turn.unit.band[1:])
        lane = self._lane(turn.unit, band, 1)
        if lane is not self._sole:
            self._sole = None
        lane.add_turn(turn.rank(self._session), next(self._numbers), turn)

    def next(self) -> list[QueuedUnit] | SurplusTurn | None:
        """Who is next: a unit, a run of pods of one kind, or a gang's surplus; None if nobody is left."""
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
        """The charge paths of all that were in it."""
        return {charge_path for charge_path, _, _ in self._lanes}

    @property
    def single(self) -> bool:
        """Whether nobody else is waiting."""
        return not len(self._root)

    def _taken(self, lane: TurnQueue, way: list[QueueBranch], alone: bool) -> list[QueuedUnit] | SurplusTurn:
        before = len(lane)
        turn = lane.take(alone, self.room)
        gone = before - len(lane)
        for branch in way:
            branch.size -= gone
        return turn

    def _lane(self, unit: QueuedUnit, band: Rank, stage: int) -> TurnQueue:
        """The lane for one more unit or turn, which the caller adds."""
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
        """The charge path of the first gang of a gang group, or of the pod."""
        if unit.pod is not None:
            return self._session.charge_path(unit.pod)
        if len(unit.gangs) == 1:
            return self._session.charge_path(unit.gangs[0])
        return self._session.charge_path(min(unit.gangs, key=lambda gang: (self._session.rank(gang), gang.key)))

    def _steps(self, charge_path: ChargePath, band: Rank, stage: int) -> list[Step]:
        steps: list[Step] = [(band[0], lambda _: (band[0],))]
        if self._queues and charge_path.queue is not None:
            lineage = [each for each in charge_path.queue.lineage() if each.key.name != ROOT_QUEUE]
            steps += [self._by_account(account, self._queue_place) for account in reversed(lineage)]
        steps.append((("band", band, stage), lambda _: (_OWN, *band[1:], stage)))
        for plugin in self._tenants:
            for account in plugin.subqueues(self._session, charge_path):
                steps.append(self._by_account(account, self._tenant_place))
        steps.append(("units", lambda _: (_OWN,)))
        return steps

    def _by_account(
        self, account: AccountRecord, place: Callable[[AccountRecord, QueueBranch | TurnQueue], Rank]
    ) -> Step:
        return account.key, lambda below: (_BELOW, *place(account, below))

    def _queue_place(self, account: AccountRecord, below: QueueBranch | TurnQueue) -> Rank:
        """As in Volcano, the older queue goes first where the plugins know no difference."""
        session = self._session
        session.state.ledger.refresh_sums()
        created = account.spec.created if account.spec is not None else 0
        return (*[plugin.queue_order(session, account) for plugin in self._queues], created, account.key.name)

    def _tenant_place(self, account: AccountRecord, below: QueueBranch | TurnQueue) -> Rank:
        """The tenant whose next unit is older goes first where the plugins know no difference."""
        self._session.state.ledger.refresh_sums()
        plugins = self._session.plugin_runtime.plugins("subqueue_order")
        return (*[plugin.subqueue_order(self._session, account) for plugin in plugins], *below.head(), account.key)


def _rank(unit: QueuedUnit) -> Rank:
    return unit.rank


def _kind(unit: QueuedUnit) -> Hashable:
    """What units of a run have in common; None for what goes one by one."""
    record: PodRecord | None = unit.pod
    if record is None or record.pod.problem or record.nomination is not None or unit.reserved:
        return None
    return record.pod_class, record.charge_path
