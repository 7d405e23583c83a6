"""Devices that each node offers for a kind of ResourceClaims, updated row by row; equal nodes share one answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec
import numpy as np

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.devices.use import DeviceUse
from phalanx.cluster.dra.question import ClaimQuestion
from phalanx.cluster.dra.solver import (
    Picks,
    Shelf,
    ShelfAnswer,
    ShelfCounter,
    Slot,
    alternatives,
    answer,
    most_copies,
)
from phalanx.cluster.dra.supply import Offer, Pool, reaches
from phalanx.cluster.resource_space import IntArray

TOO_HARD = "gave up allocating devices after too many tries"
INVALID_POOLS = "invalid resource pools were encountered"
_MOST_ANSWERS = 4096

# The pools that are usable from a node, each with its usable devices.
Near = Sequence[tuple[Pool, Sequence[Offer]]]


class Laid(msgspec.Struct, frozen=True):
    """A node's shelf of devices by position. `fault` is the reason why the node cannot serve the ClaimQuestion at
    all."""

    shelf: Shelf
    offers: tuple[Offer, ...]
    fault: str = ""


class Inquiry:
    """One ClaimQuestion to all rows. `near` returns the usable device pools of a row."""

    def __init__(
        self, question: ClaimQuestion, use: DeviceUse, changes: ChangeLog, near: Callable[[int], Near]
    ) -> None:
        self.question = question
        self._use = use
        self._changes = changes
        self._near = near
        self._answers: dict[Shelf, ShelfAnswer] = {}
        self._counts: IntArray = np.zeros(0, dtype=np.int64)
        # Upper bound on the counts over all alternatives, as of the last count.
        self.most: IntArray = np.zeros(0, dtype=np.int64)
        self._faults: dict[int, str] = {}
        self._errors: dict[int, str] = {}
        self._merits: dict[int, tuple[float, ...]] = {}
        self._rules: dict[int, tuple[str, ...]] = {}
        self._cursor = -1

    def counts(self, alive: Callable[[], Sequence[int]], capacity: int, unlimited: int) -> IntArray:
        """Return int64[capacity]: the number of pods that each row serves one after the other; `unlimited` without
        a limit.

        `alive` returns the rows with a node.
        """
        end = self._changes.end
        stale: Sequence[int] | None = self._changes.since(self._cursor, capacity) if self._cursor >= 0 else None
        if len(self._counts) != capacity:
            stale = None
        if stale is None:
            self._counts = np.zeros(capacity, dtype=np.int64)
            self.most = np.zeros(capacity, dtype=np.int64)
            self._faults.clear()
            self._errors.clear()
            self._merits.clear()
            self._rules.clear()
            stale = list(alive())
        for row in dict.fromkeys(stale):
            self._counts[row] = self._count(row, unlimited)
        self._cursor = end
        return self._counts

    @property
    def error(self) -> str:
        """Error of the question itself, seen on any row, as of the last count. Then no row can serve it, as in
        kube-scheduler: otherwise the result would depend on which devices are evaluated."""
        return self._errors[min(self._errors)] if self._errors else ""

    def fault(self, row: int) -> str:
        """Return the reason why a row cannot serve the ClaimQuestion, other than too few devices, as of the last
        count."""
        return self._faults.get(row, "")

    def taint_rules(self, row: int) -> tuple[str, ...]:
        """Return the DeviceTaintRules that taint devices of a row which cannot serve the question, as of the last
        count."""
        return self._rules.get(row, ())

    def merit(self, row: int, copy: int) -> float:
        """Return the score of the row's devices for the n-th pod (from 0) by the pod's own lists, 0 to 100, as
        of the last count."""
        merits = self._merits.get(row, ())
        return merits[min(copy, len(merits) - 1)] if merits else 0.0

    def laid(self, row: int) -> Laid:
        slots: list[Slot] = []
        offers: list[Offer] = []
        counters: dict[ShelfCounter, int] = {}
        closed, fault = False, ""
        for number, (pool, devices) in enumerate(self._near(row)):
            closed = closed or pool.incomplete or bool(pool.fault)
            remaining = self._use.left(pool) if pool.counters else {}
            for offer in devices:
                view = self.question.view(offer)
                if view is None:
                    continue
                fault = fault or view.fault
                slots.append(
                    Slot(
                        view,
                        number,
                        free=self._use.free(offer.id),
                        left=self._left(offer) if view.shareable else (),
                        drawn=view.shareable and self._use.shared(offer.id),
                    )
                )
                offers.append(offer)
                for counter, _ in view.draws:
                    counters[number, counter] = remaining[counter]
        return Laid(Shelf(tuple(slots), tuple(sorted(counters.items())), closed), tuple(offers), fault)

    def answer(self, shelf: Shelf) -> ShelfAnswer:
        result = self._answers.get(shelf)
        if result is None:
            if len(self._answers) >= _MOST_ANSWERS:
                self._answers.clear()
            result = self._answers[shelf] = answer(self.question, shelf)
        return result

    def alternatives(self, prepared: Laid, inquiries: Sequence[Inquiry], limit: int) -> tuple[list[Picks], bool]:
        """Return different allocations of one pod from a shelf, and whether these are all.

        Devices that fewer of the other questions want come first. Devices that are equal for all `inquiries` are
        exchangeable.
        """
        shelf, wanted = prepared.shelf, list[int]()
        kinds: list[Hashable] = []
        for slot, offer in zip(shelf.slots, prepared.offers, strict=True):
            views = tuple(inquiry.question.view(offer) for inquiry in inquiries)
            kinds.append((views, slot, offer.access))
            wanted.append(sum(view is not None for view in views))
        found, complete = alternatives(self.question, shelf, kinds, limit)
        found.sort(key=lambda picks: sum(wanted[pick.slot] for part in picks for pick in part))
        return found, complete

    def _count(self, row: int, unlimited: int) -> int:
        prepared = self.laid(row)
        self._faults.pop(row, None)
        self._errors.pop(row, None)
        self._merits.pop(row, None)
        self.most[row] = 0
        self._rules.pop(row, None)
        if prepared.fault:
            self._faults[row] = self._errors[row] = prepared.fault
            return 0
        result = self.answer(prepared.shelf)
        if result.hard and not result.copies:
            self._faults[row] = TOO_HARD
        elif not result.copies and any(pool.fault for pool, _ in self._near(row)):
            self._faults[row] = INVALID_POOLS
        if not result.copies and (rules := {name for slot in prepared.shelf.slots for name in slot.view.rules}):
            self._rules[row] = tuple(sorted(rules))
        self._merits[row] = result.merits
        count = unlimited if result.endless else len(result.copies)
        self.most[row] = count if not count else max(count, most_copies(self.question, prepared.shelf, unlimited))
        return count

    def _left(self, offer: Offer) -> tuple[tuple[str, int], ...]:
        view = self.question.view(offer)
        capacities = next((consumed for consumed in view.consumes if consumed is not None), ()) if view else ()
        amounts = offer.amounts
        return tuple((name, amounts[name] - self._use.consumed(offer.id, name)) for name, _, _ in capacities)


def devices_near(pool: Pool, node: str, selected: Callable[..., bool]) -> tuple[Offer, ...]:
    return tuple(offer for offer in pool.offers if reaches(offer.access, node, selected))
