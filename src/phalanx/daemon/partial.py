"""Gangs that stay below their quorum after some of their bindings failed: a stated, configurable end."""

from __future__ import annotations

import logging
from collections.abc import Callable

from phalanx.cluster.members import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.narrator import Narrator
from phalanx.execution.binder import PODS
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.kube.timestamps import format_time
from phalanx.model.gang import GangKey
from phalanx.model.pod import MemberState, PlanMark, Pod
from phalanx.scheduling.quorum import unfinished_plan

log = logging.getLogger(__name__)

_DEFAULT_TIMEOUT = 600
_HOLDING = (MemberState.BOUND, MemberState.RUNNING)


class PartialGangs:
    """Looks for gangs whose plan was cut off and whose timeout (seconds since the plan, the gang's own or 600) is
    over. `keep` leaves the bound members where they are and says so once; `release` evicts them, so that what
    they hold is free and the gang starts as one later. Either way the repair goes on every cycle.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        state: ClusterState,
        narrator: Narrator,
        now: Callable[[], float],
        retry: RetryPolicy | None = None,
    ) -> None:
        self._client = client
        self._pool = pool
        self._state = state
        self._narrator = narrator
        self._now = now
        self._retry = retry or RetryPolicy()
        self._dealt_with: dict[GangKey, PlanMark] = {}

    def check(self, policy: str) -> None:
        """`policy` is keep or release."""
        gangs = self._state.gangs
        for key in [key for key in self._dealt_with if key not in gangs or not gangs[key].marks]:
            del self._dealt_with[key]
        for key, record in gangs.items():
            if not record.marks:
                continue
            mark = self._overdue(record)
            if mark is None or self._dealt_with.get(key) == mark:
                continue
            self._dealt_with[key] = mark
            holding = [member.pod for member in record.members.values() if member.state in _HOLDING]
            self._narrator.timed_out(record, mark, len(holding), released=policy == "release")
            if policy == "release":
                for pod in holding:
                    self._pool.submit(Urgency.DELETE, lambda pod=pod: self._evict(pod))  # type: ignore[misc]

    def _overdue(self, record: GangRecord) -> PlanMark | None:
        noun = record.noun
        if noun is None:
            return None
        mark = unfinished_plan(record, noun)
        timeout = noun.timeout if noun.timeout is not None else _DEFAULT_TIMEOUT
        return mark if mark is not None and self._now() >= mark.time + timeout else None

    async def _evict(self, pod: Pod) -> None:
        """DisruptionTarget first, so that a Job does not count the deletion as a failure, then the deletion."""
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": "phalanx: the rest of the pod's gang could not be bound in time",
            "lastTransitionTime": format_time(self._now()),
        }
        path = PODS.path(pod.namespace, pod.name)
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": [condition]}}
        try:
            await self._retry.run(
                lambda: self._client.patch(f"{path}/status", patch, PatchType.STRATEGIC), "PATCH", guarded=True
            )
            await self._retry.run(lambda: self._client.delete(path, uid=pod.uid), "DELETE", guarded=True)
        except (ApiError, ConnectionLost) as error:
            if not (isinstance(error, ApiError) and error.status in (404, 409)):
                log.warning("pod %s was not evicted: %s", pod.key, error)
