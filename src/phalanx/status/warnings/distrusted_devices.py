"""Warnings about pods whose device annotations are not plausible."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.devices.shared import SHARED_DEVICES, SharedDevices
from phalanx.cluster.state import ClusterState
from phalanx.dialects.warnings import ObjectWarning, pod_ref

# Label of these pods in the metric of rejected annotations.
DEVICE_RESULTS = "device results"
_CODE = "DeviceResultDoubted"


class DistrustedDevices:
    """Warnings about implausible device annotations, once per pod and doubt; `counted` is called for each."""

    def __init__(self, state: ClusterState, counted: Callable[[], None]) -> None:
        self._state = state
        self._counted = counted
        self._told: dict[str, str] = {}

    def new_warnings(self) -> list[ObjectWarning]:
        """Return the warnings about device annotations since the last call."""
        allocator = self._state.nodes.allocators[SHARED_DEVICES]
        assert isinstance(allocator, SharedDevices)
        if not allocator.doubts and not self._told:
            return []
        doubts = {
            uid: held.doubt
            for uid, held in allocator.doubts.items()
            if held.need.family in allocator.families and uid in self._state.pods
        }
        fresh = [uid for uid, doubt in doubts.items() if self._told.get(uid) != doubt]
        self._told = doubts
        return [self._notice(uid) for uid in fresh]

    def _notice(self, uid: str) -> ObjectWarning:
        self._counted()
        pod = self._state.pods[uid].pod
        note = f"{self._told[uid]}; its requests are charged to the GPUs with the most free memory; delete the pod"
        return ObjectWarning(pod_ref(pod.namespace, pod.name, uid), "Warning", _CODE, note)
