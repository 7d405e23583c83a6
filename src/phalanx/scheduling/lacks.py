"""Why a group of groups waits, child by child, and what each of its gangs is told."""

from __future__ import annotations

import msgspec

from phalanx.cluster.members import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Verdict
from phalanx.scheduling.ceilings import Excess, Held
from phalanx.scheduling.explanation import gap, held_account, no_room_for_gang, over_ceiling_for_gang
from phalanx.scheduling.session import Session
from phalanx.scheduling.shortage import Gap, Shortage
from phalanx.scheduling.work import Unit

WAITING_FOR_COMPOSITE = "WaitingForComposite"


class Lacks(msgspec.Struct, frozen=True):
    """`able` of the `least` children that the composite needs hold or could be placed. `of` tells what which gang
    (by its place in the unit) lacks: facts of a refusal, or a verdict. `holds` where the composite has what it
    needs: then each gang waits for itself."""

    composite: GangKey
    least: int
    able: int
    of: tuple[tuple[int, object], ...]
    holds: bool = False


def tell_lacks(session: Session, unit: Unit, lacks: Lacks) -> None:
    """Judges the gangs of a tree: who lacks something is told what, the others whom they wait for."""
    verdicts = {unit.gangs[place]: _verdict(facts, unit.gangs[place]) for place, facts in lacks.of}
    culprit = next(iter(verdicts), None)
    for gang in unit.own:
        if gang in verdicts:
            session.judge_gang(gang, verdicts[gang])
        elif not lacks.holds and gang.pending:
            why = verdicts[culprit] if culprit is not None else None
            session.judge_gang(gang, waiting_for_composite(gang.key, lacks, culprit, why))


def waiting_for_composite(gang: GangKey, lacks: Lacks, culprit: GangRecord | None, why: Verdict | None) -> Verdict:
    least = max(1, lacks.least)
    message = (
        f"gang {gang} waits for CompositePodGroup {lacks.composite}, which has {lacks.able} of the {least} groups "
        "that it needs"
    )
    if culprit is None or why is None:
        missing = least - lacks.able
        return Verdict(
            WAITING_FOR_COMPOSITE,
            message,
            needed=least,
            members=lacks.able,
            change=f"create {missing} more group(s)",
        )
    return Verdict(
        WAITING_FOR_COMPOSITE,
        f"{message}; gang {culprit.key}: {why.message}",
        why.unschedulable,
        needed=least,
        placeable=lacks.able,
        members=lacks.able,
        change=f"help gang {culprit.key} first: {why.change}" if why.change else "",
        fault=why.fault,
    )


def _verdict(facts: object, gang: GangRecord) -> Verdict:
    assert gang.noun is not None
    match facts:
        case Verdict():
            return facts
        case Shortage():
            return no_room_for_gang(facts, gang)
        case Excess():
            return over_ceiling_for_gang(facts, gang)
        case Gap():
            return gap(facts, gang, gang.noun)
        case Held():
            return held_account(f"gang {gang.key}", facts)
    raise TypeError(f"no words for {facts!r}")
