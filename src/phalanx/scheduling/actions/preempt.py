"""`preempt`, `reclaim`, `gangpreempt`, `gangreclaim`: others go so that a whole beneficiary fits.

One engine stands behind the four names. It runs once a cycle, where the policy names the first of them; which names
there are tells which grounds count (see `eviction/grounds.py`).
"""

from __future__ import annotations

from phalanx.cluster.claims import Claim
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.demand import Alone, Demand, Quorum, Surplus
from phalanx.scheduling.eviction.beneficiary import Beneficiary, PodBeneficiary, QuorumBeneficiary
from phalanx.scheduling.eviction.engine import SOON, Eviction, Futile, Search
from phalanx.scheduling.eviction.futility import Question
from phalanx.scheduling.eviction.victims import Victim
from phalanx.scheduling.promised import await_leavers, claimed
from phalanx.scheduling.session import Session
from phalanx.scheduling.work import Unit

# Room that is held is given up when those who must leave are still there so long after their grace (seconds).
_PATIENCE = 60


def make_room(session: Session) -> None:
    """Looks, in order, at all units that wait for room."""
    if session.made_room:
        return
    session.made_room = True
    for unit in sorted((*session.units, *session.unasked), key=lambda unit: unit.rank):
        if unit.key not in session.waits:
            continue
        if session.out_of_time():
            session.plan.complete = False
            return
        session.asked.add(unit.key)
        beneficiary = beneficiary_of(session, unit, session.waits[unit.key][0])
        if beneficiary is not None:
            _serve(session, beneficiary)


def could_make_room(session: Session, unit: Unit, demand: Demand) -> bool:
    """Whether others would go for a parked unit now. (It was refused when there was less to take.)"""
    if not session.pipeline.policy.eviction.active:
        return False
    beneficiary = beneficiary_of(session, unit, demand)
    if beneficiary is None:
        return False
    found = search(session, beneficiary)
    return isinstance(found, Eviction) and bool(found.victims or found.losers)


def beneficiary_of(session: Session, unit: Unit, demand: Demand) -> Beneficiary | None:
    """For whom of a unit that waits with this demand others may have to go; None where nobody may."""
    match demand:
        case Alone() if unit.pod is not None:
            return PodBeneficiary(session, unit, unit.pod)
        case Quorum():
            return QuorumBeneficiary(session, unit)
        case Surplus() if session.pipeline.policy.eviction.surplus:
            members = [
                member
                for gang in unit.own
                for member in session.in_order(gang)
                if member.claim is None and not member.pod.problem
            ]
            return PodBeneficiary(session, unit, members[0]) if members else None
    return None


def search(session: Session, beneficiary: Beneficiary) -> Eviction | Futile:
    """Which pods must go, or that no choice helps; what was found futile is not tried again until that may have
    changed."""
    question = Question.of(beneficiary)
    state = session.state
    known = session.futility.known(question, state.eased(), state.ripened, session.now)
    if known is not None:
        return known
    found = Search(session, beneficiary, session.pipeline.policy.eviction, session.evictions).run()
    if isinstance(found, Futile):
        session.futility.note(question, state.eased(), state.ripened, found)
    return found


def _serve(session: Session, beneficiary: Beneficiary) -> None:
    unit = beneficiary.unit
    found = search(session, beneficiary)
    session.step()
    if isinstance(found, Futile):
        session.unclaim(beneficiary.claimed)
        if found.unripe:
            session.work.ask_when_ripe(unit.key)
        if found.again is not None:
            session.work.set_alarm(unit, found.again)
    elif found.victims or found.losers or beneficiary.claimed:
        carry_out(session, beneficiary, found)
    else:
        # It fits once those who leave anyway have left; should that take too long, others are asked after all.
        session.work.set_alarm(unit, session.now + SOON)


def carry_out(session: Session, beneficiary: Beneficiary, found: Eviction) -> None:
    """Tells the victims to go and holds the room for whom they go."""
    unit = beneficiary.unit
    session.disruptions[unit.key] = found
    cause = session.next_cause()
    leavers = [record for victim in found.victims for record in victim.records] + list(found.leavers)
    # Grace begins when they are told; those who leave already have their own end.
    ends = [max(session.now + record.pod.grace, record.pod.leaves) for record in leavers]
    uids = frozenset(record.pod.uid for record in leavers)
    until = max(ends, default=session.now) + _PATIENCE
    claim = Claim(uids, until, cause)
    for victim in found.victims:
        message = _message(beneficiary, victim)
        for record in victim.records:
            session.evict(record, victim.reason, message, beneficiary.name, cause)
    # What is promised to others is taken before it is promised again.
    session.unclaim(found.losers)
    session.unclaim(record for record in claimed(unit) if record not in dict(found.placements))
    for record, row in found.placements:
        session.nominate(record, row, claim)
    await_leavers(session, unit, beneficiary.demand)


def _message(beneficiary: Beneficiary, victim: Victim) -> str:
    if victim.reason is EvictionReason.RECLAIMED:
        return f"what it holds was lent and is taken back for {beneficiary.name}"
    if victim.priority >= beneficiary.priority and not any(gang in beneficiary.gangs for gang in victim.gangs):
        return f"makes room for {beneficiary.name}, which has the same priority and holds less"
    return f"makes room for {beneficiary.name}, whose priority {beneficiary.priority} is higher"
