"""Interfaces between the node agent and a runtime for real containers."""

from __future__ import annotations

from typing import Protocol

from phalanx_local.nodeagent.pod_runtime.lifecycle import Command, PodLifecycle


class Reports(Protocol):
    """Receiver of a runtime's reports about the starts and ends of containers."""

    def started(self, uid: str, container: str) -> None: ...

    def refused(self, uid: str, container: str, reason: str, message: str) -> None: ...

    def exited(self, uid: str, container: str, exit_code: int, reason: str = "", message: str = "") -> None: ...


class Runtime(Protocol):
    """Runtime that executes commands for containers. No method blocks; results are reported."""

    async def open(self) -> None:
        """Prepare the runtime; called once, before all other methods."""

    def command(self, life: PodLifecycle, command: Command) -> None: ...

    def ended(self, life: PodLifecycle) -> None:
        """Release the resources of a pod whose containers have all ended for good."""

    def forget(self, life: PodLifecycle) -> None:
        """Stop the containers of a pod, without reports, because the pod or its node was deleted."""

    async def close(self) -> None:
        """Stop all containers of this runtime."""
