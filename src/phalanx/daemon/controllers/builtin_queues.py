"""Queues `default` and `root`, which Volcano's scheduler creates at its start."""

from __future__ import annotations

import logging
from typing import Any

from phalanx.daemon.custom_kinds import CustomKinds
from phalanx.dialects.api_groups import VOLCANO
from phalanx.dialects.intake import Intake
from phalanx.dialects.quotas.queues import builtin_queues
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.kube.retry import RetryPolicy
from phalanx.model.account import AccountKey, Tree

log = logging.getLogger(__name__)

_QUEUES = Resource(VOLCANO, "v1beta1", "queues", "Queue", namespaced=False)


class BuiltinQueues:
    """Creator of the missing queues `default` and `root` once Volcano's Queues are served.

    A queue that a user deletes is not created again before the next start.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        kinds: CustomKinds,
        intake: Intake,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._client = client
        self._pool = pool
        self._kinds = kinds
        self._intake = intake
        self._retry = retry or RetryPolicy()
        self._checked = False

    def check(self) -> None:
        """Submit the creation of missing queues after the kind Queue has become known; cheap otherwise."""
        known = self._kinds.knows_all(_QUEUES.group, _QUEUES.plural)
        if known and not self._checked:
            declared = set(self._intake.account_keys())
            for queue in builtin_queues():
                if AccountKey(Tree.QUEUE, queue["metadata"]["name"]) not in declared:
                    self._pool.submit(Urgency.STATUS, lambda queue=queue: self._create(queue))  # type: ignore[misc]
        self._checked = known

    async def _create(self, queue: dict[str, Any]) -> None:
        name = queue["metadata"]["name"]
        try:
            await self._retry.run(lambda: self._client.create(_QUEUES.path(), queue), "POST")
        except (ApiError, ConnectionLost) as error:
            # 409: another client was faster.
            if not (isinstance(error, ApiError) and error.status == 409):
                log.warning("queue %s was not created; groups still wait in it: %s", name, error)
        else:
            log.info("queue %s created", name)
