"""Action `reserve`: reserves starts for units that smaller units would otherwise overtake without end."""

from __future__ import annotations

from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import StartReservations


def reserve(session: Session) -> None:
    """Reserve starts for units that were refused in this cycle and have no start reservation.

    A refused unit gets its reservation in its own turn, before the units behind it are placed. This action is for
    units that became eligible later: another reservation was given up, or the time was up in their turn.
    """
    feature = session.feature(StartReservations)
    if feature is None or feature.plan is None:
        return
    for unit in session.units:
        if unit.key in session.unschedulable and feature.plan.get(unit.key) is None:
            feature.refused(session, [unit])
