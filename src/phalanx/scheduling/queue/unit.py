"""Unit of the queue: pods that are placed together or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import GangKey
from phalanx.scheduling.queue.unschedulable import Rank, UnitKey


class QueuedUnit:
    """Unit of the scheduling queue: a gang group (usually one gang), or a single pod.

    `gangs` depend on each other (`gang_groups`). `missing` are gangs that they name but that are not declared, or
    do not name them in turn; the unit waits for them. With `oversized_group`, more gangs depend on each other than
    can start as one. For gangs of a composite, `composite` is the root of their tree, and the tree is one unit. The
    cycle sets `rank` and `band` (a prefix of it) when it sorts its units, and `reserved` if the unit has a start
    reservation.

    starts_whole: all gangs start together, so each gang has its quorum once the unit is placed.
    - starts_planned: the unit can get forecasts, start reservations and defragmentation.
    """

    starts_whole: ClassVar[bool] = True
    starts_planned: ClassVar[bool] = True

    __slots__ = ("band", "composite", "gangs", "key", "missing", "oversized_group", "pod", "rank", "reserved")

    def __init__(
        self,
        key: UnitKey,
        pod: PodRecord | None = None,
        gangs: tuple[GangRecord, ...] = (),
        missing: tuple[GangKey, ...] = (),
        composite: GangKey | None = None,
        oversized_group: bool = False,
    ) -> None:
        self.composite = composite
        self.key = key
        self.pod = pod
        self.gangs = gangs
        self.missing = missing
        self.oversized_group = oversized_group
        self.reserved = False
        self.rank: Rank = ()
        self.band: Rank = ()

    @property
    def members(self) -> tuple[GangRecord | PodRecord, ...]:
        """The gangs or the single pod of the unit, whose queues and quotas are charged."""
        return (self.pod,) if self.pod is not None else self.gangs

    @property
    def required(self) -> tuple[GangRecord, ...]:
        """The gangs of the unit whose quorums are placed together when it starts."""
        return self.gangs

    @property
    def name(self) -> str:
        """Name of the unit for users."""
        return f"pod {self.pod.pod.key}" if self.pod is not None else f"gang {self.gangs[0].title}"

    def __repr__(self) -> str:
        return f"Unit({self.pod or self.gangs})"


UnitFactory = Callable[
    [UnitKey, PodRecord | None, tuple[GangRecord, ...], tuple[GangKey, ...], GangKey | None, bool], QueuedUnit
]
"""Constructor of a unit: key, pod, gangs, missing, composite, oversized_group."""


class UnitKinds(msgspec.Struct, frozen=True):
    """Constructors of units (pods, gang groups, composites) by kind."""

    pod: UnitFactory = QueuedUnit
    gang_group: UnitFactory = QueuedUnit
    composite: UnitFactory = QueuedUnit


def awaits_admission(gang: GangRecord) -> bool:
    spec = gang.spec
    return spec is not None and spec.admission and not gang.may_create_pods
