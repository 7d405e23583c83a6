"""`backfill`: pods that ask for nothing but a slot fill what is left."""

from __future__ import annotations

from phalanx.scheduling.actions.allocate import asks_for_a_slot_only, walk
from phalanx.scheduling.session import Session


def backfill(session: Session) -> None:
    """Places zero-request pods that belong to no gang; zero-request members of gangs go with their gang."""
    walk(session, [unit for unit in session.units if asks_for_a_slot_only(unit)])
