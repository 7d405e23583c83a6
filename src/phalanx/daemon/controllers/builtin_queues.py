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
from phalanx.kube.core_resources import DEFINITIONS
from phalanx.kube.errors import ApiError, ConnectionLost
from phalanx.kube.paths import Resource
from phalanx.kube.retry import RetryPolicy
from phalanx.model.account import ROOT_QUEUE, AccountKey, Tree
from phalanx.model.pod_quota import mapping, sequence

log = logging.getLogger(__name__)

_QUEUES = Resource(VOLCANO, "v1beta1", "queues", "Queue", namespaced=False)


class BuiltinQueues:
    """Creator of the missing queues `default` and `root` once Volcano's Queues are served.

    A queue that a user deletes is not created again before the next start. `root` is created only if the served
    schema has the field `parent`: older releases of Volcano have no tree, and `root` would be one more queue.
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
            if name == ROOT_QUEUE and not await self._has_tree():
                return
            await self._retry.run(lambda: self._client.create(_QUEUES.path(), queue), "POST")
        except (ApiError, ConnectionLost) as error:
            # 409: another client was faster.
            if not (isinstance(error, ApiError) and error.status == 409):
                log.warning("queue %s was not created; groups still wait in it: %s", name, error)
        else:
            log.info("queue %s created", name)

    async def _has_tree(self) -> bool:
        """Return whether the served schema of queues has a parent."""
        path = DEFINITIONS.path(None, f"{_QUEUES.plural}.{_QUEUES.group}")
        try:
            definition = await self._retry.run(lambda: self._client.get(path), "GET")
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            return False
        versions = mapping(mapping(definition).get("spec")).get("versions")
        for version in map(mapping, sequence(versions)):
            if version.get("name") == _QUEUES.version:
                schema = mapping(mapping(version.get("schema")).get("openAPIV3Schema"))
                spec = mapping(mapping(schema.get("properties")).get("spec"))
                return "parent" in mapping(spec.get("properties"))
        return False
