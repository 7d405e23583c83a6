"""Pod classes and what their pods take from a node, interned: one record for thousands of identical pods."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from phalanx.cluster.affinity.selector_sets import NO_AFFINITY, AffinityIndex, AffinityProfile
from phalanx.cluster.affinity.state import AffinityState
from phalanx.cluster.allocators.base import NodeAllocator
from phalanx.cluster.resource_space import IntArray, ResourceSpace
from phalanx.model.pod import PodClass
from phalanx.model.resources import Requests

NOTHING = np.iinfo(np.int64).min


class Footprint:
    """What one pod takes: `usage` int64[R] with its pod slot, `scored` int64[2] (CPU, memory for the scores).

    `amounts` says the same as `usage` by name, zeros left out, and what else accounts are charged.
    """

    __slots__ = ("__weakref__", "amounts", "scored", "usage")

    def __init__(self, usage: IntArray, scored: IntArray, amounts: dict[str, int]) -> None:
        self.usage = usage
        self.scored = scored
        self.amounts = amounts


class ClassRecord:
    """A pod class (`spec`) with its place in the arrays.

    `columns` are the resources that it asks for (the pod slot included) and `amounts` how much of each: only these
    are compared with what is idle, as kube-scheduler's NodeResourcesFit does. `min_idle` int64[R, 1] says the same
    for all resources at once: what must be idle for one copy to fit, NOTHING where it does not matter. `allocators`
    are the node allocators that its pods take from, `affinity` tells who minds where they are. Where a `dynamic`
    class may go depends on which pods are where.
    """

    __slots__ = (
        "__weakref__",
        "_affinity_state",
        "affinity",
        "allocators",
        "amounts",
        "columns",
        "footprint",
        "min_idle",
        "number",
        "spec",
    )

    def __init__(
        self,
        number: int,
        pod_class: PodClass,
        footprint: Footprint,
        allocators: tuple[NodeAllocator, ...] = (),
        profile: AffinityProfile = NO_AFFINITY,
    ) -> None:
        self.number = number
        self.affinity = profile
        self._affinity_state: AffinityState | None = None
        self.allocators = allocators
        self.spec = pod_class
        self.footprint = footprint
        self.columns: npt.NDArray[np.intp] = np.flatnonzero(footprint.usage > 0)
        self.amounts: IntArray = footprint.usage[self.columns]
        self.min_idle: IntArray = _least(footprint.usage)

    @property
    def dynamic(self) -> bool:
        return bool(self.allocators) or self.affinity.restricts

    def affinity_state(self, index: AffinityIndex) -> AffinityState:
        """What other pods mean for the class, current."""
        found = self._affinity_state
        if found is None or found.shape != index.shape:
            found = self._affinity_state = AffinityState(index, self.affinity, self.spec)
        for counter in found.counters():
            counter.region.update()
        return found

    def __repr__(self) -> str:
        return f"ClassRecord({self.number}, {dict(self.spec.requests)})"


class ClassTable:
    """Interns classes and footprints over one resource space, for as long as anyone uses them.

    Numbers are never given twice.
    """

    def __init__(self, space: ResourceSpace, allocators: Iterable[NodeAllocator] = ()) -> None:
        self._space = space
        self._allocators = tuple(allocators)
        self._classes: WeakValueDictionary[tuple[PodClass, AffinityProfile], ClassRecord] = WeakValueDictionary()
        self._footprints: WeakValueDictionary[tuple[Requests, int, int, Requests], Footprint]
        self._footprints = WeakValueDictionary()
        self._width = len(space)
        self._next = 0

    def __len__(self) -> int:
        return len(self._classes)

    def record(self, pod_class: PodClass, profile: AffinityProfile = NO_AFFINITY) -> ClassRecord:
        """The class of pods that are equal in all of this."""
        found = self._classes.get((pod_class, profile))
        if found is None:
            footprint = self.footprint(pod_class.requests, pod_class)
            allocators = tuple(allocator for allocator in self._allocators if allocator.concerns(pod_class))
            record = ClassRecord(self._next, pod_class, footprint, allocators, profile)
            found = self._classes[pod_class, profile] = record
            self._next += 1
        return found

    def footprint(self, usage: Requests, pod_class: PodClass) -> Footprint:
        """What a pod of `pod_class` that takes `usage` (more than it asked for after a resize) costs a node."""
        key = (usage, pod_class.scored_cpu, pod_class.scored_memory, pod_class.beside)
        found = self._footprints.get(key)
        if found is None:
            vector = self._space.vector(usage, pods=1)
            scored = np.array([pod_class.scored_cpu, pod_class.scored_memory], dtype=np.int64)
            charged = pod_class.charged(usage)
            found = self._footprints[key] = Footprint(vector, scored, charged)
            self.widen()
        return found

    def widen(self) -> None:
        """Pads every vector to the width of the space."""
        width = len(self._space)
        if width == self._width:
            return
        for footprint in self._footprints.values():
            missing = width - len(footprint.usage)
            if missing:
                footprint.usage = np.concatenate([footprint.usage, np.zeros(missing, dtype=np.int64)])
        for record in self._classes.values():
            record.min_idle = _least(record.footprint.usage)
        self._width = width


def _least(usage: IntArray) -> IntArray:
    return np.where(usage > 0, usage, NOTHING)[:, None]
