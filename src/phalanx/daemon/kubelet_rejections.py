"""Pods that the scheduler has bound and that their kubelet has rejected."""

from __future__ import annotations

import logging
from collections.abc import Callable

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import PodObject

log = logging.getLogger(__name__)

# Reasons of pods that a kubelet rejects (pkg/kubelet/lifecycle/predicate.go and more). Pods that ran and failed
# have another reason, or none.
_REASONS = frozenset(
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
_SHORT_OF = "OutOf"


class KubeletRejections:
    """Detector of pods rejected by their kubelet: calls `refused(node, reason)` once for each.

    It has to see every pod before the state does.
    """

    def __init__(self, state: ClusterState, refused: Callable[[str, str], None]) -> None:
        self._state = state
        self._refused = refused

    def pod_seen(self, pod: PodObject) -> None:
        status, node = pod.status, pod.spec.node_name
        if status.phase != "Failed" or not node or not is_refusal(status.reason):
            return
        record = self._state.pods.get(pod.metadata.uid)
        if record is None or record.pod.finished or pod.spec.scheduler_name not in self._state.schedulers:
            return
        log.warning("node %s rejected pod %s: %s", node, record.pod.key, status.reason)
        self._refused(node, status.reason)


def is_refusal(reason: str) -> bool:
    return reason in _REASONS or reason.startswith(_SHORT_OF)
