"""`numa-aware`: whole CPUs from as few NUMA nodes as the kubelet will insist on (Volcano, plugins/numaaware)."""

from __future__ import annotations

from phalanx.cluster.devices.numa import NUMA, NumaNodes
from phalanx.model.devices.numa import AS_THE_NODE
from phalanx.plugin import Arguments, ClassRecord, FloatArray, Load, Plugin


class NumaAware(Plugin):
    """Guaranteed pods with whole CPUs go where the kubelet would admit them: by its own policy, or only to kubelets
    of the policy that the annotation `volcano.sh/numa-topology-policy` names. Among those, pods with the annotation
    prefer nodes on which they would be on few NUMA nodes: weight x 0..100.

    Nodes without a Numatopology object take pods without the annotation as ever.
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
