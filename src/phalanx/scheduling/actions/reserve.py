"""`reserve`: starts for those who would wait without end behind others who always fit."""

from __future__ import annotations

from phalanx.scheduling.actions.reserved_turns import keep_start, reservation_of
from phalanx.scheduling.session.session import Session


def reserve(session: Session) -> None:
    """Keeps starts for those who were refused in this cycle and have none.

    Whoever is refused gets its start in its own turn, before those behind it have theirs; here are those who became
    entitled since: the start of another was given up, or they were refused while the time was short.
    """
    for unit in session.units:
        if unit.key in session.unschedulable and reservation_of(session, unit) is None:
            keep_start(session, unit)
