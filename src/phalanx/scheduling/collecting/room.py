"""Room on nodes that collections withhold from other units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.cluster.state import ClusterState
from phalanx.scheduling.collecting.collection import Collection
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.window import RowArray


class CollectedRoom:
    """Collections by unit, and the room that they leave to pods.

    What comes free on a collected row up to the demand there is closed to pods, without any update: the withheld
    amount follows from the idle amount. `lifted` collections are open to the unit that has its turn. `ends_in_time`
    returns whether a pod of a class that starts now ends before a collection can be complete.
    """

    def __init__(
        self,
        state: ClusterState,
        ends_in_time: Callable[[ClassRecord, Collection], bool],
        grants_exist: Callable[[], bool],
    ) -> None:
        self.collections: dict[UnitKey, Collection] = {}
        self.lifted: dict[UnitKey, Collection] = {}
        self._state = state
        self._ends_in_time = ends_in_time
        self._grants_exist = grants_exist

    @property
    def active(self) -> bool:
        return len(self.lifted) < len(self.collections)

    def closed(self) -> Iterator[Collection]:
        """Yield the collections that are closed to the unit that has its turn."""
        return (collection for key, collection in self.collections.items() if key not in self.lifted)

    def limit_copies(self, pod_class: ClassRecord, rows: Rows, copies: IntArray) -> IntArray:
        """Return int64[rows]: the copies that fit beside the withheld amounts."""
        use = pod_class.spec.reservation
        if use is not None and use.inside and not self._grants_exist():
            return np.zeros_like(copies)
        chosen: RowArray | None = None
        for collection in self.closed():
            if self._ends_in_time(pod_class, collection):
                continue
            if chosen is None:
                chosen, copies = _row_numbers(rows, self._state.nodes.capacity), copies.copy()
            places = np.searchsorted(collection.rows, chosen).clip(max=len(collection.rows) - 1)
            inside = np.flatnonzero((collection.rows[places] == chosen) & (copies > 0))
            if len(inside):
                room = self._room_beside(pod_class, collection, places[inside])
                copies[inside] = np.minimum(copies[inside], room)
        return copies

    def _room_beside(self, pod_class: ClassRecord, collection: Collection, places: IntArray) -> IntArray:
        """Return int64[places]: the copies that fit beside the whole demand on these rows of a collection."""
        columns = pod_class.columns
        idle = self._state.nodes.idle[columns[:, None], collection.rows[places]]
        wanted = np.zeros_like(idle)
        known = columns < len(collection.wanted)
        wanted[known] = collection.wanted[columns[known][:, None], places]
        copies: IntArray = ((idle - wanted) // pod_class.amounts[:, None]).min(axis=0).clip(0)
        return copies

    def closed_to(self, pod_class: ClassRecord, rows: Rows) -> BoolArray:
        """Return bool[rows]: rows with free room for a pod of the class that collections close to it."""
        idle = self._state.nodes.idle[pod_class.columns][:, rows]
        fits = (idle // pod_class.amounts[:, None]).min(axis=0).clip(0)
        closed: BoolArray = (fits > 0) & (self.limit_copies(pod_class, rows, fits) == 0)
        return closed

    def unready(self, pod_class: ClassRecord) -> str | None:
        return None

    def note(self, collections: Iterable[Collection]) -> None:
        """Invalidate the placements on the rows of collections that were opened or closed."""
        for collection in collections:
            self._state.nodes.changes.note_all(collection.rows.tolist())


def _row_numbers(rows: Rows, capacity: int) -> RowArray:
    if isinstance(rows, slice):
        return np.arange(capacity, dtype=np.intp)[rows]
    chosen: RowArray = np.asarray(rows)
    return np.flatnonzero(chosen) if chosen.dtype == np.bool_ else chosen.astype(np.intp)
