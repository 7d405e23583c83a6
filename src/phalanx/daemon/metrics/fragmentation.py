"""Metric: largest gangs that fit now, by the request of each pod.

When resources are fragmented, the number for large pods falls while the number for small pods stays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from phalanx.cluster.node_table import NodeTable
from phalanx.cluster.resource_space import PODS_COLUMN, BoolArray, exact_sums
from phalanx.cluster.state import ClusterState
from phalanx.daemon.metrics.exposition import labels, lines_of
from phalanx.model.resources import CPU, MEMORY

_GI = 2**30
#: Requests per pod, as in manifests: (label, amount).
_SIZES: dict[str, tuple[tuple[str, int], ...]] = {
    CPU: (("1", 1_000), ("4", 4_000), ("16", 16_000), ("64", 64_000)),
    MEMORY: (("1Gi", _GI), ("8Gi", 8 * _GI), ("64Gi", 64 * _GI), ("256Gi", 256 * _GI)),
}
#: Requests per pod of resources that are counted in units, such as GPUs.
_PIECES = tuple((str(count), count) for count in (1, 2, 4, 8))
#: Taints of the node controller on unhealthy nodes, which hardly any pod tolerates.
_CONDITIONS, _KEEP_OUT = "node.kubernetes.io/", ("NoSchedule", "NoExecute")
#: Maximum number of resources with series of their own, in the order in which the cluster learned of them.
_MOST_RESOURCES = 24


class FragmentationMetrics:
    """Metric of the largest gangs that fit, computed from the node arrays after a change."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._version = -1
        self._known: list[tuple[str, int]] = []

    def lines(self) -> Iterator[str]:
        if self._version != self._state.version:
            self._version = self._state.version
            self._known = [
                (labels(resource=resource, per_pod=size), count)
                for resource, size, count in biggest_gangs(self._state.nodes)
            ]
        yield from lines_of("phalanx_max_available_replicas", self._known)


def biggest_gangs(nodes: NodeTable) -> Iterator[tuple[str, str, int]]:
    """Yield (resource, request per pod, number of such pods that fit now) for the resources of the nodes.

    Nodes that are cordoned, in maintenance, not ready or under pressure do not count. Other taints, quotas and
    other resources than pod slots are ignored.
    """
    extent = nodes.extent
    opened = _open(nodes)
    idle = np.maximum(nodes.idle[:, :extent][:, opened], 0)
    slots = idle[PODS_COLUMN]
    offered = np.flatnonzero(nodes.allocatable[:, :extent].sum(axis=1, dtype=np.float64))
    columns = [column for column in offered.tolist() if column != PODS_COLUMN]
    remaining = _MOST_RESOURCES
    for column in columns:
        resource = nodes.space.names[column]
        if resource == "ephemeral-storage" or resource.startswith("hugepages-"):
            continue
        if not remaining:
            return
        remaining -= 1
        sizes = _SIZES.get(resource, _PIECES)
        counts = np.stack([np.minimum(idle[column] // amount, slots) for _, amount in sizes])
        for (written, _), count in zip(sizes, exact_sums(counts), strict=True):
            yield resource, written, count


def _open(nodes: NodeTable) -> BoolArray:
    extent, taints = nodes.extent, nodes.taints
    bad = [
        any(taint.key.startswith(_CONDITIONS) and taint.effect in _KEEP_OUT for taint in taint_set)
        for taint_set in taints.sets
    ]
    opened: BoolArray = nodes.alive[:extent] & ~nodes.unschedulable[:extent] & ~np.array(bad)[taints.ids[:extent]]
    opened[list(nodes.marked)] = False
    return opened
