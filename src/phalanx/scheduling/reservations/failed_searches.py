"""Searches for starts that found none; each is repeated once its result can have changed."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import msgspec

from phalanx.cluster.classes import ClassRecord
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.future import FutureMatrix
from phalanx.scheduling.reservations.impossible import Never
from phalanx.scheduling.reservations.window import Part

Moment = tuple[int, ...]

# Maximum number of repeated searches for units without a possible start in one cycle.
_MOST_SEARCHES = 8


class MissingGrowth(msgspec.Struct, frozen=True):
    """Growth of copies without which a search fails again.

    `drawn` is the recount number of the future, `grown` the growth of the classes together at which a start can be
    found, and `rows` the version of the rows that the search could use. It saw windows of at least `priority` only.
    """

    classes: tuple[ClassRecord, ...]
    drawn: int
    grown: int
    rows: tuple[int, int]
    priority: int

    def lasts(self, future: FutureMatrix) -> bool:
        """Return whether the growth is still missing."""
        return self.drawn == future.drawn and growth_of(future, self.classes) < self.grown


def missing_growth(
    future: FutureMatrix, parts: Sequence[Part], lacking: int, rows: tuple[int, int], priority: int
) -> MissingGrowth | None:
    """Return the growth that is missing after a search for which `lacking` more copies had to fit; None for 0."""
    if not lacking:
        return None
    classes = tuple(part.pod_class for part in parts)
    return MissingGrowth(classes, future.drawn, growth_of(future, classes) + lacking, rows, priority)


class FailedSearch(msgspec.Struct, frozen=True):
    """Search that found no start, with all that its result depends on.

    `moment` is the version of the cluster, `request` the request of the unit. `never` is the reason why the unit
    can never run; None if a blocking pod has no known end. Without the growth that is `missing`, the search fails
    whatever else has changed; None if that is unknown.
    """

    moment: Moment
    request: Hashable
    never: Never | None
    missing: MissingGrowth | None = None


def growth_of(future: FutureMatrix, classes: Sequence[ClassRecord]) -> int:
    """Return the growth of copies of the classes together since the last recount of the future."""
    return sum(map(future.grown, classes))


class FailedStartSearches:
    """Failed searches by unit. `is_missing` returns whether the growth that a search needs is still missing."""

    def __init__(self, is_missing: Callable[[MissingGrowth], bool]) -> None:
        self._is_missing = is_missing
        self._by_unit: dict[UnitKey, FailedSearch] = {}
        # Whether outdated searches are left for the next cycle, and the moment of the last look for them.
        self._left = False
        self._looked_at: Moment = ()

    def get(self, key: UnitKey) -> FailedSearch | None:
        return self._by_unit.get(key)

    def put(self, key: UnitKey, failed: FailedSearch) -> None:
        self._by_unit[key] = failed

    def drop(self, key: UnitKey) -> None:
        self._by_unit.pop(key, None)

    def is_outdated(self, moment: Moment) -> bool:
        """Return whether `pop_outdated` can return units."""
        return bool(self._by_unit) and (self._left or self._looked_at != moment)

    def pop_outdated(self, moment: Moment, waits: Callable[[UnitKey], bool]) -> list[UnitKey]:
        """Remove and return units whose search is of another moment: some of them in each cycle. Units that do not
        wait are removed too. `moment` can be the last part of moments."""
        self._looked_at = moment
        for key in [key for key in self._by_unit if not waits(key)]:
            del self._by_unit[key]
        outdated = [key for key, failed in self._by_unit.items() if failed.moment[-len(moment) :] != moment]
        self._left = len(outdated) > _MOST_SEARCHES
        for key in outdated[:_MOST_SEARCHES]:
            del self._by_unit[key]
        return outdated[:_MOST_SEARCHES]

    def holds(self, key: UnitKey, moment: Moment, request: Hashable | None) -> bool:
        """Return whether the search for a unit still holds; remove it if not. Without a `request` the unit has not
        changed since."""
        failed = self._by_unit.get(key)
        if failed is None:
            return False
        if request is None or failed.request == request:
            if failed.moment == moment:
                return True
            if failed.missing is not None and self._is_missing(failed.missing):
                self._by_unit[key] = msgspec.structs.replace(failed, moment=moment)
                return True
        del self._by_unit[key]
        return False
