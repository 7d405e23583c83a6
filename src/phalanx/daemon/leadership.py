"""Whether this process may write: always, or while it holds the lease."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import Callable

from phalanx.kube.client import KubeClient
from phalanx.kube.config import ClusterConfig
from phalanx.kube.lease import LeaderElector, LeadershipLost

log = logging.getLogger(__name__)


class Leadership:
    """Held from the start where no lease is asked for (`name` is "").

    The lease has a client of its own: a renewal must not queue behind bindings.
    """

    def __init__(self, config: ClusterConfig, namespace: str, name: str) -> None:
        self._client = KubeClient(config, user_agent="phalanx-leader-election", max_connections=2) if name else None
        self._elector = (
            LeaderElector(
                self._client, name, identity=f"{socket.gethostname()}_{uuid.uuid4().hex[:8]}", namespace=namespace
            )
            if self._client is not None
            else None
        )

    def holds(self) -> bool:
        """Asked before every write."""
        return self._elector is None or self._elector.is_leader()

    async def acquired(self) -> None:
        if self._elector is not None:
            await self._elector.leading.wait()

    async def run(self, lost: Callable[[], None]) -> None:
        """Until cancelled, which gives the lease back; calls `lost` when it was lost."""
        if self._elector is None or self._client is None:
            await asyncio.Event().wait()
            return
        async with self._client:
            try:
                await self._elector.run()
            except LeadershipLost as error:
                log.error("stopping: %s", error)
                lost()
