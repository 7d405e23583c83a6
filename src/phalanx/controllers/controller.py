"""Interface of a controller, and the services of the process that a controller uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from phalanx.kube.changes import Change
from phalanx.kube.client import KubeClient
from phalanx.kube.events import EventRecorder
from phalanx.kube.failures import Failures
from phalanx.kube.paths import Resource


class WatchedKind(msgspec.Struct, frozen=True):
    """Kind that a controller watches: the receiver of the changes, and a label selector.

    Of watches that differ only in the version, the first served one is used.
    """

    resource: Resource
    sink: Callable[[Change[bytes]], None]
    label_selector: str | None = None


class Reconciler(Protocol):
    """Control loop for the objects of one kind."""

    name: str

    @property
    def watches(self) -> Sequence[WatchedKind]: ...

    async def run(self, workers: int) -> None:
        """Reconcile objects until cancelled; called after all watched kinds are listed."""

    def waiting(self) -> int:
        """Return the number of objects that wait to be reconciled."""


class ControllerContext(msgspec.Struct, frozen=True):
    """Shared services of the process for its controllers.

    `clock` is wall time in seconds; `writer` rejects writes after the lease is lost. Pods of `scheduler_names`
    belong to this scheduler; the first name is the default for jobs. Without `ssh` the job plugin of that name is
    disabled, and no right on Secrets is needed.
    """

    client: KubeClient
    writer: Any
    recorder: EventRecorder
    failures: Failures
    clock: Callable[[], float]
    scheduler_names: tuple[str, ...] = ("phalanx",)
    ssh: bool = True
