"""The features of a scheduler's cycle, for tests of one of them."""

from __future__ import annotations

from typing import TypeVar

from phalanx.scheduling.defragmentation.plugin import Defragmentation
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.start_reservations.plugin import StartReservations

F = TypeVar("F", bound=CyclePlugin)


def starts(scheduler: Scheduler) -> StartReservations:
    return _feature(scheduler, StartReservations)


def defragmentation(scheduler: Scheduler) -> Defragmentation:
    return _feature(scheduler, Defragmentation)


def _feature(scheduler: Scheduler, kind: type[F]) -> F:
    found = scheduler.features.get(kind)
    assert found is not None
    return found
