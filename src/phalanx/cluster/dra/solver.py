"""The search: which devices of one node serve a pod's claims, and those of the next equal pod, and the next.

Devices are tried in order, and the first combination that serves every request wins; within a request devices are
combined, not permuted. Devices that look the same and are used the same are tried once. The search ends after a
counted number of tries.
"""

from __future__ import annotations

import bisect
from collections.abc import Hashable

import msgspec

from phalanx.cluster.dra.question import ClaimPart, ClaimQuestion, DraView
from phalanx.cluster.dra.supply import CounterId
from phalanx.model.devices.claims import MOST_DEVICES, DeviceAttribute

# Tries before a search is given up, and devices for one pod: more than any real claim needs.
MOST_TRIES = 20_000
_MOST_DEVICES_OF_A_POD = 256
# Copies that are counted on one node; more pods than this run on none.
MOST_COPIES = 1024
_MOST_ALTERNATIVES = 8

# A counter of one of the pools of a shelf.
ShelfCounter = tuple[int, CounterId]


class Slot(msgspec.Struct, frozen=True, cache_hash=True):
    """A device on a node: `pool` is the place of its pool among those of the node, `free` whether nobody has it,
    `left` what is left of each capacity of a shareable device (nano-units), `drawn` whether its counters are
    accounted for by those who share it already."""

    view: DraView
    pool: int = 0
    free: bool = True
    left: tuple[tuple[str, int], ...] = ()
    drawn: bool = False


class Shelf(msgspec.Struct, frozen=True, cache_hash=True):
    """What a node offers a question. Nodes with equal shelves share one answer.

    `counters` is what is left of the pools' shared counters. `closed`: some pool is not there as a whole, so nobody
    can say what all devices would be.
    """

    slots: tuple[Slot, ...]
    counters: tuple[tuple[ShelfCounter, int], ...] = ()
    closed: bool = False


class Pick(msgspec.Struct, frozen=True):
    """For one request of a claim: the chosen alternative and one device, by its place on the shelf."""

    request: int
    alternative: int
    slot: int


# By claim, in the order of the question.
Picks = tuple[tuple[Pick, ...], ...]


class TooHardError(Exception):
    """The search was given up."""


class ShelfAnswer(msgspec.Struct, frozen=True):
    """What one pod after the other gets from a shelf. `endless`: the last one left everything as it was.
    `hard`: the search was given up before it was known whether there is one more. `merits` says for each pod how
    early in its lists the chosen alternatives stand: 100 where all are the first ones, 0 without such lists."""

    copies: tuple[Picks, ...] = ()
    merits: tuple[float, ...] = ()
    endless: bool = False
    hard: bool = False


def answer(question: ClaimQuestion, shelf: Shelf, limit: int = MOST_COPIES) -> ShelfAnswer:
    """At most `limit` copies are looked for."""
    copies: list[Picks] = []
    solver = _Solver(question, shelf)
    while len(copies) < limit:
        before = solver.state()
        try:
            picks = solver.next()
        except TooHardError:
            return ShelfAnswer(tuple(copies), _merits(question, copies), hard=True)
        if picks is None:
            break
        copies.append(picks)
        if solver.state() == before:
            return ShelfAnswer(tuple(copies), _merits(question, copies), endless=True)
    return ShelfAnswer(tuple(copies), _merits(question, copies))


def _merits(question: ClaimQuestion, copies: list[Picks]) -> tuple[float, ...]:
    """As kube-scheduler's DynamicResources scores: the n-th alternative of a list counts 8 - n."""
    listed = [
        (number, place)
        for number, part in enumerate(question.parts)
        for place, (request, _) in enumerate(part.requests)
        if request.prioritised
    ]
    if not listed:
        return (0.0,) * len(copies)
    chosen = (
        {(number, pick.request): pick.alternative for number, part in enumerate(picks) for pick in part}
        for picks in copies
    )
    points = (sum(_MOST_ALTERNATIVES - found.get(each, 0) for each in listed) for found in chosen)
    return tuple(100.0 * each / (_MOST_ALTERNATIVES * len(listed)) for each in points)


