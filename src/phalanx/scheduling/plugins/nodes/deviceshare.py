"""Plugin `deviceshare`: parts of GPUs (Volcano, plugins/deviceshare; Koordinator's plugin of that name)."""

from __future__ import annotations

from phalanx.cluster.devices.cards import CardPolicy
from phalanx.cluster.devices.shared import SHARED_DEVICES, SharedDevices
from phalanx.model.devices.cards import Family
from phalanx.plugin import Arguments, ClassRecord, FloatArray, Load, NodeBackoff, NodeTable, Plugin

_FAMILIES = {
    "deviceshare.GPUNumberEnable": Family.GPU_SHARE,
    "deviceshare.GPUSharingEnable": Family.GPU_SHARE,
    "deviceshare.VGPUEnable": Family.VGPU,
}


class DeviceShare(Plugin):
    """Allocation of parts of GPUs, for the families that the switches enable.

    Koordinator's GPUs are always included, because no other scheduler of ours would allocate them. `SchedulePolicy`
    selects the card of a node: binpack, spread, random, or the last one. With `ScheduleWeight` above 0, nodes are
    scored by binpack and spread too. Volcano refuses to combine its two ways of sharing; here they can be combined.
    """

    name = "deviceshare"
    without_effect = (
        "deviceshare.AscendHAMiVNPUEnable",
        "deviceshare.AscendMindClusterVNPUEnable",
        "deviceshare.GPUExclusiveRules",
        "deviceshare.KnownGeometriesCMName",
        "deviceshare.KnownGeometriesCMNamespace",
        # A binding contains the cards of its pod, and no other process writes them: a lock is not needed.
        "deviceshare.NodeLockEnable",
    )
    arguments = ("deviceshare.SchedulePolicy", "deviceshare.ScheduleWeight", *_FAMILIES, *without_effect)
    node_allocators = frozenset({SHARED_DEVICES})

    def __init__(self, arguments: Arguments) -> None:
        chosen = {family for key, family in _FAMILIES.items() if arguments.boolean(key, False)}
        self._families = frozenset({Family.KOORDINATOR, *chosen})
        key = "deviceshare.SchedulePolicy"
        self._policy = CardPolicy.LAST
        stated = arguments.keys()
        if key in stated:
            self._policy = arguments.parsed(key, CardPolicy, "binpack, spread or random")
        self._weight = arguments.integer("deviceshare.ScheduleWeight", 0, least=0)
        if not self._weight or self._policy is CardPolicy.LAST:
            self.disabled_points = frozenset({"score"})
        for switch in ("AscendHAMiVNPUEnable", "AscendMindClusterVNPUEnable", "NodeLockEnable"):
            arguments.boolean(f"deviceshare.{switch}", False)

    def configure(self, nodes: NodeTable, backoff: NodeBackoff) -> None:
        _shared_devices(nodes).configure(self._families, self._policy)

    def score(self, pod_class: ClassRecord, load: Load) -> FloatArray | float:
        if pod_class.spec.devices is None:
            return 0.0
        points = _shared_devices(load.nodes).points(pod_class.spec, load.rows, load.depth)
        if points is None:
            return 0.0
        weighted: FloatArray = points * float(self._weight)
        return weighted[:, 0] if load.copies is None else weighted


def _shared_devices(nodes: NodeTable) -> SharedDevices:
    allocator = nodes.allocators[SHARED_DEVICES]
    assert isinstance(allocator, SharedDevices)
    return allocator
