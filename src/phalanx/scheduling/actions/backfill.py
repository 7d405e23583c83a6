"""`backfill`: pods that ask for nothing but a slot fill what is left."""

from __future__ import annotations

from itertools import groupby

from phalanx.cluster.classes import ClassRecord
from phalanx.scheduling.actions.allocate import place_alone
from phalanx.scheduling.session import Session
from phalanx.scheduling.work import Unit


def backfill(session: Session) -> None:
    """Places zero-request pods that belong to no gang; zero-request members of gangs go with their gang."""
    for cls, run in groupby(session.units, key=_class):
        if cls is None:
            continue
        if session.out_of_time():
            session.plan.complete = False
        else:
            place_alone(session, list(run), cls)
        if not session.plan.complete:
            return


def _class(unit: Unit) -> ClassRecord | None:
    """The class of a single zero-request pod that has not had its turn."""
    return unit.pod.cls if unit.pod is not None and unit.pod.cls.pod_class.best_effort else None
