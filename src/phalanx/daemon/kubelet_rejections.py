"""Pods that the scheduler has bound and that their kubelet has rejected."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence

import msgspec

from phalanx.cluster.nodes.backoff import LONGEST_REST, recorded_reason
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import PodObject
from phalanx.dialects.warnings import ObjectWarning
from phalanx.model.decisions import Bind
from phalanx.model.events import PodRejected
from phalanx.model.node_rejection import OUT_OF, REJECTION_REASONS
from phalanx.model.pod import PodPhase, proved_binding

log = logging.getLogger(__name__)


_FAILED, _PENDING = PodPhase.FAILED.value, PodPhase.PENDING.value


class _Candidate(msgspec.Struct, frozen=True):
    """Pod whose status shows a rejection: the kubelet's reason, and the time at which this process saw it happen, 0
    if the pod was rejected before.
    """

    reason: str
    at: int


class KubeletRejections:
    """Detector of pods rejected by their kubelet: calls `refused(node, reason)` once for each.

    Every user can create a pod with a node that its kubelet rejects, and many can write the status of a pod. So a
    rejection counts only if this process has bound the pod, or if the pod has the signed mark of a binding. A
    rejection while no process ran counts from the time of that binding.
    """

    def __init__(
        self, state: ClusterState, rejected: Callable[[PodRejected], None], now: Callable[[], float]
    ) -> None:
        self._state = state
        self._rejected = rejected
        self._now = now
        # Nodes of the pods that this process has bound and that have not run yet, by uid.
        self._bound: dict[str, str] = {}
        self._candidates: dict[str, _Candidate] = {}

    def pods_bound(self, binds: Sequence[Bind]) -> Iterable[ObjectWarning]:
        """Record the bindings of a plan."""
        self._bound.update((bind.uid, bind.node) for bind in binds)
        return ()

    def pod_seen(self, pod: PodObject) -> None:
        """Note a pod that seems rejected; it must be called before the state has the pod."""
        status, uid = pod.status, pod.metadata.uid
        if status.phase != _FAILED:
            if status.phase != _PENDING and self._bound:
                self._bound.pop(uid, None)
            return
        record = self._state.pods.get(uid)
        if (
            pod.spec.node_name
            and is_rejection(status.reason)
            and pod.spec.scheduler_name in self._state.schedulers
            and (record is None or not record.pod.finished)
        ):
            self._candidates[uid] = _Candidate(status.reason, int(self._now()) if record is not None else 0)

    def pod_gone(self, uid: str) -> None:
        self._bound.pop(uid, None)
        self._candidates.pop(uid, None)

    def report(self) -> Iterable[ObjectWarning]:
        """Report the noted pods that the scheduler has bound, now that the state has them."""
        candidates, self._candidates = self._candidates, {}
        for uid, candidate in candidates.items():
            record = self._state.pods.get(uid)
            if record is not None and record.pod.phase is PodPhase.FAILED:
                self._report(record, candidate)
            self._bound.pop(uid, None)
        return ()

    def _report(self, record: PodRecord, candidate: _Candidate) -> None:
        pod, proved = record.pod, proved_binding(record.pod)
        if not proved and self._bound.get(pod.uid) != pod.node:
            return
        at = candidate.at or proved
        if at + LONGEST_REST <= self._now():
            return
        reason = recorded_reason(candidate.reason, pod.pod_class)
        log.warning("node %s rejected pod %s: %s", pod.node, pod.key, reason)
        self._rejected(PodRejected(pod.node, reason, pod.namespace, pod.pod_class, at))


def is_rejection(reason: str) -> bool:
    """Return whether a kubelet gives this reason for a rejection."""
    return reason in REJECTION_REASONS or reason.startswith(OUT_OF)
