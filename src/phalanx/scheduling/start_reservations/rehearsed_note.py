"""Notes about starts in the verdicts of a dry run, which can promise nothing."""

from __future__ import annotations

from phalanx.model.gang import GangKey
from phalanx.model.promise_records import ToldStart
from phalanx.model.text.duration import format_moment
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.telling import start_sentence


def rehearsed_note(plan: ReservationPlan, of: GangKey | str) -> str:
    """Return the note about the start of a gang, or of a pod on its own (its uid).

    It shows the start that the scheduler promised, even if the dry run moves it. A start that only the dry run
    reserves is described as such.
    """
    key = plan.unit_of(of)
    promise = plan.restored.get(key) if key is not None else None
    if promise is not None:
        return start_sentence(promise.told, promise.words or ToldStart(promise.made), promise.slips, plan.now)
    reservation = plan.get(key) if key is not None else None
    if reservation is None:
        return plan.promise(of)
    return f"no start is promised; a dry run reserves one at {format_moment(reservation.told)}"
