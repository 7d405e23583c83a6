"""The queues `default` and `root`, which Volcano's scheduler makes when it starts."""

from __future__ import annotations

import logging
from typing import Any

from phalanx.daemon.observer import Observer
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
    """Makes each of them once, when Volcano's Queues are (or become) served and it is not there.

    Whoever deletes one later means it: it is not made again before the next start.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        observer: Observer,
        intake: Intake,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._client = client
        self._pool = pool
        self._observer = observer
        self._intake = intake
        self._retry = retry or RetryPolicy()
        self._looked = False

    def check(self) -> None:
        """Cheap; to be called now and then."""
        known = self._observer.knows_all(_QUEUES.group, _QUEUES.plural)
        if known and not self._looked:
            declared = set(self._intake.account_keys())
            for queue in builtin_queues():
                if AccountKey(Tree.QUEUE, queue["metadata"]["name"]) not in declared:
                    self._pool.submit(Urgency.STATUS, lambda queue=queue: self._create(queue))  # type: ignore[misc]
        self._looked = known

    async def _create(self, queue: dict[str, Any]) -> None:
        name = queue["metadata"]["name"]
        try:
            await self._retry.run(lambda: self._client.create(_QUEUES.path(), queue), "POST")
        except (ApiError, ConnectionLost) as error:
            # 409: somebody was faster.
            if not (isinstance(error, ApiError) and error.status == 409):
                log.warning("queue %s was not created, groups wait in it all the same: %s", name, error)
        else:
            log.info("queue %s created", name)
