"""Outcomes of promised starts: on time, late, or lost."""

from __future__ import annotations

from collections import Counter
from typing import Final

from phalanx.scheduling.reservations.reservation import Reservation, SlipCause

KEPT: Final = "Kept"
#: A late start without a known cause: a fault of Phalanx.
NO_CAUSE: Final = "NoCause"


class PromiseOutcomes:
    """Counts of outcomes: `KEPT`, the cause of a late or lost start, or `NO_CAUSE`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def started(self, reservation: Reservation, now: int) -> None:
        self.counts[_cause(reservation) if now > reservation.promised else KEPT] += 1

    def lost(self, cause: SlipCause) -> None:
        """Count a start that was given up before its time."""
        self.counts[cause.value] += 1


def _cause(reservation: Reservation) -> str:
    """Return the cause of the last slip of the present promise; slips of an earlier, lost promise do not count."""
    causes = [slip.cause.value for slip in reservation.slips if slip.when >= reservation.made]
    return causes[-1] if causes else NO_CAUSE
