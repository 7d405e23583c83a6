"""The shell of a service that works while it leads: stop, readiness, the lease, and what is done at the end."""

from __future__ import annotations

import asyncio

from phalanx.kube.client import KubeClient
from phalanx.kube.failures import Failures
from phalanx.kube.leadership import Leadership, LeaseOptions, run_while_leading


class LeadingService:
    """A service of which one replica works at a time; without a lease it leads from the start.

    `run` ends when `stop` is called or the lease is lost: see `leadership.lost_because`. `serve` sets `ready`.
    """

    def __init__(self, client: KubeClient, lease: LeaseOptions | None) -> None:
        self.ready = asyncio.Event()
        self.leadership = Leadership(client, lease)
        self._failures = Failures()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End `run`, after what `drain` waits for."""
        self._stopping.set()

    async def run(self) -> None:
        try:
            await run_while_leading(
                self.leadership, self._lead, stopping=self._stopping, ready=self.ready, lost=self.stop
            )
        finally:
            await self.close()

    async def serve(self) -> None:
        """Work until cancelled. It is called when the lease is held."""
        raise NotImplementedError

    async def drain(self) -> None:
        """Finish what has begun, while the lease is still held; called also if `serve` never was."""

    async def close(self) -> None:
        """Release what the service holds, after the lease."""

    async def _lead(self) -> None:
        try:
            # A list from before the lease was won could miss the last writes of the leader before.
            await self.leadership.acquired()
            await self.serve()
        finally:
            await self.drain()
