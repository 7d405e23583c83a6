"""Preemption by dominant share: a gang evicts pods of gangs with equal priority and queue and a larger share, as in
kube-batch's drf plugin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from phalanx.cluster.accounts import add_amounts
from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.quota.dominant_share import dominant_share

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session

Amounts = Mapping[str, int]


class DrfPreemption:
    """Comparison of dominant shares between one preemptor and gangs of equal priority.

    A pod can be evicted if the preemptor, with its whole request, then has no larger share than the pod's gang
    without the pod (Volcano, plugins/drf/drf.go, where the preemptor grows pod by pod). The preemptor must also end
    below the gang's earlier share: otherwise pods that do not change the shares of their gangs could evict each
    other for ever.
    """

    def __init__(self, session: Session, gangs: Iterable[GangRecord], wanted: Amounts, priority: int = 0) -> None:
        """Initialize with the preemptor's own gangs; none for a pod on its own."""
        self.gangs = tuple(gangs)
        self.priority = priority
        self._totals = {name: offered for name, (offered, _) in session.totals().items()}
        held = dict(wanted)
        for gang in self.gangs:
            add_amounts(held, gang_holdings(gang), 1)
        self._ends = self._share(held)

    def allows_victim(self, gang: GangRecord | None, amounts: Amounts, removed: Amounts | None = None) -> bool:
        """Return whether pods with these amounts can be evicted from a gang that has already lost `removed`; False
        for a pod on its own."""
        if gang is None:
            return False
        held = dict(gang_holdings(gang))
        add_amounts(held, removed or {}, -1)
        before = self._share(held)
        add_amounts(held, amounts, -1)
        return self._ends <= self._share(held) and self._ends < before

    def _share(self, amounts: Amounts) -> Fraction:
        return dominant_share(amounts.items(), self._totals)


def gang_holdings(gang: GangRecord) -> dict[str, int]:
    """Return the usage of all members of a gang, terminating ones included."""
    held: dict[str, int] = {}
    for footprint, count in gang.allocated:
        add_amounts(held, footprint.amounts, count)
    return held
