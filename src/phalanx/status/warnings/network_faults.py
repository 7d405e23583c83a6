"""Warnings about HyperNodes that contradict each other."""

from __future__ import annotations

from phalanx.cluster.network.hypernodes import HyperNodeFault
from phalanx.cluster.network.topology import Topology
from phalanx.dialects.nodes.hypernodes import HYPER_NODES
from phalanx.dialects.warnings import ObjectRef, ObjectWarning


class NetworkFaults:
    """Warnings about HyperNode faults, once per fault, until the fault is corrected."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._as_of: object = None
        self._told: frozenset[HyperNodeFault] = frozenset()

    def new_warnings(self) -> list[ObjectWarning]:
        """Return the warnings about HyperNodes since the last call. Cheap unless nodes or HyperNodes have
        changed."""
        if self._as_of == self._topology.version:
            return []
        self._as_of = self._topology.version
        faults = self._topology.hypernodes.faults() if len(self._topology.hypernodes) else []
        fresh = [fault for fault in faults if fault not in self._told]
        self._told = frozenset(faults)
        api_version = f"{HYPER_NODES.group}/{HYPER_NODES.versions[0]}"
        return [
            ObjectWarning(
                ObjectRef(api_version, HYPER_NODES.kind, "", fault.hypernode, ""),
                "Warning",
                "HyperNodeConflict",
                fault.message,
            )
            for fault in fresh
        ]
