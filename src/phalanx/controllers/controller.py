"""What a controller is, and what it gets from its process."""

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
    """A kind that a controller watches: where the changes go, and which objects of it (label selector). Of watches
    that differ in the version alone the first that is served is kept."""

    resource: Resource
    sink: Callable[[Change[bytes]], None]
    label_selector: str | None = None


class Reconciler(Protocol):
    """Keeps the objects of one kind as they should be."""

    name: str

    @property
    def watches(self) -> Sequence[WatchedKind]: ...

    async def run(self, workers: int) -> None:
        """Until cancelled; begun when everything that it watches has been listed."""

    def waiting(self) -> int:
        """Objects to be looked at."""


class ControllerContext(msgspec.Struct, frozen=True):
    """What the process lends to its controllers. `clock` is wall time in seconds; writes go through `writer`, which
    is silent once the lease is lost. Pods of `scheduler_names` are ours; the first is for jobs that name none."""

    client: KubeClient
    writer: Any
    recorder: EventRecorder
    failures: Failures
    clock: Callable[[], float]
    scheduler_names: tuple[str, ...] = ("phalanx",)
