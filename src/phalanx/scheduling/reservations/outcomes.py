"""What became of promised starts: kept, or broken by what."""

from __future__ import annotations

from collections import Counter
from typing import Final

from phalanx.scheduling.reservations.reservation import Reservation, SlipCause

KEPT: Final = "Kept"
#: Later than promised, and no cause is known: a fault of ours.
NO_CAUSE: Final = "NoCause"


class PromiseOutcomes:
    """`counts` says how many ended how: `KEPT`, a cause (they started late, or were lost), `NO_CAUSE`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def started(self, reservation: Reservation, now: int) -> None:
        self.counts[_cause(reservation) if now > reservation.promised else KEPT] += 1

    def lost(self, cause: SlipCause) -> None:
        """It was given up before it could start."""
        self.counts[cause.value] += 1


def _cause(reservation: Reservation) -> str:
    """Of the last of its slips: what was promised before it was lost once is not what was promised now."""
    causes = [slip.cause.value for slip in reservation.slips if slip.when >= reservation.made]
    if causes:
        return causes[-1]
    # It had its turn in time, and what is no amount was in its way.
    return SlipCause.NOT_PLACEABLE.value if reservation.failures else NO_CAUSE
