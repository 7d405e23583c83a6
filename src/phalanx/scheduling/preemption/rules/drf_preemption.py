"""Levelling: a gang takes from gangs of its own priority and queue that hold more, as kube-batch's drf did."""

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
    """What dominant shares say about taking from gangs of equal priority, for one preemptor.

    A pod may go if the preemptor, with all that it asks for, then has no larger share than the pod's gang without
    it (Volcano, plugins/drf/drf.go, where the preemptor grows pod by pod). It must also end below what that gang
    had before: otherwise pods that do not move their gangs' shares could take each other's places for ever.
    """

    def __init__(self, session: Session, gangs: Iterable[GangRecord], wanted: Amounts, priority: int = 0) -> None:
        """`gangs` are the preemptor's own; none for a pod on its own."""
        self.gangs = tuple(gangs)
        self.priority = priority
        self._totals = {name: offered for name, (offered, _) in session.totals().items()}
        held = dict(wanted)
        for gang in self.gangs:
            add_amounts(held, gang_holdings(gang), 1)
        self._ends = self._share(held)

    def allows_victim(self, gang: GangRecord | None, amounts: Amounts, removed: Amounts | None = None) -> bool:
        """Whether pods with these amounts may go from a gang of which `removed` have gone before; from None, the
        gang of a pod on its own, never: nothing would be left of it."""
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
    """What the members of a gang hold, those on their way out included."""
    held: dict[str, int] = {}
    for footprint, count in gang.allocated.items():
        add_amounts(held, footprint.amounts, count)
    return held
