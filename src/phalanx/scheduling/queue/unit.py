"""The unit of the queue: what is placed as one, or not at all."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.gang import GangKey
from phalanx.scheduling.queue.unschedulable import Rank, UnitKey


class QueuedUnit:
    """The unit of the queue: a bundle of gangs (mostly of one), or a pod on its own.

    `gangs` are tied to each other (`bundles`), `missing` are keys that they name and that nobody declares, or that
    do not name them in turn: they are waited for. A gang is `overbundled` where more are tied to it than may start
    as one. Of gangs in a group of groups `composite` is the root of their tree: they are one unit. `rank` and
    `band` (a prefix of it) are set when the cycle puts its units in order, `reserved` where a start is kept for it.
    """

    __slots__ = ("band", "composite", "gangs", "key", "missing", "overbundled", "pod", "rank", "reserved")

    def __init__(
        self,
        key: UnitKey,
        pod: PodRecord | None = None,
        gangs: tuple[GangRecord, ...] = (),
        missing: tuple[GangKey, ...] = (),
        composite: GangKey | None = None,
        overbundled: bool = False,
    ) -> None:
        self.composite = composite
        self.key = key
        self.pod = pod
        self.gangs = gangs
        self.missing = missing
        self.overbundled = overbundled
        self.reserved = False
        self.rank: Rank = ()
        self.band: Rank = ()

    @property
    def members(self) -> tuple[GangRecord | PodRecord, ...]:
        """The gangs, or the pod, for whom accounts are charged."""
        return (self.pod,) if self.pod is not None else self.gangs

    @property
    def name(self) -> str:
        """For people."""
        return f"pod {self.pod.pod.key}" if self.pod is not None else f"gang {self.gangs[0].key}"

    def __repr__(self) -> str:
        return f"Unit({self.pod or self.gangs})"


def awaits_admission(gang: GangRecord) -> bool:
    spec = gang.spec
    return spec is not None and spec.admission and not spec.admitted and not gang.admitted
