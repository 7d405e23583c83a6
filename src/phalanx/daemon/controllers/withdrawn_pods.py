"""Deletion of pods that were created for a request for nodes, after it ended without a node."""

from __future__ import annotations

import logging
from collections.abc import Callable

from phalanx.cluster.state import ClusterState
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.model.pod import MemberState, Pod

log = logging.getLogger(__name__)

# Seconds in which the controller of the group deletes its pods itself: then they count as no failures of its job.
_GRACE = 10
# Seconds until a rejected deletion is sent again.
_PAUSE = 30.0


class WithdrawnPods:
    """Pods without a node whose gang is not admitted any more, because no node came for it.

    Controllers of Volcano create no pods for a group in phase Pending, but do not delete existing ones. Pods that
    are older than the request existed without it, so they are not deleted.
    """

    def __init__(self, client: KubeClient, pool: WritePool, state: ClusterState, now: Callable[[], float]) -> None:
        self._client = client
        self._pool = pool
        self._state = state
        self._now = now
        self._submitted: set[str] = set()

    def pod_gone(self, uid: str) -> None:
        self._submitted.discard(uid)

    def check(self) -> None:
        """Submit the deletions of the pods whose grace period is over."""
        now = self._now()
        for request in self._state.gangs.node_requests:
            record = self._state.gangs.get(request.key)
            if request.open or now < request.ended + _GRACE or record is None or record.spec is None:
                continue
            if record.spec.admitted or record.may_create_pods:
                continue
            for member in list(record.members.values()):
                waits = member.state is MemberState.PENDING and not member.pod.node
                if waits and member.pod.created >= request.since and member.pod.uid not in self._submitted:
                    self._submitted.add(member.pod.uid)
                    self._submit(member.pod)

    def _submit(self, pod: Pod) -> None:
        self._pool.submit(Urgency.DELETE, lambda: self._delete(pod))

    async def _delete(self, pod: Pod) -> float | None:
        """Delete a pod; return the seconds until a retry, or None if no write is left."""
        record = self._state.pods.get(pod.uid)
        if record is None or record.state is not MemberState.PENDING or record.gang is None:
            return None
        if record.gang.may_create_pods:
            self._submitted.discard(pod.uid)
            return None
        try:
            await self._client.delete(PODS.path(pod.namespace, pod.name), uid=pod.uid)
        except (ApiError, ConnectionLost, ConfigError) as error:
            if isinstance(error, ApiError) and error.status in (404, 409):
                return None
            log.warning("pod %s/%s, for which no node came, was not deleted: %s", pod.namespace, pod.name, error)
            return _PAUSE
        return None
