"""`backfill`: pods that ask for nothing but a slot fill what is left."""

from __future__ import annotations

from phalanx.scheduling.actions.allocate import place_alone
from phalanx.scheduling.session import Session


def backfill(session: Session) -> None:
    """Places zero-request pods that belong to no gang; zero-request members of gangs go with their gang."""
    for unit in session.units:
        if session.should_stop():
            session.plan.complete = False
            return
        if unit.pod is not None and unit.pod.cls.pod_class.best_effort:
            place_alone(session, [unit.pod])
