"""The allocator of CPUs by NUMA node, for pods that get whole ones."""

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

# Nodes are alike: what was found for one holds for all that have as much free. Beyond so many it is found anew.
_ANSWERS = 1 << 16


class Pinned(msgspec.Struct, frozen=True):
    """How many CPUs of each NUMA node a pod has."""

    pod: str
    alias: str
    cpus: Counts


class NumaNodes(NodeAllocator):
    """By row: the node's topology, and the CPUs of pods that it does not know of yet.

    The arithmetic is that of the kubelet's topology manager with the CPU manager as its only provider, container by
    container (kubelet, cm/topologymanager and cm/cpumanager; Volcano, plugins/numaaware), in counts of CPUs: which
    ones of a NUMA node it will be is up to the kubelet.
    """

    name = NUMA

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self.changes = ChangeLog()
        self._known: dict[str, NumaTopology] = {}
        self._topologies: dict[int, NumaTopology] = {}
        self._pinned: dict[int, dict[str, Pinned]] = {}
        self._answers: dict[tuple[Counts, Counts, NumaPolicy, Counts], Counts] = {}

    def free(self, row: int) -> Counts:
        """CPUs per NUMA node that nobody has."""
        topology = self._topologies[row]
        free = list(topology.free)
        for pinned in self._pinned.get(row, {}).values():
            if not {pinned.pod, pinned.alias} & topology.assigned:
                free = [left - taken for left, taken in zip(free, pinned.cpus, strict=False)]
        return tuple(free)

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.numa and pod_class.cpus)

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        return np.array([self._offer(pod_class, row) for row in self._each(rows)], dtype=np.int64)

    def closeness(self, pod_class: PodClass, rows: Rows, deepest: int) -> FloatArray:
        """float[rows, deepest], 0..100: the fewer NUMA nodes each next pod would be on, the better."""
        most = max((len(topology.cpus) for topology in self._topologies.values()), default=1)
        each = list(self._each(rows))
        points = np.zeros((len(each), deepest))
        for position, row in enumerate(each):
            for copy, span in enumerate(self._spans(pod_class, row)[:deepest]):
                points[position, copy] = 100.0 * (most - span) / most
        return points

    def take(self, pod: Pod, row: int) -> object | None:
        policy = self._policy(pod.pod_class, row)
        if policy is None:
            return None
        found = deal(self.free(row), self._topologies[row].cpus, policy, pod.pod_class.cpus)
        if found is None:
            return None
        pinned = Pinned(pod.uid, pod.key, found)
        self.book(pinned, row, 1)
        return pinned

    def observed(self, pod: Pod, row: int) -> object | None:
        """What a pod that is there has is in the topology, or will be; until then, what it would get."""
        return self.take(pod, row)

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, Pinned)
        here = self._pinned.setdefault(row, {})
        if sign > 0:
            here[allocated.pod] = allocated
        else:
            del here[allocated.pod]
            if not here:
                del self._pinned[row]
        self.changes.note(row)

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        each = list(self._each(rows))
        stated = pod_class.numa != AS_THE_NODE
        other = np.array([stated and self._policy(pod_class, row) is None for row in each], dtype=np.bool_)
        full = np.array([self._offer(pod_class, row) == 0 for row in each], dtype=np.bool_) & ~other
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
                raise TypeError(f"nobody tells NUMA nodes {fact!r}")
        return row >= 0

    def _note(self, row: int) -> None:
        self.changes.note(row)
        self._nodes.changes.note(row)

    def _each(self, rows: Rows) -> Iterator[int]:
        yield from row_numbers(rows, self._nodes.capacity).tolist()

    def _policy(self, pod_class: PodClass, row: int) -> NumaPolicy | None:
        """By which policy the row hands CPUs to the class; None where it takes no care of them for it."""
        topology, asked = self._topologies.get(row), pod_class.numa
        if topology is None or not topology.pinned or topology.policy is NumaPolicy.NONE:
            return None
        return topology.policy if asked in (AS_THE_NODE, topology.policy) else None

    def _offer(self, pod_class: PodClass, row: int) -> int:
        """How many copies the row takes."""
        if self._policy(pod_class, row) is None:
            return UNLIMITED_COPIES if pod_class.numa == AS_THE_NODE else 0
        return len(self._spans(pod_class, row))

    def _spans(self, pod_class: PodClass, row: int) -> Counts:
        """On how many NUMA nodes each copy would be that the row takes, one after the other."""
        policy = self._policy(pod_class, row)
        if policy is None:
            return ()
        free, cpus, asked = self.free(row), self._topologies[row].cpus, pod_class.cpus
        key = (free, cpus, policy, asked)
        found = self._answers.get(key)
        if found is None:
            if len(self._answers) >= _ANSWERS:
                self._answers.clear()
            found = self._answers[key] = tuple(_play(free, cpus, policy, asked))
        return found


def _play(free: Counts, cpus: Counts, policy: NumaPolicy, asked: Counts) -> Iterator[int]:
    while (taken := deal(free, cpus, policy, asked)) is not None:
        yield sum(1 for count in taken if count)
        free = tuple(left - count for left, count in zip(free, taken, strict=True))


def deal(free: Counts, cpus: Counts, policy: NumaPolicy, asked: Counts) -> Counts | None:
    """The CPUs per NUMA node that containers get which ask for so many each, one after the other; None where the
    policy, or their number, does not admit one of them."""
    left, total = list(free), [0] * len(free)
    for count in asked:
        given = _container(tuple(left), cpus, policy, count)
        if given is None:
            return None
        for number, taken in enumerate(given):
            left[number] -= taken
            total[number] += taken
    return tuple(total)


def _container(free: Counts, cpus: Counts, policy: NumaPolicy, count: int) -> Counts | None:
    if sum(part for part in free if part > 0) < count:
        return None
    numbers = range(len(cpus))
    needed = next((size for size in numbers if _widest(cpus, size + 1) >= count), len(cpus) - 1) + 1
    best = None
    for size in (needed, *(size for size in range(1, len(cpus) + 1) if size != needed)):
        # Of masks of one size the one with the lowest bits is the narrowest; those of the size that would do on an
        # idle node are preferred.
        fitting = [mask for mask in combinations(numbers, size) if sum(max(0, free[at]) for at in mask) >= count]
        if fitting:
            best = min(fitting, key=lambda mask: sum(1 << at for at in mask))
            break
    assert best is not None
    preferred = len(best) == needed
    if policy is NumaPolicy.RESTRICTED and not preferred:
        return None
    if policy is NumaPolicy.SINGLE and not (preferred and len(best) == 1):
        return None
    given = [0] * len(cpus)
    # Those that are fullest are filled first, as the CPU manager does with cores.
    for at in sorted(best, key=lambda at: (free[at], at)):
        given[at] = min(max(0, free[at]), count)
        count -= given[at]
    return tuple(given)


def _widest(cpus: Counts, size: int) -> int:
    """The most CPUs that so many NUMA nodes have."""
    return sum(sorted(cpus)[len(cpus) - size :])
