"""Allocator of CPUs by NUMA node, for pods with exclusive CPUs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from phalanx.cluster.allocators.base import UNLIMITED_COPIES, NodeAllocator
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows, row_numbers
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.devices.numa import AS_THE_NODE, NumaPolicy, NumaTopology, NumaTopologyGone
from phalanx.model.pod import Pod, PodClass

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

NUMA = "numa"
DECISION = "volcano.sh/topology-decision"

Counts = tuple[int, ...]

# Nodes are alike: a result holds for all nodes with equal free CPUs. Beyond this number the cache is cleared.
_ANSWERS = 1 << 16


class Pinned(msgspec.Struct, frozen=True):
    """Number of CPUs of a pod per NUMA node."""

    pod: str
    alias: str
    cpus: Counts


class NumaNodes(NodeAllocator):
    """Topologies of nodes by row, and the CPUs of pods that a topology does not include yet.

    The arithmetic is that of the kubelet's topology manager with the CPU manager as its only provider, container by
    container (kubelet, cm/topologymanager and cm/cpumanager; Volcano, plugins/numaaware), in numbers of CPUs: the
    kubelet chooses the CPUs within a NUMA node.
    """

    name = NUMA

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._known: dict[str, NumaTopology] = {}
        self._topologies: dict[int, NumaTopology] = {}
        self._pinned: dict[int, dict[str, Pinned]] = {}
        self._answers: dict[tuple[Counts, Counts, NumaPolicy, Counts], Counts] = {}

    @property
    def depends_on_order(self) -> bool:
        """The kubelet chooses the CPUs, pod by pod."""
        return True

    def free(self, row: int) -> Counts:
        """Return the free CPUs of a row per NUMA node."""
        topology = self._topologies[row]
        free = list(topology.free)
        for pinned in self._pinned.get(row, {}).values():
            if not {pinned.pod, pinned.alias} & topology.assigned:
                free = [free_count - used for free_count, used in zip(free, pinned.cpus, strict=False)]
        return tuple(free)

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.numa and pod_class.cpus)

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        return np.array([self._offer(pod_class, row) for row in self._each(rows)], dtype=np.int64)

    def closeness(self, pod_class: PodClass, rows: Rows, deepest: int) -> FloatArray:
        """Return float[rows, deepest], 0..100: higher scores for fewer NUMA nodes of each further pod."""
        most_zones = max((len(topology.cpus) for topology in self._topologies.values()), default=1)
        row_list = list(self._each(rows))
        points = np.zeros((len(row_list), deepest))
        for position, row in enumerate(row_list):
            for copy, span in enumerate(self._spans(pod_class, row)[:deepest]):
                points[position, copy] = 100.0 * (most_zones - span) / most_zones
        return points

    def take(self, pod: Pod, row: int) -> object | None:
        policy = self._policy(pod.pod_class, row)
        if policy is None:
            return None
        cpus = deal(self.free(row), self._topologies[row].cpus, policy, pod.pod_class.cpus)
        if cpus is None:
            return None
        pinned = Pinned(pod.uid, pod.key, cpus)
        self.book(pinned, row, 1)
        return pinned

    def observed(self, pod: Pod, row: int) -> object | None:
        """Return the CPUs that an observed pod would get, until the node's topology includes its actual ones."""
        return self.take(pod, row)

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, Pinned)
        pinned_pods = self._pinned.setdefault(row, {})
        if sign > 0:
            pinned_pods[allocated.pod] = allocated
        else:
            del pinned_pods[allocated.pod]
            if not pinned_pods:
                del self._pinned[row]
        self.changes.note(row)

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        row_list = list(self._each(rows))
        stated = pod_class.numa != AS_THE_NODE
        other = np.array([stated and self._policy(pod_class, row) is None for row in row_list], dtype=np.bool_)
        full = np.array([self._offer(pod_class, row) == 0 for row in row_list], dtype=np.bool_) & ~other
        return [
            (f"node(s) had no topology manager with policy {pod_class.numa} and whole CPUs", other),
            ("node(s) had no NUMA nodes with enough free CPUs for a container", full),
        ]

    def annotations(self, pod: Pod, allocated: object, row: int, now: float) -> tuple[tuple[str, str], ...]:
        assert isinstance(allocated, Pinned)
        if pod.pod_class.numa == AS_THE_NODE:
            return ()
        parts = {str(number): {"cpu": str(count)} for number, count in enumerate(allocated.cpus) if count}
        return ((DECISION, msgspec.json.encode({"numa": parts}).decode()),)

    def node_added(self, row: int) -> None:
        topology = self._known.get(self._nodes.names[row])
        if topology is not None and self._topologies.get(row) is not topology:
            self._topologies[row] = topology
            self._note(row)

    def node_removed(self, row: int) -> None:
        self._topologies.pop(row, None)
        self.changes.note(row)

    def learn(self, fact: object) -> bool:
        match fact:
            case NumaTopology(node):
                self._known[node] = fact
                row = self._nodes.row(node)
                if row >= 0:
                    self._topologies[row] = fact
                    self._note(row)
            case NumaTopologyGone(node):
                self._known.pop(node, None)
                row = self._nodes.row(node)
                if row >= 0:
                    self._topologies.pop(row, None)
                    self._note(row)
            case _:
                raise TypeError(f"NUMA nodes: unexpected fact {fact!r}")
        return row >= 0

    def _note(self, row: int) -> None:
        self.changes.note(row)
        self._nodes.changes.note(row)

    def _each(self, rows: Rows) -> Iterator[int]:
        yield from row_numbers(rows, self._nodes.capacity).tolist()

    def _policy(self, pod_class: PodClass, row: int) -> NumaPolicy | None:
        """Return the NUMA policy by which the row allocates CPUs to pods of the class; None if it does not."""
        topology, requested = self._topologies.get(row), pod_class.numa
        if topology is None or not topology.pinned or topology.policy is NumaPolicy.NONE:
            return None
        return topology.policy if requested in (AS_THE_NODE, topology.policy) else None

    def _offer(self, pod_class: PodClass, row: int) -> int:
        """Return the number of pods of the class that the row admits by its free CPUs."""
        if self._policy(pod_class, row) is None:
            return UNLIMITED_COPIES if pod_class.numa == AS_THE_NODE else 0
        return len(self._spans(pod_class, row))

    def _spans(self, pod_class: PodClass, row: int) -> Counts:
        """Return the number of NUMA nodes that each further pod spans on the row."""
        policy = self._policy(pod_class, row)
        if policy is None:
            return ()
        free, cpus, requests = self.free(row), self._topologies[row].cpus, pod_class.cpus
        key = (free, cpus, policy, requests)
        spans = self._answers.get(key)
        if spans is None:
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            spans = self._answers[key] = tuple(_simulated_spans(free, cpus, policy, requests))
        return spans


