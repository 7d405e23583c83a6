"""The scheduler under test, fed with the same objects that the oracle sees, the way the daemon feeds it."""

from __future__ import annotations

import json

import numpy as np

from phalanx.cluster.resource_space import PODS_COLUMN
from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_namespace, decode_node, decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.reader import decode_object
from phalanx.model.events import ClusterEvent
from phalanx.model.pod import MemberState
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.placement.domain_greedy import NOWHERE
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler
from tests.differential.oracle.world import Wire, World
from tests.differential.worlds import OURS

# pod uid -> node name -> why not; no entry where the pod may go there.
Verdicts = dict[str, dict[str, tuple[str, ...]]]

# Kinds that the observer watches beside pods, nodes and namespaces, by the world's names.
SERVED = {
    "claims": ServedKind("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
    "volumes": ServedKind("", "v1", "persistentvolumes", "PersistentVolume"),
    "classes": ServedKind("storage.k8s.io", "v1", "storageclasses", "StorageClass"),
    "csi_nodes": ServedKind("storage.k8s.io", "v1", "csinodes", "CSINode"),
    "csi_drivers": ServedKind("storage.k8s.io", "v1", "csidrivers", "CSIDriver"),
    "capacities": ServedKind("storage.k8s.io", "v1", "csistoragecapacities", "CSIStorageCapacity"),
    "attachments": ServedKind("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment"),
    "device_classes": ServedKind("resource.k8s.io", "v1", "deviceclasses", "DeviceClass"),
    "slices": ServedKind("resource.k8s.io", "v1", "resourceslices", "ResourceSlice"),
    "resource_claims": ServedKind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
}


class Ours:
    def __init__(self, policy: Policy | None = None) -> None:
        self.intake = Intake([OURS])
        self.state = ClusterState([OURS])
        self.scheduler = Scheduler(self.state, policy or load_policy())

    @classmethod
    def of(cls, world: World, policy: Policy | None = None) -> Ours:
        found = cls(policy)
        for kind, entries in contents(world):
            for entry in entries:
                found.take(kind, entry)
        return found

    def take(self, kind: str, entry: Wire) -> None:
        """An object came or changed."""
        raw = json.dumps(entry).encode()
        match kind:
            case "nodes":
                self._apply(self.intake.node(decode_node(raw)))
            case "pods":
                self._apply(self.intake.pod(decode_pod(raw)))
            case "namespaces":
                self._apply(self.intake.namespace(decode_namespace(raw)))
            case _:
                document = decode_object(raw)
                self._apply(self.intake.apply(self.intake.enrichers.updated(SERVED[kind], document)))

    def drop(self, kind: str, entry: Wire) -> None:
        """An object is gone."""
        metadata = entry["metadata"]
        match kind:
            case "nodes":
                self._apply(self.intake.node_removed(metadata["name"]))
            case "pods":
                self._apply(self.intake.pod_removed(metadata["namespace"], metadata["name"], metadata["uid"]))
            case "namespaces":
                self._apply(self.intake.namespace_removed(metadata["name"]))
            case _:
                address = (metadata.get("namespace", ""), metadata["name"])
                self._apply(self.intake.apply(self.intake.enrichers.removed(SERVED[kind], *address)))

    def verdicts(self) -> Verdicts:
        """About every pod that is ours to place now."""
        found: Verdicts = {}
        for uid, record in self.state.pods.items():
            if record.state is MemberState.PENDING:
                found[uid] = self._verdicts_on(uid)
        return found

    def scores(self, uid: str) -> dict[str, float]:
        """node name -> how good it is for the pod, for the nodes that it may go to."""
        view = self.scheduler.placer.class_view(self.state.pods[uid].pod_class)
        rows = np.flatnonzero(self.state.nodes.alive & (view.score > NOWHERE))
        return {self.state.nodes.names[row]: float(view.score[row]) for row in rows.tolist()}

    def _verdicts_on(self, uid: str) -> dict[str, tuple[str, ...]]:
        record, nodes, plugin_runtime = self.state.pods[uid], self.state.nodes, self.scheduler.plugin_runtime
        cls = record.pod_class
        view = self.scheduler.placer.class_view(cls)
        reasons = plugin_runtime.explain(cls, nodes, slice(None))
        refusal = record.pod.problem or plugin_runtime.pre_filter(cls)
        found = {}
        for row in np.flatnonzero(nodes.alive).tolist():
            if view.score[row] > NOWHERE and not refusal:
                continue
            why = [refusal] if refusal else [reason for reason, out in reasons if out[row]]
            for column, amount in zip(cls.columns.tolist(), cls.amounts.tolist(), strict=True):
                if nodes.idle[column, row] < amount:
                    name = nodes.space.names[column]
                    why.append("Too many pods" if column == PODS_COLUMN else f"Insufficient {name}")
            found[nodes.names[row]] = tuple(why)
        return found

    def _apply(self, events: list[ClusterEvent]) -> None:
        for event in events:
            self.state.apply(event)


def contents(world: World) -> list[tuple[str, list[Wire]]]:
    """Return the content of a world by kind, in an order in which a scheduler can observe it."""
    kinds = ("namespaces", "nodes", *SERVED, "pods")
    return [(kind, entries) for kind in kinds if (entries := getattr(world, kind))]
