"""Why a group of groups waits, child by child, and what each of its gangs is told."""

from __future__ import annotations

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.verdict import Verdict
from phalanx.scheduling.diagnosis.refusals import gang_verdict
from phalanx.scheduling.diagnosis.shortage import Gap, Shortage
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.quota.limits import Blocked, OverQuota
from phalanx.scheduling.session.session import Session

WAITING_FOR_COMPOSITE = "WaitingForComposite"


class Waits(msgspec.Struct, frozen=True):
    """A gang that could start waits for its composite, of whose `least` children `able` hold or could be placed.
    `culprit` is a gang that could not; None where there are too few groups."""

    composite: GangKey
    least: int
    able: int
    culprit: GangKey | None


class CompositeFitError(msgspec.Struct, frozen=True):
    """What which gang lacks, by its place in the unit: facts of a refusal, a verdict, or for whom it waits. `holds`
    where the tree has what it needs, and these wait for themselves."""

    of: tuple[tuple[int, object], ...]
    holds: bool = False


def explain_composite(session: Session, unit: QueuedUnit, lacks: CompositeFitError) -> None:
    facts = {unit.gangs[place]: lack for place, lack in lacks.of}
    verdicts = {gang: _verdict(lack, gang) for gang, lack in facts.items() if not isinstance(lack, Waits)}
    by_key = {gang.key: (gang.title, verdict) for gang, verdict in verdicts.items()}
    for gang, lack in facts.items():
        if isinstance(lack, Waits):
            verdicts[gang] = _waiting(gang.title, lack, by_key.get(lack.culprit) if lack.culprit else None)
        session.decisions.set_gang_verdict(gang, verdicts[gang])


def _waiting(gang: str, facts: Waits, culprit: tuple[str, Verdict] | None) -> Verdict:
    message = (
        f"gang {gang} waits for CompositePodGroup {facts.composite}, which has {facts.able} of the {facts.least} "
        "groups that it needs"
    )
    if culprit is None:
        change = f"create {facts.least - facts.able} more group(s)"
        return Verdict(WAITING_FOR_COMPOSITE, message, needed=facts.least, members=facts.able, change=change)
    name, why = culprit
    return Verdict(
        WAITING_FOR_COMPOSITE,
        f"{message}; gang {name}: {why.message}",
        why.unschedulable,
        needed=facts.least,
        placeable=facts.able,
        members=facts.able,
        change=f"help gang {name} first: {why.change}" if why.change else "",
        fault=why.fault,
    )


def _verdict(facts: object, gang: GangRecord) -> Verdict:
    match facts:
        case Verdict():
            return facts
        case Shortage() | OverQuota() | Gap() | Blocked():
            return gang_verdict(facts, gang)
    raise TypeError(f"no words for {facts!r}")
