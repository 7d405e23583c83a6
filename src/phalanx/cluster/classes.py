"""Pod classes and footprints, interned: one record for thousands of identical pods."""

from __future__ import annotations

from collections.abc import Container, Iterable
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
    """Amounts of one pod: `usage` int64[R] with its pod slot, `scored` int64[2] (CPU, memory for the scores).

    `amounts` are those of `usage` by name, without zeros, and further amounts that accounts are charged.
    """

    __slots__ = ("__weakref__", "amounts", "scored", "usage")

    def __init__(self, usage: IntArray, scored: IntArray, amounts: dict[str, int]) -> None:
        self.usage = usage
        self.scored = scored
        self.amounts = amounts


class ClassRecord:
    """A pod class (`spec`) with its place in the arrays.

    `columns` are the requested resources (the pod slot included) and `amounts` their amounts: only these are
    compared with idle amounts, as in kube-scheduler's NodeResourcesFit. `demand` are both in pairs. `min_idle`
    int64[R, 1] has the same for all resources at once: the idle amounts that one copy needs, NOTHING for resources
    that it does not request.
    `gpu_columns` are those of `columns` that are GPUs. `allocators` are the node allocators of its pods, `affinity`
    is their profile. The feasible nodes of a `dynamic` class depend on the places of other pods. `namespace` is
    that of its pods, if they do not share the class with other namespaces.
    """

    __slots__ = (
        "__weakref__",
        "_affinity_state",
        "affinity",
        "allocators",
        "amounts",
        "columns",
        "demand",
        "footprint",
        "gpu_columns",
        "min_idle",
        "namespace",
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
        namespace: str = "",
        cards: Container[int] = (),
    ) -> None:
        self.number = number
        self.namespace = namespace
        self.affinity = profile
        self._affinity_state: AffinityState | None = None
        self.allocators = allocators
        self.spec = pod_class
        self.footprint = footprint
        self.columns: npt.NDArray[np.intp] = np.flatnonzero(footprint.usage > 0)
        self.gpu_columns = tuple(column for column in self.columns.tolist() if column in cards)
        self.amounts: IntArray = footprint.usage[self.columns]
        self.demand = tuple(zip(self.columns.tolist(), self.amounts.tolist(), strict=True))
        self.min_idle: IntArray = _min_idle(footprint.usage)

    @property
    def dynamic(self) -> bool:
        return bool(self.allocators) or self.affinity.restricts

    def affinity_state(self, index: AffinityIndex) -> AffinityState:
        """Return the current data of the class about other pods, which follows from their nodes."""
        state = self._affinity_state
        if state is None or state.shape != index.shape:
            state = self._affinity_state = AffinityState(index, self.affinity, self.spec)
        for counter in state.counters():
            counter.region.update()
        return state

    def __repr__(self) -> str:
        return f"ClassRecord({self.number}, {dict(self.spec.requests)})"


class ClassTable:
    """Interns classes and footprints over one resource space, while they are referenced.

    Numbers are never reused.
    """

    def __init__(self, space: ResourceSpace, allocators: Iterable[NodeAllocator] = ()) -> None:
        self._space = space
        self._allocators = tuple(allocators)
        self._classes: WeakValueDictionary[tuple[PodClass, AffinityProfile, str], ClassRecord]
        self._classes = WeakValueDictionary()
        self._footprints: WeakValueDictionary[tuple[Requests, int, int, Requests], Footprint]
        self._footprints = WeakValueDictionary()
        self._width = len(space)
        self._next = 0

    def __len__(self) -> int:
        return len(self._classes)

    def record(
        self, pod_class: PodClass, profile: AffinityProfile = NO_AFFINITY, namespace: str = ""
    ) -> ClassRecord:
        """Return the record of a pod class and an affinity profile; with a `namespace`, of its pods there alone."""
        record = self._classes.get((pod_class, profile, namespace))
        if record is None:
            footprint = self.footprint(pod_class.requests, pod_class)
            allocators = tuple(allocator for allocator in self._allocators if allocator.concerns(pod_class))
            created = ClassRecord(
                self._next, pod_class, footprint, allocators, profile, namespace, self._space.cards
            )
            record = self._classes[pod_class, profile, namespace] = created
            self._next += 1
        return record

    def footprint(self, usage: Requests, pod_class: PodClass) -> Footprint:
        """Return the footprint of a pod that uses `usage` (more than its requests after a resize)."""
        key = (usage, pod_class.scored_cpu, pod_class.scored_memory, pod_class.beside)
        footprint = self._footprints.get(key)
        if footprint is None:
            vector = self._space.vector(usage, pods=1)
            scored = np.array([pod_class.scored_cpu, pod_class.scored_memory], dtype=np.int64)
            charged = pod_class.charged(usage)
            footprint = self._footprints[key] = Footprint(vector, scored, charged)
            self.widen()
        return footprint

    def widen(self) -> None:
        """Extend all vectors of amounts to the resources that the space has added."""
        width = len(self._space)
        if width == self._width:
            return
        for footprint in self._footprints.values():
            missing = width - len(footprint.usage)
            if missing:
                footprint.usage = np.concatenate([footprint.usage, np.zeros(missing, dtype=np.int64)])
        for record in self._classes.values():
            record.min_idle = _min_idle(record.footprint.usage)
        self._width = width


def _min_idle(usage: IntArray) -> IntArray:
    return np.where(usage > 0, usage, NOTHING)[:, None]
