"""`preempt`, `reclaim`, `gangpreempt`, `gangreclaim`: others go so that a whole beneficiary fits.

One engine stands behind the four names. It runs once a cycle, where the policy names the first of them; which names
there are tells which grounds count (see `eviction/grounds.py`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from itertools import groupby

import msgspec

from phalanx.cluster.pods.nominations import Claim
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.scheduling.actions.composite import attempt_of
from phalanx.scheduling.gang_placement.nominated_placement import await_leavers, nominated_members
from phalanx.scheduling.gang_placement.surplus_domains import kind_of, starts_singly
from phalanx.scheduling.ordering.failures import report_failure, silence_plugin
from phalanx.scheduling.preemption.eviction_reasons import why
from phalanx.scheduling.preemption.no_lower_priority import outranks_nobody
from phalanx.scheduling.preemption.preemptor import Beneficiary, PodBeneficiary, QuorumBeneficiary
from phalanx.scheduling.preemption.rules.self_protection import own_words_of
from phalanx.scheduling.preemption.solution import Eviction, Futile
from phalanx.scheduling.preemption.solver import SOON, Search
from phalanx.scheduling.preemption.victims import Victim
from phalanx.scheduling.queue.signatures import (
    GroupTreeSignature,
    PodSignature,
    QuorumSignature,
    SchedulingSignature,
    SurplusSignature,
)
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.no_solution import EvictionQuestion
from phalanx.scheduling.session.session import Session

# Room that is held is given up when those who must leave are still there so long after their grace (seconds).
_PATIENCE = 60


def make_room(session: Session) -> None:
    """Looks, in order, at all units that wait for room; pods of one kind that follow each other go together."""
    if session.made_room:
        return
    session.made_room = True
    make_room_for(session, (*session.units, *session.unasked))


def make_room_for(session: Session, units: Iterable[QueuedUnit]) -> None:
    """The same for some units, in the midst of a cycle; nobody is asked about twice."""
    waiting = (unit for unit in units if unit.key in session.unschedulable and unit.key not in session.asked)
    ordered = sorted(waiting, key=lambda unit: unit.rank)
    for kind, run in groupby(ordered, key=lambda unit: _kind(session, unit)):
        units = list(run)
        while units:
            if session.out_of_time():
                session.plan.complete = False
                return
            units = units[_serve_guarded(session, units, together=kind is not None) :]


def _kind(session: Session, unit: QueuedUnit) -> Hashable:
    """What pods on their own have in common that are one question; None for what goes one by one."""
    demand, record = session.unschedulable[unit.key][0], unit.pod
    if record is None or not isinstance(demand, PodSignature) or record.claim is not None:
        return None
    return demand, record.pod.priority, record.pod.preempts


def _serve_guarded(session: Session, units: list[QueuedUnit], *, together: bool) -> int:
    """As `_serve_first`; where that raises the first goes on waiting without anybody having to go for it."""
    while True:
        marks = session.begin_turn()
        try:
            return _serve_first(session, units, together=together)
        except Exception as error:
            session.undo_turn(marks)
            if not silence_plugin(session, error):
                report_failure(session, f"making room for {units[0].name}", error)
                session.asked.add(units[0].key)
                return 1


def _serve_first(session: Session, units: list[QueuedUnit], *, together: bool) -> int:
    """Serves the first unit, and as many of those that are like it as can be; how many were dealt with."""
    most = len(units) if together else 1
    while most > 1:
        pods = [unit.pod for unit in units[:most] if unit.pod is not None]
        beneficiary = PodBeneficiary(session, units[0], *pods)
        found = search(session, beneficiary)
        session.count_step()
        if isinstance(found, Eviction) and (found.victims or found.losers):
            session.asked.update(unit.key for unit in units[:most])
            carry_out_for_each(session, beneficiary, units[:most], found)
            return most
        most //= 2
    session.asked.add(units[0].key)
    if outranks_nobody(session, units[0]):
        session.count_step()
        return 1
    answer = _serve(session, units[0])
    if not (together and isinstance(answer, Futile)):
        return 1
    # What does not help the first helps none of those that are like it.
    session.asked.update(unit.key for unit in units)
    return len(units)


def could_make_room(session: Session, unit: QueuedUnit, demand: SchedulingSignature) -> bool:
    """Whether others would go for a parked unit now. (It was refused when there was less to take.) If not now, the
    unit is asked about again when that may have changed."""
    if not session.pipeline.policy.eviction.active:
        return False
    for beneficiary in beneficiaries_of(session, unit, demand):
        found = search(session, beneficiary)
        if isinstance(found, Eviction) and (found.victims or found.losers):
            return True
        _ask_again(session, unit, found)
    return False


def _ask_again(session: Session, unit: QueuedUnit, found: Eviction | Futile) -> None:
    """Sees to it that a unit for which nobody goes now is asked about when that may change by itself."""
    if isinstance(found, Eviction):
        # It fits once those who leave anyway have left; should that take too long, others are asked after all.
        session.queue.recheck_by(unit, session.now + SOON)
        return
    if found.unripe:
        session.queue.ask_preemption_when_bound(unit.key)
    if found.again is not None:
        session.queue.recheck_by(unit, found.again)


def beneficiary_of(session: Session, unit: QueuedUnit, demand: SchedulingSignature) -> Beneficiary | None:
    """For whom of a unit that waits with this demand others may have to go, at the least; None where nobody may."""
    if isinstance(demand, SurplusSignature):
        return next((PodBeneficiary(session, unit, alike[0]) for alike in _surplus_of(session, unit)), None)
    return next(beneficiaries_of(session, unit, demand), None)


def beneficiaries_of(session: Session, unit: QueuedUnit, demand: SchedulingSignature) -> Iterator[Beneficiary]:
    """All for whom others may have to go, to be asked about in this order: of surplus as many at once as are alike,
    then fewer, down to one; then those of another kind."""
    match demand:
        case PodSignature() if unit.pod is not None:
            yield PodBeneficiary(session, unit, unit.pod)
        case QuorumSignature():
            yield QuorumBeneficiary(session, unit)
        case GroupTreeSignature():
            attempt = attempt_of(session, unit)
            core = attempt.core_unit(unit) if attempt is not None else None
            if core is not None:
                yield QuorumBeneficiary(session, core)
        case SurplusSignature():
            for alike in _surplus_of(session, unit):
                most = len(alike)
                while most:
                    yield PodBeneficiary(session, unit, *alike[:most])
                    most //= 2


def _surplus_of(session: Session, unit: QueuedUnit) -> Iterable[list[PodRecord]]:
    """The members above the minimum that may have others evicted, those that are one question together."""
    found: dict[Hashable, list[PodRecord]] = {}
    for gang in unit.gangs:
        for member in session.pending_in_order(gang) if _surplus_preempts(session, gang) else ():
            if member.claim is None and not member.pod.problem and starts_singly(session, member):
                kind = kind_of(session, member)
                # What has to be near others chooses its domain by who is there: one after the other.
                alone = member if kind.area is not None else None
                question = gang, kind, member.pod.priority, member.pod.preempts, alone
                found.setdefault(question, []).append(member)
    return found.values()


def _surplus_preempts(session: Session, gang: GangRecord) -> bool:
    """Whether members above the minimum may have others evicted. Those of Kubernetes' own groups preempt each by
    itself, as in kube-scheduler; others best effort only, unless the policy says otherwise."""
    native = gang.noun is not None and gang.noun.dialect.by_native_rules
    return native or session.pipeline.policy.eviction.surplus


def search(session: Session, beneficiary: Beneficiary) -> Eviction | Futile:
    """Which pods must go, or that no choice helps; what was found futile is not tried again until that may have
    changed."""
    question = _question(beneficiary)
    state = session.state
    known = session.futility.known(question, state.eased(), state.ripened, session.now)
    if known is not None:
        assert isinstance(known, Futile)
        return known
    found = Search(session, beneficiary, session.pipeline.policy.eviction, session.evictions).run()
    if isinstance(found, Futile):
        session.futility.note(question, state.eased(), state.ripened, found)
    return found


def _question(beneficiary: Beneficiary) -> EvictionQuestion:
    # Only a gang that has members on nodes may find victims among its own.
    gangs = tuple(gang for gang in beneficiary.gangs if gang.counts().active)
    return EvictionQuestion(
        beneficiary.demand,
        beneficiary.priority,
        beneficiary.pod_priority,
        beneficiary.preempts,
        gangs,
        beneficiary.total,
    )


def _serve(session: Session, unit: QueuedUnit) -> Eviction | Futile | None:
    found: Eviction | Futile | None = None
    for beneficiary in beneficiaries_of(session, unit, session.unschedulable[unit.key][0]):
        found = search(session, beneficiary)
        session.count_step()
        if isinstance(found, Eviction) and (found.victims or found.losers or beneficiary.claimed):
            carry_out(session, beneficiary, found)
            return found
        session.withdraw_nominations(beneficiary.claimed)
        _ask_again(session, unit, found)
    return found


def carry_out(session: Session, beneficiary: Beneficiary, found: Eviction) -> None:
    """Tells the victims to go and holds the room for whom they go."""
    unit = beneficiary.unit
    session.disruptions[unit.key] = found
    hands, kept = _hands(beneficiary, found), dict(found.placements)
    session.withdraw_nominations(record for record in nominated_members(unit) if record not in kept)
    _promise(session, beneficiary, beneficiary.name, found, hands)
    await_leavers(session, unit, beneficiary.demand)


def carry_out_for_each(
    session: Session, beneficiary: PodBeneficiary, units: list[QueuedUnit], found: Eviction
) -> None:
    """The same for pods on their own: each waits only for those who must leave for it."""
    unit_of, hands = {unit.pod: unit for unit in units}, _hands(beneficiary, found)
    first = found.placements[0][0]
    # Who tells a victim to go: the first who is placed where it stands. Those who stand nowhere near go for an
    # account's sake: that is the first one's to tell, and everybody's concern.
    teller = {row: record for record, row in reversed(found.placements)}
    told: dict[PodRecord, list[Victim]] = {record: [] for record, _ in found.placements}
    at_row: dict[int, list[PodRecord]] = {}
    common = list(found.leavers)
    for victim in found.victims:
        near = next((teller[row] for row in victim.rows if row in teller), None)
        told[near if near is not None else first].append(victim)
        for leaver in victim.records:
            (at_row.setdefault(leaver.row, []) if near is not None else common).append(leaver)
    for record, row in found.placements:
        part = msgspec.structs.replace(
            found,
            victims=tuple(told[record]),
            placements=((record, row),),
            leavers=(*at_row.get(row, ()), *common),
            losers=found.losers if record is first else (),
        )
        unit = unit_of[record]
        session.disruptions[unit.key] = part
        _promise(session, beneficiary, f"pod {record.pod.key}", part, hands)
        await_leavers(session, unit, beneficiary.demand)


def _hands(beneficiary: Beneficiary, found: Eviction) -> int:
    """Through how many hands the room has gone that the beneficiary gets."""
    taken = [record.claim.hands + 1 for record in found.losers if record.claim is not None]
    own = [record.claim.hands for record in beneficiary.claimed if record.claim is not None]
    return max((*taken, *own), default=0)


def _promise(session: Session, beneficiary: Beneficiary, name: str, found: Eviction, hands: int) -> None:
    cause = session.next_cause()
    leavers = {record: None for victim in found.victims for record in victim.records}
    leavers.update(dict.fromkeys(found.leavers))
    # Grace begins when they are told; those who leave already have their own end.
    ends = [max(session.now + record.pod.grace, record.pod.leaves) for record in leavers]
    uids = frozenset(record.pod.uid for record in leavers)
    claim = Claim(uids, max(ends, default=session.now) + _PATIENCE, cause, hands)
    for victim in found.victims:
        message = why(beneficiary, victim)
        for record in victim.records:
            assert record.payer is not None
            spite = own_words_of(session).remark(record, victim.grounds[record.payer])
            session.evict(record, victim.reason, message + spite, name, cause)
    # What is promised to others is taken before it is promised again.
    session.withdraw_nominations(found.losers, heir=cause)
    for record, row in found.placements:
        session.nominate(record, row, claim)
