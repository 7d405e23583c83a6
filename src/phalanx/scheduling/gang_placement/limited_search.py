"""Search with limited discrepancies: a depth-first search that first follows the preferred choices, then deviates
from them once, twice and so on.

The search places pods in the transaction, so it sees every filter, limit and allocator. Its work is counted, not
timed, so that equal inputs get equal results.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.network.topology import Level
from phalanx.cluster.resource_space import BoolArray
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.session.session import Session

# Maximum number of tries (placed pods) per search, and per search in a transaction that explores evictions: a
# search for victims places the same gang many times.
MOST_TRIES = 500
MOST_TRIES_AMONG_VICTIMS = 100

# Work of one try, in checked nodes of an exact search.
WORK_PER_TRY = 250

T = TypeVar("T")


class Task(Protocol):
    """A part of the work of a search."""

    def solve(self, search: LimitedSearch, later: Agenda) -> bool:
        """Do the task and all later tasks. Return False if that is impossible; then nothing of them is placed."""
        ...


# The next task and the tasks after it.
Agenda = tuple[Task, "Agenda"] | None


class LimitedSearch:
    """One search in a transaction. `classes` are those of all pods, `levels` those of all topology rules.

    After a search without a result, `tries` is the number of placed pods, and `proved` tells that no placement
    exists. `ordered` tells that the order of placements matters: of pods with rules about other pods, or with an
    allocator whose allocations depend on earlier ones.
    """

    def __init__(
        self,
        session: Session,
        transaction: Transaction,
        classes: Iterable[ClassRecord],
        levels: Iterable[Level] = (),
        limit: int = MOST_TRIES,
    ) -> None:
        self.session = session
        self.transaction = transaction
        self.classes = tuple(dict.fromkeys(classes))
        self.levels = tuple(levels)
        self.tries = 0
        self.proved = False
        # True once a choice was omitted that could have led to a placement.
        self.incomplete = False
        placer = session.placer
        # Rows are distinguished by the pods on them, on other rows too.
        self.has_peers = any(pod_class.affinity.restricts for pod_class in self.classes)
        self.has_allocators = any(placer.allocators(pod_class) for pod_class in self.classes)
        self.ordered = any(
            pod_class.affinity.may_be_unblocked
            or any(allocator.depends_on_order for allocator in placer.allocators(pod_class))
            for pod_class in self.classes
        )
        self._limit = limit
        self._discrepancies = 0
        self._cut = False

    @property
    def exhausted(self) -> bool:
        """True once the limit has ended the search."""
        return self.tries >= self._limit

    def run(self, agenda: Agenda) -> bool:
        """Do all tasks; return whether that was possible."""
        allowed = 0
        while True:
            self._discrepancies, self._cut = allowed, False
            if self.solve(agenda):
                return True
            if self.exhausted or not self._cut:
                self.proved = not self.exhausted and not self.incomplete
                return False
            allowed += 1

    def solve(self, agenda: Agenda) -> bool:
        """Do the tasks of an agenda."""
        if agenda is None:
            return True
        task, later = agenda
        return task.solve(self, later)

    def choices(self, options: Iterable[T]) -> Iterator[T]:
        """Yield the options in order while discrepancies are left; every option but the first costs one."""
        for number, option in enumerate(options):
            if self.exhausted:
                return
            if not number:
                yield option
                continue
            if not self._discrepancies:
                self._cut = True
                return
            self._discrepancies -= 1
            yield option
            self._discrepancies += 1

    def count_try(self) -> None:
        """Count one placed pod."""
        self.tries += 1
        self.session.search_work += WORK_PER_TRY


def intersection(outer: BoolArray | None, inner: BoolArray | None) -> BoolArray | None:
    """Return the rows of both limits; None means all rows."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    return outer & inner
