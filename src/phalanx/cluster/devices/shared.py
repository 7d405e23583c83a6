"""Allocator of shared GPUs: the parts of GPUs that pods use, and the selection for further pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from phalanx.cluster.allocators.base import NO_ALTERNATIVES, UNLIMITED_COPIES, Alternatives, NodeAllocator
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.devices.annotations import annotations_of
from phalanx.cluster.devices.cards import CardPolicy, Hand, some
from phalanx.cluster.devices.held import Held
from phalanx.cluster.nodes.labels import Rows, row_numbers
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.devices.cards import Card, CardHold, DeviceNeed, Family, NodeCards
from phalanx.model.pod import Pod, PodClass

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

SHARED_DEVICES = "shared-devices"

# Suitable models are cached per need; beyond this number of needs the cache is cleared.
_NEEDS = 4096
_NO_CARD = 0


class Given(msgspec.Struct, frozen=True):
    """Parts of shared GPUs that a pod uses, by its shares; `group` is its gang ("" for a pod without one)."""

    shares: tuple[tuple[CardHold, ...], ...]
    group: str = ""


class _Use(msgspec.Struct):
    """Use of one shared GPU by pods."""

    memory: int = 0
    cores: int = 0
    users: int = 0


class _Model(msgspec.Struct, frozen=True):
    """Properties of a shared GPU, without its id, that determine which pods it can serve."""

    family: Family
    kind: str
    mode: str


class SharedDevices(NodeAllocator):
    """Shared GPUs by row, in the order of their node.

    `families` are those that the policy allocates, by `policy`. The cards of pods that another scheduler bound are
    recorded in any case, by card id, so cards can be added and removed independently. Unhealthy and cordoned cards
    serve no pod that is placed now.
    `doubts` are, by uid, the pods with untrustworthy annotations about their cards.
    """

    name = SHARED_DEVICES

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self.families: frozenset[Family] = frozenset()
        self.policy = CardPolicy.LAST
        self._learned: dict[str, dict[Family, tuple[Card, ...]]] = {}
        self._cards: dict[int, tuple[Card, ...]] = {}
        self._uses: dict[int, dict[tuple[Family, str], _Use]] = {}
        self._groups: dict[int, dict[tuple[Family, str], Counter[str]]] = {}
        self._columns: dict[int, dict[tuple[Family, str], int]] = {}
        # Observed pods by row and uid, and by uid those with untrustworthy annotations.
        self._held: dict[int, dict[str, Held]] = {}
        self.doubts: dict[str, Held] = {}
        # Cards by id: (row, column).
        self._places: dict[tuple[Family, str], set[tuple[int, int]]] = {}
        self._models: dict[_Model, int] = {}
        self._served: dict[DeviceNeed, BoolArray] = {}
        shape = (nodes.capacity, 0)
        self._model = np.zeros(shape, dtype=np.int64)
        self._memory = np.zeros(shape, dtype=np.int64)
        self._slots = np.zeros(shape, dtype=np.int64)
        self._used_memory = np.zeros(shape, dtype=np.int64)
        self._used_cores = np.zeros(shape, dtype=np.int64)
        self._users = np.zeros(shape, dtype=np.int64)

    def configure(self, families: Iterable[Family], policy: CardPolicy) -> None:
        """Set the families of GPU resources that the policy allocates, and the choice among GPUs."""
        self.families, self.policy = frozenset(families), policy

    def cards(self, row: int) -> tuple[Card, ...]:
        return self._cards.get(row, ())

    def use(self, row: int, family: Family, card: str) -> tuple[int, int, int]:
        """Return the (memory, cores, pods) in use on one shared GPU."""
        use = self._uses.get(row, {}).get((family, card), _Use())
        return use.memory, use.cores, use.users

    # the allocator

    def concerns(self, pod_class: PodClass) -> bool:
        return pod_class.devices is not None

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        need = _need(pod_class)
        row_list = row_numbers(rows, self._nodes.capacity)
        if need.family not in self.families or not (need.shares or need.problem):
            return np.full(len(row_list), UNLIMITED_COPIES, dtype=np.int64)
        copies = np.zeros(len(row_list), dtype=np.int64)
        if need.lenient:
            copies[~some(self._serves(DeviceNeed(need.family), row_list))] = UNLIMITED_COPIES
        if not need.problem:
            serves = self._serves(need, row_list)
            usable = np.flatnonzero(some(serves))
            copies[usable] = self._hand(need, row_list[usable], serves[usable]).copies()
        return copies

    def undercounts(self, pod_class: PodClass) -> bool:
        shares = _need(pod_class).shares
        return len(shares) > 1 or any(share.count > 1 for share in shares)

    def most_copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        copies, need = self.copies(pod_class, rows), _need(pod_class)
        row_list = row_numbers(rows, self._nodes.capacity)
        for position in np.flatnonzero((copies > 0) & (copies < UNLIMITED_COPIES)).tolist():
            one = row_list[position : position + 1]
            copies[position] = max(copies[position], self._hand(need, one, self._serves(need, one)).most_copies())
        return copies

    def points(self, pod_class: PodClass, rows: Rows, deepest: int) -> FloatArray | None:
        """Return float[rows, deepest]: the score of a row's shared GPUs for each further pod; None without a
        preference."""
        need = _need(pod_class)
        if need.family not in self.families or self.policy in (CardPolicy.LAST, CardPolicy.RANDOM) or need.problem:
            return None
        row_list = row_numbers(rows, self._nodes.capacity)
        result = np.zeros((len(row_list), deepest))
        serves = self._serves(need, row_list)
        usable = np.flatnonzero(some(serves))
        result[usable] = self._hand(need, row_list[usable], serves[usable]).points(deepest)
        return result

    def idle_parts(self, rows: Rows, whole: int) -> IntArray:
        """Return int64[rows, cards]: the idle part of each usable GPU, where `whole` parts are one GPU."""
        self._ensure(0, 0)
        memory = self._memory[rows]
        free_memory = np.where(self._model[rows] != _NO_CARD, memory - self._used_memory[rows], 0).clip(0)
        result: IntArray = free_memory * whole // memory.clip(1)
        return result

    def take(self, pod: Pod, row: int) -> object | None:
        need = _need(pod.pod_class)
        if need.family not in self.families or need.problem or not need.shares:
            return None
        row_list = np.array([row], dtype=np.intp)
        hand = self._hand(need, row_list, self._serves(need, row_list))
        alive, dealt, _ = hand.deal(some(hand.serves))
        if not alive[0]:
            return None
        cards = self._cards[row]
        shares = tuple(
            tuple(
                CardHold(need.family, cards[int(columns[0])].id, int(memory[0]), share.cores)
                for columns, memory in parts
            )
            for share, parts in zip(need.shares, dealt, strict=True)
        )
        allocated = Given(shares, group_of(pod))
        self.book(allocated, row, 1)
        return allocated

    def alternatives(self, pod: Pod, row: int, limit: int) -> Alternatives:
        need = _need(pod.pod_class)
        if need.family not in self.families or need.problem or not need.shares:
            return NO_ALTERNATIVES
        row_list = np.array([row], dtype=np.intp)
        cards = self._cards.get(row, ())
        groups = self._groups.get(row, {})
        named = any(known.ids or known.other_ids for known in self._served)
        kinds = [
            (
                int(self._model[row, column]),
                card.memory,
                card.slots,
                frozenset(groups.get((card.family, card.id), ())),
                card.id if named else "",
            )
            for column, card in enumerate(cards)
        ]
        deals, complete = self._hand(need, row_list, self._serves(need, row_list)).deals(kinds, limit)
        found = []
        for deal in deals:
            parts = iter(deal)
            shares = tuple(
                tuple(
                    CardHold(need.family, cards[column].id, memory, share.cores)
                    for column, memory in islice(parts, share.count)
                )
                for share in need.shares
            )
            found.append(Given(shares, group_of(pod)))
        return Alternatives(found, complete)

    def observed(self, pod: Pod, row: int) -> object | None:
        held = Held(pod.uid, _need(pod.pod_class), pod.cards, group_of(pod))
        self._assign(held, row)
        self.book(held, row, 1)
        return held

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, Given | Held)
        if isinstance(allocated, Held):
            self._note_held(allocated, row, sign)
        self._ensure(row, 0)
        uses, groups = self._uses.setdefault(row, {}), self._groups.setdefault(row, {})
        for hold in (hold for share in allocated.shares for hold in share):
            key = (hold.family, hold.card)
            use = uses.setdefault(key, _Use())
            use.memory += sign * hold.memory
            use.cores += sign * hold.cores
            use.users += sign
            if allocated.group:
                members = groups.setdefault(key, Counter())
                members[allocated.group] += sign
                if not members[allocated.group]:
                    del members[allocated.group]
                if not members:
                    del groups[key]
            if not use.users:
                del uses[key]
            self._copy(row, key, use)
        self.changes.note(row)

    def refuse(self, pod_class: PodClass) -> str | None:
        need = _need(pod_class)
        return need.problem or None if need.family in self.families else None

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        need = _need(pod_class)
        row_list = row_numbers(rows, self._nodes.capacity)
        if need.family not in self.families or need.problem:
            return []
        has_cards, serves = (
            some(self._serves(DeviceNeed(need.family), row_list)),
            some(self._serves(need, row_list)),
        )
        full: BoolArray = serves & (self.copies(pod_class, rows) == 0)
        cordoned = np.array([self._has_cordoned(need, int(row)) for row in row_list], dtype=np.bool_) & (
            ~serves | full
        )
        none: BoolArray = ~has_cards & ~cordoned & (not need.lenient)
        other: BoolArray = has_cards & ~serves & ~cordoned
        return [
            ("node(s) had a GPU for the pod that is cordoned (hami.io/device-cordon)", cordoned),
            ("node(s) had no shared GPUs", none),
            ("node(s) had no GPU of the requested model, id or mode", other),
            ("node(s) had no GPU with enough room for the pod", full),
        ]

    def _has_cordoned(self, need: DeviceNeed, row: int) -> bool:
        """Return whether a node has a cordoned GPU that would be suitable for a pod's need."""
        return any(
            card.cordoned
            and card.healthy
            and _suits(_Model(card.family, card.kind, card.mode), need)
            and (not need.ids or card.id in need.ids)
            and card.id not in need.other_ids
            for card in self._cards.get(row, ())
        )

    def annotations(self, pod: Pod, allocated: object, row: int, now: float) -> tuple[tuple[str, str], ...]:
        assert isinstance(allocated, Given)
        return annotations_of(
            _need(pod.pod_class), allocated.shares, self._nodes.names[row], self._totals(row), now
        )

    def node_added(self, row: int) -> None:
        node = self._nodes.nodes[row]
        assert node is not None
        learned = self._learned.get(node.name, {})
        self._replace(row, (*node.cards, *(card for family in sorted(learned) for card in learned[family])))

    def node_removed(self, row: int) -> None:
        self._replace(row, ())
        self.changes.note(row)

    def learn(self, fact: object) -> bool:
        assert isinstance(fact, NodeCards)
        families = self._learned.setdefault(fact.node, {})
        if fact.cards:
            families[fact.family] = fact.cards
        else:
            families.pop(fact.family, None)
        if not families:
            del self._learned[fact.node]
        row = self._nodes.row(fact.node)
        if row < 0:
            return False
        before = self._cards.get(row, ())
        self.node_added(row)
        return before != self._cards.get(row, ())

    # Observed allocations

    def _assign(self, held: Held, row: int) -> None:
        uses, family = self._uses.get(row, {}), held.need.family
        cards = self._cards.get(row, ())
        memory = {card.id: card.memory for card in reversed(cards) if card.family is family}
        held.assign(cards, lambda card: memory[card] - uses.get((family, card), _Use()).memory)

    def _assign_again(self, row: int) -> None:
        """Assign the unsettled shares of a row's pods again, after a change of its GPUs."""
        for held in [entry for entry in self._held.get(row, {}).values() if not entry.settled]:
            self.book(held, row, -1)
            self._assign(held, row)
            self.book(held, row, 1)

    def _note_held(self, held: Held, row: int, sign: int) -> None:
        held_pods = self._held.setdefault(row, {})
        if sign > 0:
            held_pods[held.uid] = held
            if held.doubt:
                self.doubts[held.uid] = held
            return
        del held_pods[held.uid]
        self.doubts.pop(held.uid, None)
        if not held_pods:
            del self._held[row]

    # Arrays

    def _totals(self, row: int) -> dict[str, int]:
        """Return the memory of each shared GPU of a row, by id."""
        return {card.id: card.memory for card in self._cards.get(row, ())}

    def _hand(self, need: DeviceNeed, row_list: np.typing.NDArray[np.intp], serves: BoolArray) -> Hand:
        closed = np.zeros(serves.shape, dtype=np.bool_)
        if need.group:
            for position, row in enumerate(row_list.tolist()):
                for key, groups in self._groups.get(row, {}).items():
                    if need.group in groups and key in self._columns.get(row, {}):
                        closed[position, self._columns[row][key]] = True
        return Hand(
            need,
            self.policy,
            serves=serves,
            closed=closed,
            memory=self._memory[row_list],
            slots=self._slots[row_list],
            used_memory=self._used_memory[row_list],
            used_cores=self._used_cores[row_list],
            users=self._users[row_list],
        )

    def _serves(self, need: DeviceNeed, row_list: np.typing.NDArray[np.intp]) -> BoolArray:
        """Return bool[rows, cards]: the GPUs that are suitable for the pod's need."""
        self._ensure(0, 0)
        serves: BoolArray = self._models_for(need)[self._model[row_list]]
        if need.ids:
            serves &= self._marked(need.family, need.ids, row_list)
        if need.other_ids:
            serves &= ~self._marked(need.family, need.other_ids, row_list)
        return serves

    def _marked(self, family: Family, ids: Iterable[str], row_list: np.typing.NDArray[np.intp]) -> BoolArray:
        marked = np.zeros(self._model.shape, dtype=np.bool_)
        for card in ids:
            for row, column in self._places.get((family, card), ()):
                marked[row, column] = True
        result: BoolArray = marked[row_list]
        return result

    def _models_for(self, need: DeviceNeed) -> BoolArray:
        """Return bool[models]: the GPU models that are suitable for the pod's need."""
        suitable = self._served.get(need)
        if suitable is None or len(suitable) != len(self._models) + 1:
            if len(self._served) >= _NEEDS:
                self._served.clear()
            fitting = [False, *(_suits(model, need) for model in self._models)]
            suitable = self._served[need] = np.array(fitting, dtype=np.bool_)
        return suitable

    def _replace(self, row: int, cards: tuple[Card, ...]) -> None:
        last = self._cards.get(row, ())
        if cards == last:
            return
        for column, card in enumerate(last):
            places = self._places[card.family, card.id]
            places.discard((row, column))
            if not places:
                del self._places[card.family, card.id]
        self._ensure(row, len(cards))
        for array in (self._model, self._memory, self._slots, self._used_memory, self._used_cores, self._users):
            array[row] = 0
        if cards:
            self._cards[row] = cards
        else:
            self._cards.pop(row, None)
        # Of two cards with one id, the first has the users; the second is unusable.
        self._columns[row] = columns = {}
        uses = self._uses.get(row, {})
        for column, card in enumerate(cards):
            key = (card.family, card.id)
            self._places.setdefault(key, set()).add((row, column))
            if key in columns:
                continue
            columns[key] = column
            self._memory[row, column], self._slots[row, column] = card.memory, card.slots
            if card.healthy and not card.cordoned:
                model = _Model(card.family, card.kind, card.mode)
                self._model[row, column] = self._models.setdefault(model, len(self._models) + 1)
            if key in uses:
                self._copy(row, key, uses[key])
        if not cards:
            del self._columns[row]
        self._assign_again(row)
        self.changes.note(row)
        self._nodes.changes.note(row)

    def _copy(self, row: int, key: tuple[Family, str], use: _Use) -> None:
        """Update the arrays with the use of a shared GPU."""
        column = self._columns.get(row, {}).get(key)
        if column is not None:
            self._used_memory[row, column] = use.memory
            self._used_cores[row, column] = use.cores
            self._users[row, column] = use.users

    def _ensure(self, row: int, width: int) -> None:
        """Extend the arrays to all rows, and to `width` GPUs on each."""
        rows, columns = self._model.shape
        more_rows, more = max(0, self._nodes.capacity - rows), max(0, width - columns)
        if not more_rows and not more:
            return
        for name in ("_model", "_memory", "_slots", "_used_memory", "_used_cores", "_users"):
            setattr(self, name, np.pad(getattr(self, name), ((0, more_rows), (0, more))))


def group_of(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.gang}" if pod.gang else ""


def _need(pod_class: PodClass) -> DeviceNeed:
    need = pod_class.devices
    assert need is not None
    return need


def _suits(model: _Model, need: DeviceNeed) -> bool:
    """Return whether a GPU model is suitable for a pod's need; model names are compared without regard to case, as
    in Volcano."""
    if model.family is not need.family or (need.mode and model.mode != need.mode):
        return False
    kind = model.kind.upper()
    if need.kinds and not any(wanted.upper() in kind for wanted in need.kinds):
        return False
    return not any(other.upper() in kind for other in need.other_kinds)
