"""The PodScheduled condition of pods that wait: written only when it would say something new."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from phalanx.execution.binder import PODS
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.conditions import PodCondition, condition_patch
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.retry import RetryPolicy
from phalanx.model.verdict import Verdict

log = logging.getLogger(__name__)

POD_SCHEDULED = "PodScheduled"
# What waits for a quota or a turn must not look unschedulable: autoscalers would add nodes for it.
ADMITTED = "phalanx.dev/Admitted"
_LIMIT = 32 * 1024


def condition_of(verdict: Verdict) -> PodCondition:
    """The condition that a verdict becomes: the sentence, and the change that would help."""
    text = verdict.message if not verdict.change else f"{verdict.message.rstrip('.')}. To help: {verdict.change}."
    if verdict.unschedulable:
        return PodCondition(POD_SCHEDULED, "False", "Unschedulable", text[:_LIMIT])
    return PodCondition(ADMITTED, "False", verdict.code, text[:_LIMIT])


class PodConditions:
    """Writes conditions through the pool, the newest per pod only.

    `observe` tells what the API holds; a write that would not change it is not made. A pod that is deleted is
    forgotten. `now` gives seconds since the epoch.
    """

    def __init__(
        self, client: KubeClient, pool: WritePool, now: Callable[[], float], retry: RetryPolicy | None = None
    ) -> None:
        self._client = client
        self._pool = pool
        self._now = now
        self._retry = retry or RetryPolicy()
        self._observed: dict[str, dict[str, PodCondition]] = {}
        self._wanted: dict[str, tuple[str, str, PodCondition]] = {}

    def observe(self, uid: str, conditions: Iterable[PodCondition]) -> None:
        """The conditions of ours that a pod has, as last seen."""
        self._observed[uid] = {condition.type: condition for condition in conditions}

    def forget(self, uid: str) -> None:
        self._observed.pop(uid, None)
        self._wanted.pop(uid, None)

    def say(self, uid: str, namespace: str, name: str, condition: PodCondition) -> None:
        if condition.says_the_same(self._observed.get(uid, {}).get(condition.type)):
            self._wanted.pop(uid, None)
            return
        waiting = uid in self._wanted
        self._wanted[uid] = (namespace, name, condition)
        if not waiting:
            self._pool.submit(Urgency.STATUS, lambda: self._write(uid))

    def retract(self, uid: str) -> None:
        """The pod was placed: the API server itself says so, and what was not written yet is void."""
        self._wanted.pop(uid, None)

    async def _write(self, uid: str) -> None:
        wanted = self._wanted.pop(uid, None)
        if wanted is None:
            return
        namespace, name, condition = wanted
        current = self._observed.get(uid, {}).get(condition.type)
        patch = condition_patch(uid, condition, current, now=self._now())
        if patch is None:
            return
        path = PODS.path(namespace, name, "status")
        try:
            await self._retry.run(
                lambda: self._client.request("PATCH", path, body=patch, content_type=PatchType.STRATEGIC.value),
                "PATCH",
                guarded=True,
            )
            self._observed.setdefault(uid, {})[condition.type] = condition
        except ApiError as error:
            if error.status not in (404, 409):
                log.warning("the condition of pod %s/%s was not written: %s", namespace, name, error)
        except ConnectionLost as error:
            log.warning("the condition of pod %s/%s was not written: %s", namespace, name, error)
