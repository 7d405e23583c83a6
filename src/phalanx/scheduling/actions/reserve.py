"""`reserve`: starts for units that would wait without end behind others that always fit."""

from __future__ import annotations

from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import StartReservations


def reserve(session: Session) -> None:
    """Reserve starts for units that were refused in this cycle and have none.

    A unit that is refused gets its start in its own turn, before the units behind it have theirs. This action is
    for units that became entitled since: the start of another was given up, or time was short in their turn.
    """
    feature = session.feature(StartReservations)
    if feature is None or feature.plan is None:
        return
    for unit in session.units:
        if unit.key in session.unschedulable and feature.plan.get(unit.key) is None:
            feature.refused(session, [unit])
