"""Plugin `numa-aware`: whole CPUs from few NUMA nodes, as the kubelet requires (Volcano, plugins/numaaware)."""

from __future__ import annotations

from phalanx.cluster.devices.numa import NUMA, NumaNodes
from phalanx.model.devices.numa import AS_THE_NODE
from phalanx.plugin import Arguments, ClassRecord, FloatArray, Load, Plugin


class NumaAware(Plugin):
    """Filter and score for guaranteed pods with whole CPUs.

    They are placed where the kubelet would admit them: by its own policy, or only by the policy in the annotation
    `volcano.sh/numa-topology-policy`. Pods with the annotation prefer nodes on which they would use few NUMA nodes:
    weight x 0..100. Nodes without a Numatopology object accept pods without the annotation unchecked.
    """

    name = "numa-aware"
    arguments = ("weight",)
    node_allocators = frozenset({NUMA})

    def __init__(self, arguments: Arguments) -> None:
        self._weight = arguments.integer("weight", 1, least=0)

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        spec = pod_class.spec
        if not (self._weight and spec.cpus and spec.numa) or spec.numa == AS_THE_NODE:
            return 0.0
        allocator = load.nodes.allocators[NUMA]
        assert isinstance(allocator, NumaNodes)
        points: FloatArray = allocator.closeness(spec, load.rows, load.depth) * float(self._weight)
        return points[:, 0] if load.copies is None else points
