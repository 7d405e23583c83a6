"""Rejections of pods by kubelets, and the back-off of nodes that follows from them."""

from __future__ import annotations

from typing import Final

import msgspec

# Beginning of the kubelet's reason for an exhausted resource; the name of the resource follows.
OUT_OF: Final = "OutOf"

# Other reasons of pods that a kubelet rejects (pkg/kubelet/lifecycle/predicate.go and more). Pods that ran and
# failed have another reason, or none.
REJECTION_REASONS: Final = frozenset(
    {
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "TaintToleration",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)


#: Reason of a node for which a volume could not be provisioned.
PROVISIONING_FAILED: Final = "ProvisioningFailed"


class BackoffScope(msgspec.Struct, frozen=True, order=True):
    """Pods that a node does not accept for some time.

    A `resource` limits the scope to pods that request it, `pod_class` to the pods of one class (a digest),
    `storage_class` to pods with a claim of this class and at least `size` bytes that is not provisioned yet, and
    `namespace` to those of one namespace ("" for none of the four). `reason` is the kubelet's, or
    PROVISIONING_FAILED.
    """

    node: str
    reason: str
    namespace: str = ""
    resource: str = ""
    pod_class: str = ""
    storage_class: str = ""
    size: int = 0


class NodeBackoffEntry(msgspec.Struct, frozen=True, order=True):
    """Back-off of a scope until a time, after `times` extensions; `last` is the time of the last rejection.

    Times are in seconds since the epoch.
    """

    scope: BackoffScope
    until: int
    last: int
    times: int
