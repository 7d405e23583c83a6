"""`enqueue`: lets the controllers of waiting groups create their pods."""

from __future__ import annotations

from phalanx.cluster.members import GangRecord
from phalanx.scheduling.demand import Admission
from phalanx.scheduling.explanation import awaiting_admission
from phalanx.scheduling.session import Session
from phalanx.scheduling.shortage import NotAdmitted
from phalanx.scheduling.work import Unit, awaits_admission


def enqueue(session: Session) -> None:
    """Admits groups in order while the plugins permit; one that must wait does not block those behind it."""
    for unit in session.units:
        waiting = [gang for gang in unit.gangs if awaits_admission(gang)]
        if waiting and session.out_of_time():
            session.plan.complete = False
            return
        for gang in waiting:
            noun = gang.noun
            assert noun is not None
            if noun.problem is not None:
                continue
            demand = admission(session, unit, gang)
            refusal = session.known(demand)
            if refusal is None and session.pipeline.admit(session, gang):
                session.admit(gang)
                continue
            session.judge_gang(gang, awaiting_admission(gang, noun))
            session.wait(unit, demand, refusal or session.refuse(demand, NotAdmitted()))


def admission(session: Session, unit: Unit, gang: GangRecord) -> Admission:
    """What a group of the unit that waits to be admitted asks for."""
    noun = gang.noun
    assert noun is not None
    keys = session.pipeline.admission_keys(gang)
    return Admission(noun.queue, noun.min_resources or (), keys, len(unit.gangs) > 1)
