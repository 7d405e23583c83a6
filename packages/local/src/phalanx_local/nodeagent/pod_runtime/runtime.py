"""Interfaces between the agent and a runtime for real containers."""

from __future__ import annotations

from typing import Protocol

from phalanx_local.nodeagent.pod_runtime.lifecycle import Command, PodLifecycle


class Reports(Protocol):
    """Receiver of a runtime's reports about containers."""

    def started(self, uid: str, container: str) -> None: ...

    def refused(self, uid: str, container: str, reason: str, message: str) -> None: ...

    def exited(self, uid: str, container: str, exit_code: int, reason: str = "", message: str = "") -> None: ...


class Runtime(Protocol):
    """Runtime that executes commands. No method blocks; results are reported."""

    async def open(self) -> None:
        """Prepare the runtime; called once, before all other methods."""

    def command(self, life: PodLifecycle, command: Command) -> None: ...

    def ended(self, life: PodLifecycle) -> None:
        """Handle the final end of all containers of the pod."""

    def forget(self, life: PodLifecycle) -> None:
        """Stop the containers of a pod that was deleted, or whose node was, without reports."""

    async def close(self) -> None:
        """Stop all containers."""
