"""What a search for room finds: an eviction, or that none would help."""

from __future__ import annotations

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.diagnosis.shortage import Gap, Shortage
from phalanx.scheduling.preemption.cost import Cost
from phalanx.scheduling.preemption.victims import Victim
from phalanx.scheduling.quota.limits import OverQuota

Placement = tuple[PodRecord, int]
"""A pod and the row it would go to."""


class Eviction(msgspec.Struct, frozen=True):
    """These go, and then everybody fits: `placements` of the whole beneficiary. `leavers` are on their way out
    already and must have left too. `losers` are pods for which room was held that the beneficiary takes now."""

    victims: tuple[Victim, ...]
    placements: tuple[Placement, ...]
    leavers: tuple[PodRecord, ...]
    cost: Cost
    losers: tuple[PodRecord, ...] = ()


class Futile(msgspec.Struct, frozen=True):
    """No choice of victims helps. `facts` is what would be missing without everybody who may go, `candidates` how
    many those are; `refused` counts the others by why they may not go, a phrase that goes on from "N pod(s) may not
    go: ". `again` is when (seconds since the epoch) that changes by itself, None if it does not. It is `unripe`
    while pods that may help once they have arrived on their nodes are on their way there."""

    facts: Shortage | Gap | OverQuota | None
    candidates: int
    refused: tuple[tuple[str, int], ...] = ()
    again: float | None = None
    unripe: bool = False
