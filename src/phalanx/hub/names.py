"""Names that the hub writes on objects, here and in member clusters, and the kinds that it dispatches."""

from __future__ import annotations

import msgspec

from phalanx.dialects.api_groups import PHALANX
from phalanx.kube.paths import Resource

#: Gate of pods that the hub dispatches. No scheduler at the hub places such a pod, and the gate is never removed.
DISPATCH_GATE = "phalanx.dev/dispatch"
#: Gate of new copies. The hub removes it from the copies that a grant names, and from no other.
GRANT_GATE = "phalanx.dev/grant"
#: Labels of copies: the hub (the uid of its namespace kube-system), and the uid of the Dispatch.
DISPATCH_LABEL = "phalanx.dev/dispatch-uid"
#: Annotations of copies: the uid of the original, the epoch, and the policy for a cluster that is unreachable.
ORIGIN_UID = "phalanx.dev/origin-uid"
EPOCH = "phalanx.dev/epoch"
#: Finalizer of copies until the hub has read their result.
RESULT_FINALIZER = "phalanx.dev/result"
#: Finalizer of a Dispatch until its copies are deleted.
COPIES_FINALIZER = "phalanx.dev/copies"
#: Annotations of PodGroups that users write at the hub.
RERUN_AFTER = "phalanx.dev/rerun-after"
CLUSTERS = "phalanx.dev/clusters"
SUSPEND = "phalanx.dev/suspend"
SPILL_AFTER = "phalanx.dev/spill-after"
#: Condition of a pod at the hub about its dispatch.
DISPATCHED = "phalanx.dev/Dispatched"

#: Namespace of the hub's lease in each member cluster.
LEASE_NAMESPACE = "kube-system"

VERSION = "v1alpha1"
DISPATCHES = Resource(PHALANX, VERSION, "dispatches", "Dispatch")
MEMBER_CLUSTERS = Resource(PHALANX, VERSION, "memberclusters", "MemberCluster", namespaced=False)

#: Queues of the hub: one ledger over all member clusters.
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)


class DispatchedGroupKind(msgspec.Struct, frozen=True):
    """Kind of PodGroup that the hub can dispatch. Its pods name it in the label `label` or one of `annotations`."""

    resource: Resource
    label: str = ""
    annotations: tuple[str, ...] = ()

    def group_of(self, metadata: dict[str, object]) -> str:
        """Return the name of the PodGroup of this kind that a pod's metadata contain; "" without one."""
        labels, annotations = metadata.get("labels"), metadata.get("annotations")
        if self.label and isinstance(labels, dict) and isinstance(name := labels.get(self.label), str):
            return name
        if isinstance(annotations, dict):
            for key in self.annotations:
                if isinstance(name := annotations.get(key), str):
                    return name
        return ""


GROUP_KINDS = (
    DispatchedGroupKind(
        Resource("scheduling.x-k8s.io", "v1alpha1", "podgroups", "PodGroup"), "scheduling.x-k8s.io/pod-group"
    ),
    DispatchedGroupKind(
        Resource("scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"),
        annotations=("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"),
    ),
)
