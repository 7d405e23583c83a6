"""Search for the devices of one node that serve a pod's ResourceClaims, then those of the next equal pod, and so
on.

Devices are tried in order, and the first combination that serves every request is chosen; within a request, devices
are combined, not permuted. Devices with equal views and equal use are tried once. The search ends after a limited
number of tries.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import ClassVar

import msgspec

from phalanx.cluster.dra.question import ClaimPart, ClaimQuestion, DraView
from phalanx.cluster.dra.supply import CounterId
from phalanx.model.devices.claims import MOST_DEVICES, DeviceAttribute

# Limits for the tries of a search and of an enumeration of alternatives, and for the devices of one pod: more
# than any real claim needs.
MOST_TRIES = 20_000
MOST_TRIES_OF_ALTERNATIVES = 500
_MOST_DEVICES_OF_A_POD = 256
# Limit for the copies counted on one node: more pods than a node runs.
MOST_COPIES = 1024
_MOST_ALTERNATIVES = 8

# Counter of one of the pools of a shelf.
ShelfCounter = tuple[int, CounterId]


class Slot(msgspec.Struct, frozen=True, cache_hash=True):
    """A device on a node: `pool` is the position of its pool among those of the node, `free` whether it is
    unused, `left` the remaining amount of each capacity of a shareable device (nano-units), `drawn` whether its
    present users already account for its counters."""

    view: DraView
    pool: int = 0
    free: bool = True
    left: tuple[tuple[str, int], ...] = ()
    drawn: bool = False


class Shelf(msgspec.Struct, frozen=True, cache_hash=True):
    """Devices that a node offers for a ClaimQuestion. Nodes with equal shelves share one answer.

    `counters` are the remaining amounts of the pools' shared counters. `closed` means that a pool is incomplete, so
    that "all devices" is undefined.
    """

    slots: tuple[Slot, ...]
    counters: tuple[tuple[ShelfCounter, int], ...] = ()
    closed: bool = False


class Pick(msgspec.Struct, frozen=True):
    """Choice for one request of a claim: the alternative, and one device by its position on the shelf."""

    request: int
    alternative: int
    slot: int


# Picks by claim, in the order of the question.
Picks = tuple[tuple[Pick, ...], ...]


class TooHardError(Exception):
    """The search for devices exceeded its number of tries."""


class ShelfAnswer(msgspec.Struct, frozen=True):
    """Allocations of successive pods from a shelf. `endless` means that the last one changed nothing. `hard`
    means that the search for a further one was given up. `merits` scores each pod by the positions of the chosen
    alternatives in their lists: 100 if all are first, 0 without such lists."""

    copies: tuple[Picks, ...] = ()
    merits: tuple[float, ...] = ()
    endless: bool = False
    hard: bool = False


def answer(question: ClaimQuestion, shelf: Shelf, limit: int = MOST_COPIES) -> ShelfAnswer:
    """Search for the devices of at most `limit` equal pods on a shelf."""
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


def alternatives(
    question: ClaimQuestion, shelf: Shelf, kinds: Sequence[Hashable], limit: int
) -> tuple[list[Picks], bool]:
    """Return different allocations of one pod in the order of the search, at most `limit`, and whether these are
    all.

    Devices of equal kind (by position on the shelf) are interchangeable for every pod.
    """
    return _AllPicks(question, shelf, kinds, limit).run()


def most_copies(question: ClaimQuestion, shelf: Shelf, unlimited: int) -> int:
    """Return an upper bound on the number of pods that a shelf serves, with any choice of devices; 0 where the
    search for one after the other finds the most.

    That search takes the first devices that fit one pod. Another choice can leave more for the next: of partitions
    with counters, of alternatives, of several requests, and of devices that constraints tie to each other.
    """
    requests = [asks for part in question.parts for _, asks in part.requests]
    draws = any(slot.view.draws for slot in shelf.slots)
    if len(requests) == 1 and len(requests[0]) == 1 and not draws and not question.parts[0].rules:
        return 0
    bound = unlimited
    for asks in requests:
        if any(question.asks[number].admin for number in asks):
            continue
        mask = sum(1 << number for number in asks)
        devices = [slot for slot in shelf.slots if slot.free and slot.view.fits & mask]
        if not any(slot.view.shareable for slot in devices):
            bound = min(bound, len(devices) // min(question.asks[number].count or 1 for number in asks))
    return bound


def _merits(question: ClaimQuestion, copies: list[Picks]) -> tuple[float, ...]:
    """Return the scores of each pod's devices as in kube-scheduler's DynamicResources: the n-th alternative of a
    list counts 8 - n."""
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
    points = (sum(_MOST_ALTERNATIVES - alternatives.get(entry, 0) for entry in listed) for alternatives in chosen)
    return tuple(100.0 * total / (_MOST_ALTERNATIVES * len(listed)) for total in points)


class _Solver:
    _most_tries: ClassVar[int] = MOST_TRIES

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
        remaining = tuple(tuple(capacities.items()) for capacities in self._left)
        return tuple(self._free), remaining, tuple(self._counters.values())

    def next(self) -> Picks | None:
        """Allocate and return the next pod's devices; None if there are not enough. Raise TooHardError."""
        self._begin()
        if not self._claim(0):
            return None
        return tuple(map(tuple, self._picks))

    def _begin(self) -> None:
        parts = self._question.parts
        self._tries = 0
        self._picks: list[list[Pick]] = [[] for _ in parts]
        self._constrained_values: list[list[list[DeviceAttribute]]] = [[[] for _ in part.rules] for part in parts]
        self._administered: list[set[int]] = [set() for _ in parts]

    def _claim(self, number: int) -> bool:
        return self._done() if number == len(self._question.parts) else self._request(number, 0)

    def _done(self) -> bool:
        """Return whether the search ends with the present picks, which serve all claims."""
        return True

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
        slots = [
            slot for slot, view in enumerate(self._views) if view.fits >> number & 1 and self._has(slot, number)
        ]
        return bool(slots) and self._all(claim, place, alternative, number, slots)

    def _devices(self, claim: int, place: int, alternative: int, number: int, count: int, start: int) -> bool:
        """Allocate `count` more devices for an ask, from position `start` of the shelf on, and all later
        requests."""
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
            if self._allocate(claim, place, alternative, number, slot):
                if self._devices(claim, place, alternative, number, count - 1, slot + 1):
                    return True
                self._release(claim, place, alternative, number, slot)
            failed.add(likeness)
        return False

    def _fitting(self, number: int, start: int) -> list[int]:
        """Return the devices from position `start` of the shelf on that match the request, free or not."""
        known = self._by_ask.get(number)
        if known is None:
            known = [slot for slot, view in enumerate(self._views) if view.fits >> number & 1]
            self._by_ask[number] = known
        return known[bisect.bisect_left(known, start) :]

    def _all(self, claim: int, place: int, alternative: int, number: int, slots: list[int]) -> bool:
        """Allocate all devices that match a request, or none: there is no choice."""
        allocated: list[int] = []
        if self._has_room_for(claim, len(slots)):
            for slot in slots:
                self._try()
                if not self._allocate(claim, place, alternative, number, slot):
                    break
                allocated.append(slot)
            if len(allocated) == len(slots) and self._request(claim, place + 1):
                return True
        for slot in reversed(allocated):
            self._release(claim, place, alternative, number, slot)
        return False

    def _try(self) -> None:
        self._tries += 1
        if self._tries > self._most_tries:
            raise TooHardError

    def _has_room_for(self, claim: int, count: int) -> bool:
        if sum(map(len, self._picks)) + count > _MOST_DEVICES_OF_A_POD:
            raise TooHardError
        return len(self._picks[claim]) + count <= MOST_DEVICES

    def _likeness(self, claim: int, slot: int) -> Hashable:
        remaining = tuple(self._left[slot].items())
        pool = self._shelf.slots[slot].pool if self._views[slot].draws else 0
        administered = slot in self._administered[claim]
        return self._views[slot], pool, self._free[slot], remaining, self._drawn[slot], administered

    def _has(self, slot: int, number: int) -> bool:
        """Return whether the remaining capacity of a shareable device suffices for the request."""
        view, remaining = self._views[slot], self._left[slot]
        if not view.shareable:
            return True
        consumed = view.consumes[number]
        return consumed is not None and all(amount <= remaining[name] for name, amount, _ in consumed)

    def _allocate(self, claim: int, place: int, alternative: int, number: int, slot: int) -> bool:
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
        for rule, values in zip(part.rules, self._constrained_values[claim], strict=True):
            value = view.attributes[rule.column]
            if (place, alternative) in rule.concerns and value is not None:
                values.append(value)
        if ask.admin:
            self._administered[claim].add(slot)
        else:
            self._use(slot, number, -1)
        self._picks[claim].append(Pick(place, alternative, slot))
        return True

    def _release(self, claim: int, place: int, alternative: int, number: int, slot: int) -> None:
        part = self._question.parts[claim]
        self._picks[claim].pop()
        for rule, values in zip(part.rules, self._constrained_values[claim], strict=True):
            if (place, alternative) in rule.concerns:
                values.pop()
        if self._question.asks[number].admin:
            self._administered[claim].discard(slot)
        else:
            self._use(slot, number, 1)

    def _agrees(self, part: ClaimPart, claim: int, place: int, alternative: int, view: DraView) -> bool:
        for rule, values in zip(part.rules, self._constrained_values[claim], strict=True):
            if (place, alternative) not in rule.concerns:
                continue
            value = view.attributes[rule.column]
            if value is None or (value in values if rule.distinct else values and values[0] != value):
                return False
        return True

    def _can_draw(self, slot: int) -> bool:
        if self._drawn[slot]:
            return True
        pool = self._shelf.slots[slot].pool
        return all(self._counters.get((pool, name), 0) >= amount for name, amount in self._views[slot].draws)

    def _use(self, slot: int, number: int, sign: int) -> None:
        """Mark a device as used by a request (sign -1) or release it."""
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


class _AllPicks(_Solver):
    """Enumeration of the allocations of one pod; see `alternatives`."""

    _most_tries = MOST_TRIES_OF_ALTERNATIVES

    def __init__(self, question: ClaimQuestion, shelf: Shelf, kinds: Sequence[Hashable], limit: int) -> None:
        super().__init__(question, shelf)
        self._kinds = kinds
        self._limit = limit
        self._found: dict[Hashable, Picks] = {}

    def run(self) -> tuple[list[Picks], bool]:
        try:
            ended_early = self.next() is not None
        except TooHardError:
            ended_early = True
        return list(self._found.values()), not ended_early

    def _done(self) -> bool:
        picks: Picks = tuple(map(tuple, self._picks))
        asks = self._question.parts
        consumed = Counter(
            (self._kinds[pick.slot], part.requests[pick.request][1][pick.alternative])
            if self._views[pick.slot].shareable
            else self._kinds[pick.slot]
            for part, chosen in zip(asks, picks, strict=True)
            for pick in chosen
        )
        self._found.setdefault(frozenset(consumed.items()), picks)
        return len(self._found) >= self._limit

    def _likeness(self, claim: int, slot: int) -> Hashable:
        return super()._likeness(claim, slot), self._kinds[slot]
