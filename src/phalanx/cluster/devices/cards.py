"""Which cards a pod gets, for many nodes at once."""

from __future__ import annotations

import enum

import numpy as np
import numpy.typing as npt

from phalanx.cluster.allocators.base import UNLIMITED_COPIES
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.devices.cards import FULL, CardShare, DeviceNeed, Family

# More copies of a pod than a kubelet runs. Whoever places as many asks again.
MOST_COPIES = 1024
_BEST = 100.0
_SPREADER, _MIXER, _PRIME = 31, 40_503, 65_537

ColumnArray = npt.NDArray[np.intp]


class CardPolicy(enum.StrEnum):
    """Which of the cards with enough room a container gets; of equal ones the first."""

    LAST = ""  # the last one on the node
    BINPACK = "binpack"  # the one with the most memory in use
    SPREAD = "spread"  # the one with the fewest users
    RANDOM = "random"  # any of them, always the same for the same cards in use


class Hand:
    """The cards of some rows as a class of pods may use them: arrays [rows, cards], free to be played with.

    `serves` are the cards that are of use to the class at all, `closed` those of them that a pod of its group has.
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
        """int64[rows]: how many copies there is room for, one after the other; at most MOST_COPIES."""
        shares = self._need.shares
        if len(shares) == 1 and shares[0].count == 1:
            return self._copies_of_one(shares[0])
        found = np.zeros(len(self.serves), dtype=np.int64)
        alive: BoolArray = some(self.serves)
        # Which card goes first may decide how many copies fit, so they are played through as they would be placed.
        for _ in range(MOST_COPIES):
            alive, _, _ = self.deal(alive)
            if not alive.any():
                break
            found += alive
        return found

    def points(self, deepest: int) -> FloatArray:
        """float[rows, deepest]: how good each next copy is, summed over its cards, 0..100 per card.

        Packing counts the part of the card's memory that is in use then; spreading counts cards that nobody had.
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
        """Gives one copy its cards on every row of `alive` bool[rows] and books them here.

        (on which rows it got all that it asks for; for each share and card of it the columns and the memory there,
        on those rows; its points). On other rows nothing that is booked means anything any more.
        """
        rows = len(self.serves)
        points = np.zeros(rows)
        given: list[list[tuple[ColumnArray, IntArray]]] = []
        used = np.zeros_like(self.serves)
        for share in self._need.shares:
            asked = self._asked(share)
            mine = np.zeros_like(self.serves)
            cards: list[tuple[ColumnArray, IntArray]] = []
            for _ in range(share.count):
                fits = self._fits(share, asked) & ~mine & alive[:, None]
                alive = alive & some(fits)
                at = np.flatnonzero(alive)
                if not len(at):
                    return alive, given, points
                columns = self._choose(fits)
                chosen = columns[at]
                points[at] += self._worth(at, chosen, asked)
                self._used_memory[at, chosen] += asked[at, chosen]
                self._used_cores[at, chosen] += share.cores
                self._users[at, chosen] += 1
                mine[at, chosen] = True
                used[at, chosen] = True
                cards.append((columns, asked[np.arange(rows), columns]))
            given.append(cards)
        if self._need.group:
            self._closed |= used
        return alive, given, points

    def _copies_of_one(self, share: CardShare) -> IntArray:
        """Each copy takes one card: then the order makes no difference, and every card counts for itself."""
        asked = self._asked(share)
        each = self._slots - self._users
        with np.errstate(divide="ignore"):
            each = np.minimum(
                each, np.where(asked > 0, (self._memory - self._used_memory) // asked.clip(1), UNLIMITED_COPIES)
            )
        if share.cores:
            each = np.minimum(each, (FULL - self._used_cores) // share.cores)
        if self._need.group:
            each = np.minimum(each, 1)
        each = np.where(self._fits(share, asked), each, 0)
        total: IntArray = each.sum(axis=1).clip(0, MOST_COPIES)
        return total

    def _asked(self, share: CardShare) -> IntArray:
        """int64[rows, cards]: the memory that a share takes of each card."""
        if share.percent:
            result: IntArray = self._memory * share.percent // FULL
            return result
        return np.full(self._memory.shape, share.memory, dtype=np.int64)

    def _fits(self, share: CardShare, asked: IntArray) -> BoolArray:
        """Volcano's cards are had alone by whoever asks for all cores, and full once their cores are."""
        fits: BoolArray = self.serves & ~self._closed & (self._users < self._slots)
        fits &= self._memory - self._used_memory >= asked
        fits &= self._used_cores + share.cores <= FULL
        if self._exclusive and share.cores == FULL:
            fits &= self._users == 0
        elif self._exclusive and not share.cores:
            fits &= self._used_cores < FULL
        return fits

    def _choose(self, fits: BoolArray) -> ColumnArray:
        """One column per row, anything where none fits."""
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
        """int64[rows, cards]: numbers without any order (a multiplicative hash of what is in use on the row)."""
        whole = (self._used_memory * _SPREADER + self._users).sum(axis=1, keepdims=True)
        mixed = (whole + np.arange(self._memory.shape[1])) * _MIXER % _PRIME
        result: IntArray = mixed * mixed % _PRIME
        return result

    def _worth(self, rows: ColumnArray, columns: ColumnArray, asked: IntArray) -> FloatArray:
        match self._policy:
            case CardPolicy.BINPACK:
                used = self._used_memory[rows, columns] + asked[rows, columns]
                result: FloatArray = _BEST * used / self._memory[rows, columns].clip(1)
                return result
            case CardPolicy.SPREAD:
                return np.where(self._users[rows, columns] == 0, _BEST, 0.0)
        return np.zeros(len(rows))


def some(cards: BoolArray) -> BoolArray:
    """bool[rows]: where there is one among [rows, cards]."""
    result: BoolArray = np.logical_or.reduce(cards, axis=1)
    return result
