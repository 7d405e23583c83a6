"""Outcomes of promised starts: on time, late, or lost."""

from __future__ import annotations

from collections import Counter
from typing import Final

from phalanx.scheduling.reservations.reservation import Reservation, SlipCause

KEPT: Final = "Kept"
#: Outcome of a broken promise: a late start without a known cause, a fault of Phalanx.
BROKEN: Final = SlipCause.UNKNOWN.value


class PromiseOutcomes:
    """Counts of outcomes: `KEPT`, the cause of a late or lost start, or `BROKEN`; and the lateness by cause in
    seconds.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lateness: Counter[str] = Counter()

    def started(self, reservation: Reservation, now: int) -> None:
        late = now - reservation.promised
        if late <= 0:
            self.counts[KEPT] += 1
            return
        cause = _cause(reservation)
        self.counts[cause] += 1
        self.lateness[cause] += late

    def lost(self, cause: SlipCause) -> None:
        """Count a start that was given up before its time."""
        self.counts[cause.value] += 1


def _cause(reservation: Reservation) -> str:
    """Return the cause of the last slip of the present promise; slips of an earlier, lost promise do not count."""
    causes = [slip.cause.value for slip in reservation.slips if slip.when >= reservation.made]
    return causes[-1] if causes else BROKEN
