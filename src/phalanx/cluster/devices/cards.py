"""Selection of shared GPUs for pods, for many nodes at once."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice

import numpy as np
import numpy.typing as npt

from phalanx.cluster.allocators.base import UNLIMITED_COPIES
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.devices.cards import FULL, CardShare, DeviceNeed, Family

# More copies of a pod than a kubelet runs; a caller that places all of them has to query again.
MOST_COPIES = 1024
_BEST = 100.0
_SPREADER, _MIXER, _PRIME = 31, 40_503, 65_537

ColumnArray = npt.NDArray[np.intp]
# (column, memory) of each card of one copy, in the order of its shares.
Deal = tuple[tuple[int, int], ...]


class CardPolicy(enum.StrEnum):
    """Choice among the shared GPUs with enough room for a container; among equal ones the first."""

    LAST = ""  # the last one on the node
    BINPACK = "binpack"  # the one with the most memory in use
    SPREAD = "spread"  # the one with the fewest users
    RANDOM = "random"  # pseudo-random, but deterministic for equal use


class Hand:
    """Cards of some rows as available to a class of pods: arrays [rows, cards], which the methods modify.

    `serves` are the cards suitable for the class, `closed` those among them that a pod of its group uses.
    """

    def __init__(
        self,
        need: DeviceNeed,
        policy: CardPolicy,
        *,
        serves: BoolArray,
        closed: BoolArray,
        memory: IntArray,
        slots: IntArray,
        used_memory: IntArray,
        used_cores: IntArray,
        users: IntArray,
    ) -> None:
        self._need = need
        self._policy = policy
        self._exclusive = need.family is not Family.KOORDINATOR
        self.serves = serves
        self._closed = closed
        self._memory = memory
        self._slots = slots
        self._used_memory = used_memory
        self._used_cores = used_cores
        self._users = users

    def copies(self) -> IntArray:
        """Return int64[rows]: the number of further pods that fit one after the other; at most MOST_COPIES."""
        shares = self._need.shares
        if len(shares) == 1 and shares[0].count == 1:
            return self._copies_of_one(shares[0])
        copies = np.zeros(len(self.serves), dtype=np.int64)
        alive: BoolArray = some(self.serves)
        # The order of cards can affect the number of copies, so the placement is simulated.
        for _ in range(MOST_COPIES):
            alive, _, _ = self.deal(alive)
            if not alive.any():
                break
            copies += alive
        return copies

    def most_copies(self) -> int:
        """Return an upper bound on the copies on the only row, for any choice of cards."""
        return min(int(self._copies_of_one(share)[0]) // share.count for share in self._need.shares)

    def points(self, deepest: int) -> FloatArray:
        """Return float[rows, deepest]: the score of each further copy, summed over its cards, 0..100 per card.

        Packing scores the used share of the card's memory; spreading scores unused cards.
        """
        result = np.zeros((len(self.serves), deepest))
        alive: BoolArray = some(self.serves)
        for copy in range(deepest):
            alive, _, points = self.deal(alive)
            if not alive.any():
                break
            result[:, copy] = np.where(alive, points, 0.0)
        return result

    def deal(self, alive: BoolArray) -> tuple[BoolArray, list[list[tuple[ColumnArray, IntArray]]], FloatArray]:
        """Allocate one copy's cards on every row of `alive` bool[rows].

        Return the rows with a full allocation; for each share and card of it the columns and the memory on those
        rows; and the score. The state of other rows is undefined afterwards.
        """
        rows = len(self.serves)
        points = np.zeros(rows)
        allocations: list[list[tuple[ColumnArray, IntArray]]] = []
        used = np.zeros_like(self.serves)
        for share in self._need.shares:
            memory = self._asked(share)
            used_by_share = np.zeros_like(self.serves)
            cards: list[tuple[ColumnArray, IntArray]] = []
            for _ in range(share.count):
                fits = self._fits(share, memory) & ~used_by_share & alive[:, None]
                alive = alive & some(fits)
                indices = np.flatnonzero(alive)
                if not len(indices):
                    return alive, allocations, points
                columns = self._choose(fits)
                chosen = columns[indices]
                points[indices] += self._points(indices, chosen, memory)
                self._used_memory[indices, chosen] += memory[indices, chosen]
                self._used_cores[indices, chosen] += share.cores
                self._users[indices, chosen] += 1
                used_by_share[indices, chosen] = True
                used[indices, chosen] = True
                cards.append((columns, memory[np.arange(rows), columns]))
            allocations.append(cards)
        if self._need.group:
            self._closed |= used
        return alive, allocations, points

    def deals(self, kinds: Sequence[Hashable], limit: int) -> tuple[list[Deal], bool]:
        """Return different allocations of one copy on the only row, at most `limit`, and whether these are all.

        Cards of equal kind (by column) and equal use are interchangeable.
        """
        steps = [(number, share) for number, share in enumerate(self._need.shares) for _ in range(share.count)]
        found = dict(islice(self._deals(steps, (), kinds, set()), limit + 1))
        return list(found.values())[:limit], len(found) <= limit

    def _deals(
        self, steps: Sequence[tuple[int, CardShare]], deal: Deal, kinds: Sequence[Hashable], seen: set[Hashable]
    ) -> Iterator[tuple[Hashable, Deal]]:
        """Yield (result, allocation) for each different completion of a partial allocation."""
        if len(deal) == len(steps):
            uses = Counter((kinds[column], self._use_of(column)) for column in {column for column, _ in deal})
            result = frozenset(uses.items())
            if result not in seen:
                seen.add(result)
                yield result, deal
            return
        number, share = steps[len(deal)]
        memory = self._asked(share)
        first = deal[-1][0] + 1 if deal and steps[len(deal) - 1][0] == number else 0
        tried: set[Hashable] = set()
        for column in np.flatnonzero(self._fits(share, memory)[0]).tolist():
            alike = (kinds[column], self._use_of(column))
            if column < first or alike in tried:
                continue
            tried.add(alike)
            amount = int(memory[0, column])
            self._charge(column, share, amount, 1)
            yield from self._deals(steps, (*deal, (column, amount)), kinds, seen)
            self._charge(column, share, amount, -1)

    def _use_of(self, column: int) -> tuple[int, int, int]:
        return (
            int(self._used_memory[0, column]),
            int(self._used_cores[0, column]),
            int(self._users[0, column]),
        )

    def _charge(self, column: int, share: CardShare, memory: int, sign: int) -> None:
        """Add a share to the use of a card of the only row (sign 1), or remove it."""
        self._used_memory[0, column] += sign * memory
        self._used_cores[0, column] += sign * share.cores
        self._users[0, column] += sign

    def _copies_of_one(self, share: CardShare) -> IntArray:
        """Return the number of further pods per row if each uses one GPU: the order is irrelevant, and each GPU
        counts for itself."""
        memory = self._asked(share)
        free_slots = self._slots - self._users
        with np.errstate(divide="ignore"):
            free_slots = np.minimum(
                free_slots,
                np.where(memory > 0, (self._memory - self._used_memory) // memory.clip(1), UNLIMITED_COPIES),
            )
        if share.cores:
            free_slots = np.minimum(free_slots, (FULL - self._used_cores) // share.cores)
        if self._need.group:
            free_slots = np.minimum(free_slots, 1)
        free_slots = np.where(self._fits(share, memory), free_slots, 0)
        total: IntArray = free_slots.sum(axis=1).clip(0, MOST_COPIES)
        return total

    def _asked(self, share: CardShare) -> IntArray:
        """Return int64[rows, cards]: the memory that a container's share uses on each GPU."""
        if share.percent:
            result: IntArray = self._memory * share.percent // FULL
            return result
        return np.full(self._memory.shape, share.memory, dtype=np.int64)

    def _fits(self, share: CardShare, memory: IntArray) -> BoolArray:
        """Return the GPUs with enough room for a container's share. A Volcano GPU is exclusive with all cores, and
        full once its cores are."""
        fits: BoolArray = self.serves & ~self._closed & (self._users < self._slots)
        fits &= self._memory - self._used_memory >= memory
        fits &= self._used_cores + share.cores <= FULL
        if self._exclusive and share.cores == FULL:
            fits &= self._users == 0
        elif self._exclusive and not share.cores:
            fits &= self._used_cores < FULL
        return fits

    def _choose(self, fits: BoolArray) -> ColumnArray:
        """Return the chosen GPU's column for each row; undefined for rows without a suitable GPU."""
        match self._policy:
            case CardPolicy.BINPACK:
                columns: ColumnArray = np.where(fits, self._used_memory, -1).argmax(axis=1)
            case CardPolicy.SPREAD:
                columns = np.where(fits, self._users, UNLIMITED_COPIES).argmin(axis=1)
            case CardPolicy.RANDOM:
                columns = np.where(fits, self._lots(), -1).argmax(axis=1)
            case _:
                columns = fits.shape[1] - 1 - fits[:, ::-1].argmax(axis=1)
        return columns

    def _lots(self) -> IntArray:
        """Return int64[rows, cards]: pseudo-random numbers by which equal GPUs are chosen (a multiplicative hash of
        the use of the row)."""
        whole = (self._used_memory * _SPREADER + self._users).sum(axis=1, keepdims=True)
        mixed = (whole + np.arange(self._memory.shape[1])) * _MIXER % _PRIME
        result: IntArray = mixed * mixed % _PRIME
        return result

    def _points(self, rows: ColumnArray, columns: ColumnArray, memory: IntArray) -> FloatArray:
        match self._policy:
            case CardPolicy.BINPACK:
                used = self._used_memory[rows, columns] + memory[rows, columns]
                result: FloatArray = _BEST * used / self._memory[rows, columns].clip(1)
                return result
            case CardPolicy.SPREAD:
                return np.where(self._users[rows, columns] == 0, _BEST, 0.0)
        return np.zeros(len(rows))


def some(cards: BoolArray) -> BoolArray:
    """Return bool[rows]: rows on which any GPU of bool[rows, cards] is True."""
    result: BoolArray = np.logical_or.reduce(cards, axis=1)
    return result