class _Solver:
    def __init__(self, question: ClaimQuestion, shelf: Shelf) -> None:
        self._question = question
        self._shelf = shelf
        self._views = [slot.view for slot in shelf.slots]
        self._free = [slot.free for slot in shelf.slots]
        self._left = [dict(slot.left) for slot in shelf.slots]
        self._drawn = [int(slot.drawn) for slot in shelf.slots]
        self._counters = dict(shelf.counters)
        self._by_ask: dict[int, list[int]] = {}
        self._tries = 0
        self._begin()

    def state(self) -> Hashable:
        left = tuple(tuple(each.items()) for each in self._left)
        return tuple(self._free), left, tuple(self._counters.values())

    def next(self) -> Picks | None:
        """The next pod's devices, in use from then on; None: there are not enough. Raises TooHardError."""
        self._begin()
        if not self._claim(0):
            return None
        return tuple(map(tuple, self._picks))

    def _begin(self) -> None:
        parts = self._question.parts
        self._tries = 0
        self._picks: list[list[Pick]] = [[] for _ in parts]
        self._held: list[list[list[DeviceAttribute]]] = [[[] for _ in part.rules] for part in parts]
        self._administered: list[set[int]] = [set() for _ in parts]

    def _claim(self, number: int) -> bool:
        return number == len(self._question.parts) or self._request(number, 0)

    def _request(self, claim: int, place: int) -> bool:
        part = self._question.parts[claim]
        if place == len(part.requests):
            return self._claim(claim + 1)
        _, asks = part.requests[place]
        return any(self._ask(claim, place, alternative, ask) for alternative, ask in enumerate(asks))

    def _ask(self, claim: int, place: int, alternative: int, number: int) -> bool:
        ask = self._question.asks[number]
        if ask.count:
            return self._devices(claim, place, alternative, number, ask.count, 0)
        if self._shelf.closed:
            return False
        wanted = [
            slot for slot, view in enumerate(self._views) if view.fits >> number & 1 and self._has(slot, number)
        ]
        return bool(wanted) and self._all(claim, place, alternative, number, wanted)

    def _devices(self, claim: int, place: int, alternative: int, number: int, count: int, start: int) -> bool:
        """Finds `count` more devices for an ask, from a place of the shelf on, and all that comes after it."""
        if not count:
            return self._request(claim, place + 1)
        if not self._has_room_for(claim, count) or len(self._fitting(number, start)) < count:
            return False
        failed: set[Hashable] = set()
        for slot in self._fitting(number, start):
            likeness = self._likeness(claim, slot)
            if likeness in failed:
                continue
            self._try()
            if self._take(claim, place, alternative, number, slot):
                if self._devices(claim, place, alternative, number, count - 1, slot + 1):
                    return True
                self._give_back(claim, place, alternative, number, slot)
            failed.add(likeness)
        return False

    def _fitting(self, number: int, start: int) -> list[int]:
        """The devices from a place of the shelf on that the ask is about, whether or not they are free."""
        known = self._by_ask.get(number)
        if known is None:
            known = [slot for slot, view in enumerate(self._views) if view.fits >> number & 1]
            self._by_ask[number] = known
        return known[bisect.bisect_left(known, start) :]

    def _all(self, claim: int, place: int, alternative: int, number: int, wanted: list[int]) -> bool:
        """All of them or none: there is nothing to choose."""
        taken: list[int] = []
        if self._has_room_for(claim, len(wanted)):
            for slot in wanted:
                self._try()
                if not self._take(claim, place, alternative, number, slot):
                    break
                taken.append(slot)
            if len(taken) == len(wanted) and self._request(claim, place + 1):
                return True
        for slot in reversed(taken):
            self._give_back(claim, place, alternative, number, slot)
        return False

    def _try(self) -> None:
        self._tries += 1
        if self._tries > MOST_TRIES:
            raise TooHardError

    def _has_room_for(self, claim: int, count: int) -> bool:
        if sum(map(len, self._picks)) + count > _MOST_DEVICES_OF_A_POD:
            raise TooHardError
        return len(self._picks[claim]) + count <= MOST_DEVICES

    def _likeness(self, claim: int, slot: int) -> Hashable:
        left = tuple(self._left[slot].items())
        pool = self._shelf.slots[slot].pool if self._views[slot].draws else 0
        mine = slot in self._administered[claim]
        return self._views[slot], pool, self._free[slot], left, self._drawn[slot], mine

    def _has(self, slot: int, number: int) -> bool:
        """Whether what is left of a shareable device is enough."""
        view, left = self._views[slot], self._left[slot]
        if not view.shareable:
            return True
        consumed = view.consumes[number]
        return consumed is not None and all(amount <= left[name] for name, amount, _ in consumed)

    def _take(self, claim: int, place: int, alternative: int, number: int, slot: int) -> bool:
        ask, view, part = self._question.asks[number], self._views[slot], self._question.parts[claim]
        if not view.tolerated >> number & 1:
            return False
        if ask.admin:
            if slot in self._administered[claim]:
                return False
        elif not self._free[slot] or not self._has(slot, number) or not self._can_draw(slot):
            return False
        if not self._agrees(part, claim, place, alternative, view):
            return False
        for rule, held in zip(part.rules, self._held[claim], strict=True):
            value = view.attributes[rule.column]
            if (place, alternative) in rule.concerns and value is not None:
                held.append(value)
        if ask.admin:
            self._administered[claim].add(slot)
        else:
            self._use(slot, number, -1)
        self._picks[claim].append(Pick(place, alternative, slot))
        return True

    def _give_back(self, claim: int, place: int, alternative: int, number: int, slot: int) -> None:
        part = self._question.parts[claim]
        self._picks[claim].pop()
        for rule, held in zip(part.rules, self._held[claim], strict=True):
            if (place, alternative) in rule.concerns:
                held.pop()
        if self._question.asks[number].admin:
            self._administered[claim].discard(slot)
        else:
            self._use(slot, number, 1)

    def _agrees(self, part: ClaimPart, claim: int, place: int, alternative: int, view: DraView) -> bool:
        for rule, held in zip(part.rules, self._held[claim], strict=True):
            if (place, alternative) not in rule.concerns:
                continue
            value = view.attributes[rule.column]
            if value is None or (value in held if rule.distinct else held and held[0] != value):
                return False
        return True

    def _can_draw(self, slot: int) -> bool:
        if self._drawn[slot]:
            return True
        pool = self._shelf.slots[slot].pool
        return all(self._counters.get((pool, name), 0) >= amount for name, amount in self._views[slot].draws)

    def _use(self, slot: int, number: int, sign: int) -> None:
        """Marks a device as used (sign -1) or gives it back."""
        view = self._views[slot]
        if view.shareable:
            for capacity, amount, _ in view.consumes[number] or ():
                self._left[slot][capacity] += sign * amount
            last = self._drawn[slot]
            self._drawn[slot] = last - sign
            if last and self._drawn[slot]:
                return
        else:
            self._free[slot] = sign > 0
        pool = self._shelf.slots[slot].pool
        for name, amount in view.draws:
            self._counters[pool, name] += sign * amount
