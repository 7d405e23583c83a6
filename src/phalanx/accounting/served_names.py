"""Scheduler names whose pods are recorded: those that the schedulers of the cluster publish."""

from __future__ import annotations

import asyncio
import logging

from phalanx.daemon.controllers.policy_record import NAME, published_policies
from phalanx.kube.client import KubeClient
from phalanx.kube.core_resources import CONFIG_MAPS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost

log = logging.getLogger(__name__)

_DEFAULT = ("phalanx",)
_PERIOD = 30.0


class ServedNames:
    """Source of the scheduler names: given ones, else those that all schedulers publish in a ConfigMap of
    `namespace`, that of their leases."""

    def __init__(self, client: KubeClient, given: tuple[str, ...], namespace: str) -> None:
        self._client = client
        self._given = given
        self._namespace = namespace
        self._unreadable = False

    async def read(self) -> tuple[str, ...]:
        """Return the scheduler names in order, ("phalanx",) while no scheduler publishes any."""
        if self._given:
            return self._given
        try:
            config_map = await self._client.get(CONFIG_MAPS.path(self._namespace, NAME))
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            if error.status == 403 and not self._unreadable:
                self._unreadable = True
                log.warning(
                    "cannot read configmap %s/%s: recording schedulerName %s only; fix: use --scheduler-name: %s",
                    self._namespace,
                    NAME,
                    _DEFAULT[0],
                    error.message,
                )
            return _DEFAULT
        published = published_policies(config_map.get("data") or {}).values()
        return tuple(sorted({name for policy in published for name in policy.scheduler_names if name})) or _DEFAULT

    async def until_changed(self, names: tuple[str, ...]) -> None:
        """Return when the published names differ from `names`; an unreadable object counts as unchanged."""
        while True:
            await asyncio.sleep(_PERIOD)
            try:
                if await self.read() != names:
                    return
            except (ApiError, ConnectionLost, ConfigError):
                continue