def _simulated_spans(free: Counts, cpus: Counts, policy: NumaPolicy, requests: Counts) -> Iterator[int]:
    while (allocated := deal(free, cpus, policy, requests)) is not None:
        yield sum(1 for count in allocated if count)
        free = tuple(free_count - count for free_count, count in zip(free, allocated, strict=True))


def deal(free: Counts, cpus: Counts, policy: NumaPolicy, requests: Counts) -> Counts | None:
    """Return the CPUs per NUMA node for containers with these requests, one after the other; None if the policy,
    or the number of CPUs, does not admit one of them."""
    remaining, total = list(free), [0] * len(free)
    for count in requests:
        allocated = _container(tuple(remaining), cpus, policy, count)
        if allocated is None:
            return None
        for number, used in enumerate(allocated):
            remaining[number] -= used
            total[number] += used
    return tuple(total)


def _container(free: Counts, cpus: Counts, policy: NumaPolicy, count: int) -> Counts | None:
    if sum(part for part in free if part > 0) < count:
        return None
    numbers = range(len(cpus))
    needed = next((size for size in numbers if _widest(cpus, size + 1) >= count), len(cpus) - 1) + 1
    best = None
    for size in (needed, *(size for size in range(1, len(cpus) + 1) if size != needed)):
        # Among masks of one size, the one with the lowest bits is the narrowest; the smallest size that suffices on
        # an idle node is preferred.
        fitting = [
            mask for mask in combinations(numbers, size) if sum(max(0, free[zone]) for zone in mask) >= count
        ]
        if fitting:
            best = min(fitting, key=lambda mask: sum(1 << zone for zone in mask))
            break
    assert best is not None
    preferred = len(best) == needed
    if policy is NumaPolicy.RESTRICTED and not preferred:
        return None
    if policy is NumaPolicy.SINGLE and not (preferred and len(best) == 1):
        return None
    allocated = [0] * len(cpus)
    # The fullest NUMA nodes are filled first, as the CPU manager does with cores.
    for zone in sorted(best, key=lambda zone: (free[zone], zone)):
        allocated[zone] = min(max(0, free[zone]), count)
        count -= allocated[zone]
    return tuple(allocated)


def _widest(cpus: Counts, size: int) -> int:
    """Return the maximum number of CPUs that `size` NUMA nodes offer together."""
    return sum(sorted(cpus)[len(cpus) - size :])
