"""What runs the containers of pods that do not just pretend."""

from __future__ import annotations

from typing import Protocol

from phalanx_local.nodeagent.pod_runtime.lifecycle import Command, PodLifecycle


class Reports(Protocol):
    """Where a runtime reports what became of a container."""

    def started(self, uid: str, container: str) -> None: ...

    def refused(self, uid: str, container: str, reason: str, message: str) -> None: ...

    def exited(self, uid: str, container: str, exit_code: int, reason: str = "", message: str = "") -> None: ...


class Runtime(Protocol):
    """Carries commands out. Nothing here waits; what happens is reported."""

    async def open(self) -> None:
        """Called once, before everything else."""

    def command(self, life: PodLifecycle, command: Command) -> None: ...

    def ended(self, life: PodLifecycle) -> None:
        """All containers have ended, for good."""

    def forget(self, life: PodLifecycle) -> None:
        """The pod is gone from the API, or its node is: end what runs of it; nothing is to be reported."""

    async def close(self) -> None:
        """End everything that runs."""
