"""`enqueue`: lets the controllers of waiting groups create their pods."""

from __future__ import annotations

from phalanx.scheduling.explanation import awaiting_admission
from phalanx.scheduling.session import Session


def enqueue(session: Session) -> None:
    """Admits groups in order while the plugins permit; one that must wait does not block those behind it."""
    for unit in session.units:
        for gang in unit.gangs:
            noun = gang.noun
            if noun is None or noun.problem is not None or session.is_admitted(gang):
                continue
            if session.pipeline.admit(session, gang):
                session.admit(gang)
            else:
                session.judge_gang(gang.key, awaiting_admission(gang, noun))
