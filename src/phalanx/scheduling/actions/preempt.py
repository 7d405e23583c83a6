"""`preempt`, `reclaim`, `gangpreempt`, `gangreclaim`: others go so that a whole beneficiary fits.

One engine stands behind the four names. It runs once a cycle, where the policy names the first of them; which names
there are tells which grounds count (see `eviction/grounds.py`).
"""

from __future__ import annotations

from phalanx.cluster.claims import Claim
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.demand import Alone, Demand, Quorum, Surplus
from phalanx.scheduling.eviction.beneficiary import Beneficiary, PodBeneficiary, QuorumBeneficiary
from phalanx.scheduling.eviction.engine import Eviction, Futile, Search
from phalanx.scheduling.eviction.futility import Question
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
    for unit in session.units:
        if unit.key not in session.waits:
            continue
        if session.out_of_time():
            session.plan.complete = False
            return
        beneficiary = beneficiary_of(session, unit, session.waits[unit.key][0])
        if beneficiary is not None:
            _serve(session, beneficiary)


def could_make_room(session: Session, unit: Unit, demand: Demand) -> bool:
    """Whether others would go for a parked unit now. (It was refused when there was less to take.)"""
    options = session.pipeline.policy.eviction
    if not (options.preempt or options.reclaim):
        return False
    beneficiary = beneficiary_of(session, unit, demand)
    return beneficiary is not None and isinstance(search(session, beneficiary), Eviction)


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
    known = session.futility.known(question, session.state.eased(), session.now)
    if known is not None:
        return known
    found = Search(session, beneficiary, session.pipeline.policy.eviction, session.evictions).run()
    if isinstance(found, Futile):
        session.futility.note(question, session.state.eased(), found)
    return found


def _serve(session: Session, beneficiary: Beneficiary) -> None:
    found = search(session, beneficiary)
    session.step()
    if isinstance(found, Futile):
        if found.again is not None:
            session.work.set_alarm(beneficiary.unit, found.again)
        return
    carry_out(session, beneficiary, found)


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
    claim = Claim(uids, until, cause, lasting=bool(found.victims))
    for victim in found.victims:
        message = _message(beneficiary, victim.reason)
        for record in victim.records:
            session.evict(record, victim.reason, message, beneficiary.name, cause)
    session.unclaim(record for record in claimed(unit) if record not in dict(found.placements))
    for record, row in found.placements:
        session.nominate(record, row, claim)
    await_leavers(session, unit, beneficiary.demand)


def _message(beneficiary: Beneficiary, reason: EvictionReason) -> str:
    if reason is EvictionReason.RECLAIMED:
        return f"what it holds was lent and is taken back for {beneficiary.name}"
    return f"makes room for {beneficiary.name}, whose priority {beneficiary.priority} is higher"
