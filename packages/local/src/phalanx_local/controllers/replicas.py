"""ReplicaSets: keep `spec.replicas` pods running."""

from __future__ import annotations

from phalanx_local.controllers.pod_owner import PodOwner, is_active, is_ready, number
from phalanx_local.objects import mapping, metadata
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Record


class ReplicaSetController(PodOwner):
    """Controller of apps/v1 ReplicaSets."""

    storage = "apps/replicasets"

    def sync(self, type_: ResourceType, record: Record) -> None:
        obj = record.load()
        spec = mapping(obj.get("spec"))
        wanted = number(spec.get("replicas"), 1)
        pods = [pod for pod in self.dependents(record) if is_active(pod)]
        for _ in range(wanted - len(pods)):
            self.create_pod(record.namespace, self.make_pod(type_, record, mapping(spec.get("template"))))
        for pod in sorted(pods, key=_cost)[: max(0, len(pods) - wanted)]:
            self.delete("/pods", pod)
        pods = [pod for pod in self.dependents(record) if is_active(pod)]
        ready = sum(map(is_ready, pods))
        status = {
            "replicas": len(pods),
            "fullyLabeledReplicas": len(pods),
            "readyReplicas": ready,
            "availableReplicas": ready,
            "observedGeneration": metadata(obj).get("generation", 1),
        }
        self.put_status(type_, record.key, {key: value for key, value in status.items() if value})


def _cost(pod: Record) -> tuple[bool, bool, bool, int, str]:
    """Return the sort key by which surplus pods are deleted: unbound, pending and not ready pods first, then the
    newest."""
    return (
        bool(pod.fields["spec.nodeName"]),
        pod.fields["status.phase"] == "Running",
        is_ready(pod),
        -pod.revision,
        pod.name,
    )
