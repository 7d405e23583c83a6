"""Outcomes of promised starts: on time, late, or lost."""

from __future__ import annotations

from collections import Counter
from typing import Final

from phalanx.model.promise_records import Slip, SlipCause
from phalanx.scheduling.reservations.reservation import Reservation

KEPT: Final = "Kept"
#: A unit that starts in the first cycle at or after its promised time is on time up to this many seconds.
_LONGEST_REACTION: Final = 30
#: Outcome of a broken promise: a late start without a known cause, a fault of Phalanx.
BROKEN: Final = SlipCause.UNKNOWN.value


class PromiseOutcomes:
    """Counts of outcomes: `KEPT`, the cause of a late or lost start, or `BROKEN`; and the lateness by cause in
    seconds.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.lateness: Counter[str] = Counter()

    def started(self, reservation: Reservation, now: int, previous: int) -> None:
        """Count the start of a unit at `now`; the cycle before was at `previous`."""
        late = now - reservation.promised
        if late <= 0 or (late < _LONGEST_REACTION and previous < reservation.promised and not _slips(reservation)):
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
    slips = _slips(reservation)
    return slips[-1].cause.value if slips else BROKEN


def _slips(reservation: Reservation) -> list[Slip]:
    return [slip for slip in reservation.slips if slip.when >= reservation.made]
