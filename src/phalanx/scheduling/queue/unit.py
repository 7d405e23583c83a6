"""The unit of the queue: what is placed as one, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import msgspec

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import GangKey
from phalanx.scheduling.queue.unschedulable import Rank, UnitKey


class QueuedUnit:
    """The unit of the queue: a gang group (mostly of one), or a pod on its own.

    `gangs` are tied to each other (`gang_groups`), `missing` are keys that they name and that nobody declares, or
    that do not name them in turn: they are waited for. A gang is `oversized_group` where more are tied to it than
    may start as one. Of gangs in a group of groups `composite` is the root of their tree: they are one unit. `rank`
    and `band` (a prefix of it) are set when the cycle puts its units in order, `reserved` where a start is kept for
    it.

    starts_whole: all its gangs start together, so that each has its quorum once the unit is placed.
    starts_planned: starts are forecast and reserved for such a unit, and other pods are moved to make room for it.
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
        """The gangs, or the pod, for whom accounts are charged."""
        return (self.pod,) if self.pod is not None else self.gangs

    @property
    def required(self) -> tuple[GangRecord, ...]:
        """The gangs whose quorums a planned start places together."""
        return self.gangs

    @property
    def name(self) -> str:
        """For people."""
        return f"pod {self.pod.pod.key}" if self.pod is not None else f"gang {self.gangs[0].title}"

    def __repr__(self) -> str:
        return f"Unit({self.pod or self.gangs})"


UnitFactory = Callable[
    [UnitKey, PodRecord | None, tuple[GangRecord, ...], tuple[GangKey, ...], GangKey | None, bool], QueuedUnit
]
"""Constructor of a unit: key, pod, gangs, missing, composite, oversized_group."""


class UnitKinds(msgspec.Struct, frozen=True):
    """Constructors of units, by what they are made of."""

    pod: UnitFactory = QueuedUnit
    gang_group: UnitFactory = QueuedUnit
    composite: UnitFactory = QueuedUnit


def awaits_admission(gang: GangRecord) -> bool:
    spec = gang.spec
    return spec is not None and spec.admission and not spec.admitted and not gang.admitted
