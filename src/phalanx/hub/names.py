"""What the hub writes on objects, here and in member clusters, and the kinds that it handles."""

from __future__ import annotations

import msgspec

from phalanx.dialects.api_groups import PHALANX
from phalanx.kube.paths import Resource

#: The gate with which whoever submits a pod leaves it to the hub. No scheduler here takes it, and it is never
#: lifted.
DISPATCH_GATE = "phalanx.dev/dispatch"
#: The gate that copies are created with. The hub lifts it from those that a grant names, and from no other.
GRANT_GATE = "phalanx.dev/grant"
#: Labels of copies: whose they are (the uid of the hub's namespace kube-system), and of which Dispatch.
DISPATCH_LABEL = "phalanx.dev/dispatch-uid"
#: Annotations of copies: of which object they are one (its uid), in which epoch, and what becomes of them in a
#: cluster that the hub does not reach.
ORIGIN_UID = "phalanx.dev/origin-uid"
EPOCH = "phalanx.dev/epoch"
#: Copies stay until the hub has read how they ended.
RESULT_FINALIZER = "phalanx.dev/result"
#: A Dispatch stays until its copies are gone.
COPIES_FINALIZER = "phalanx.dev/copies"
#: Annotations of PodGroups that users write at the hub.
RERUN_AFTER = "phalanx.dev/rerun-after"
CLUSTERS = "phalanx.dev/clusters"
SUSPEND = "phalanx.dev/suspend"
SPILL_AFTER = "phalanx.dev/spill-after"
#: The condition of a pod, at the hub, that says what became of it.
DISPATCHED = "phalanx.dev/Dispatched"

#: Where the hub's lease in each member cluster is.
LEASE_NAMESPACE = "kube-system"

VERSION = "v1alpha1"
DISPATCHES = Resource(PHALANX, VERSION, "dispatches", "Dispatch")
MEMBER_CLUSTERS = Resource(PHALANX, VERSION, "memberclusters", "MemberCluster", namespaced=False)

#: The hub's queues: one ledger over all member clusters.
QUEUES = Resource("scheduling.volcano.sh", "v1beta1", "queues", "Queue", namespaced=False)


class DispatchedGroupKind(msgspec.Struct, frozen=True):
    """A kind of PodGroup that is dispatched. Its pods name it in the label `label`, or in one of `annotations`."""

    resource: Resource
    label: str = ""
    annotations: tuple[str, ...] = ()

    def group_of(self, metadata: dict[str, object]) -> str:
        """The PodGroup's name by the metadata of a pod; "" where it names none of this kind."""
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
