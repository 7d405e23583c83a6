"""`allocate`: gangs onto nodes, whole or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.model.pod import PlanMark
from phalanx.model.verdict import Verdict
from phalanx.scheduling.actions.enqueue import admission
from phalanx.scheduling.assembly import Call, assemble, demand_of
from phalanx.scheduling.demand import Alone, Quorum
from phalanx.scheduling.explanation import (
    awaiting_admission,
    held_by_problem,
    members_missing,
    unreadable,
    unreadable_members,
    waiting_for_bundle,
)
from phalanx.scheduling.quorum import Requirement, unfinished_plan
from phalanx.scheduling.refusals import judge_unit, tell
from phalanx.scheduling.session import Session
from phalanx.scheduling.shortage import NotAdmitted, Shortage
from phalanx.scheduling.surplus import place_surplus
from phalanx.scheduling.work import Refusal, Unit


def allocate(session: Session) -> None:
    """Walks the units in order: first every quorum of a band, then the band's surplus in fair turns.

    A unit that does not fit holds nothing and does not block those behind it.
    """
    for _, band in groupby(session.units, key=lambda unit: unit.band):
        content: list[Unit] = []
        for run in _runs(band):
            if session.out_of_time():
                session.plan.complete = False
            elif run[0].pod is not None:
                place_alone(session, run, run[0].pod.cls)
            elif place_unit(session, run[0]):
                content.append(run[0])
            if not session.plan.complete:
                return
        place_surplus(session, content)
        if not session.plan.complete:
            return


def place_alone(session: Session, units: list[Unit], cls: ClassRecord) -> None:
    """Places pods of one class that belong to no gang, one after the other in one step; what fits is bound."""
    waiting = _readable(session, units)
    demand = Alone(cls)
    while waiting and session.known(demand) is None:
        rows = session.placer.place(cls, len(waiting))
        if not rows:
            found = session.shortage(cls)
            session.refuse(demand, found.facts, found.version)
            break
        transaction = session.state.transaction()
        transaction.place(cls, [record for _, record in waiting[: len(rows)]], rows)
        for (unit, record), row in zip(waiting, rows, strict=False):
            session.bind(record, row, None, None)
            session.saw(unit)
        transaction.commit()
        waiting = waiting[len(rows) :]
        if waiting and session.out_of_time():
            session.plan.complete = False
            return
    refusal = session.known(demand)
    for unit, record in waiting:
        assert refusal is not None
        assert isinstance(refusal.facts, Shortage)
        session.judge_pod(record, session.sentence(refusal.facts))
        session.wait(unit, demand, refusal)
        session.saw(unit)


def _readable(session: Session, units: list[Unit]) -> list[tuple[Unit, PodRecord]]:
    """The pods of the units, but for those that cannot be read: they are told so."""
    readable: list[tuple[Unit, PodRecord]] = []
    for unit in units:
        assert unit.pod is not None
        if unit.pod.pod.problem:
            session.judge_pod(unit.pod, unreadable(unit.pod))
            session.saw(unit)
        else:
            readable.append((unit, unit.pod))
    return readable


def place_unit(session: Session, unit: Unit) -> bool:
    """Places the quorum of every gang of a bundle in one transaction, or nothing. True if all quorums hold."""
    if _held(session, unit):
        session.saw(unit)
        return False
    calls = [Call(session, gang) for gang in unit.gangs]
    if all(call.need.satisfied for call in calls):
        for gang in unit.own:
            session.judge_gang(gang, None)
        return True
    demand = demand_of(calls)
    refusal = session.known(demand)
    if refusal is None:
        outcome = assemble(session, calls, demand)
        if isinstance(outcome, Transaction):
            _commit(session, outcome, unit, calls)
            return True
        refusal = session.refuse(demand, outcome)
    tell(session, unit, refusal.facts)
    session.wait(unit, demand, refusal)
    session.saw(unit)
    return False


def assess(session: Session, unit: Unit, demand: Quorum) -> Refusal | None:
    """Why the quorums of a unit cannot be met now; None if they can. Nothing is placed."""
    outcome = assemble(session, [Call(session, gang) for gang in unit.gangs], demand)
    if isinstance(outcome, Transaction):
        outcome.rollback()
        return None
    return session.refuse(demand, outcome)


def _held(session: Session, unit: Unit) -> bool:
    """Whether something holds the unit before any node is looked at; says what."""
    asks = any(gang.pending for gang in unit.gangs)
    for gang in unit.gangs:
        noun = gang.noun
        assert noun is not None
        verdict: Verdict | None = None
        if noun.problem is not None:
            verdict = held_by_problem(gang, noun)
        elif not (noun.admitted or gang.admitted):
            if "enqueue" in session.pipeline.policy.actions:
                verdict = awaiting_admission(gang, noun)
                demand = admission(session, unit, gang)
                session.wait(unit, demand, session.known(demand) or session.refuse(demand, NotAdmitted()))
            else:
                session.admit(gang)
        if verdict is None and asks:
            need = session.requirement(gang)
            verdict = members_missing(gang, noun, need) or unreadable_members(gang, need)
        if verdict is not None:
            judge_unit(session, unit, gang, verdict)
            return True
    for gang in unit.own if unit.missing or not asks else ():
        why = "no pod or object declares it"
        session.judge_gang(gang, waiting_for_bundle(gang.key, unit.missing[0], why) if unit.missing else None)
    return bool(unit.missing) or not asks


def _commit(session: Session, transaction: Transaction, unit: Unit, calls: list[Call]) -> None:
    transaction.commit()
    for call in calls:
        mark = _mark(session, call.gang, call.need)
        for record, row in call.placed:
            session.bind(record, row, call.gang.key, mark)
        if call.placed or call.gang in unit.own:
            session.judge_gang(call.gang, None)


def _mark(session: Session, gang: GangRecord, need: Requirement) -> PlanMark | None:
    """What tells, should the rest of the plan be cut off, that this quorum had been proved."""
    assert gang.noun is not None
    if need.repair:
        return unfinished_plan(gang, gang.noun)
    now = int(session.now)
    return PlanMark(f"{session.cause}-{now}", need.total, now) if need.total > 1 else None


def _runs(units: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Single pods of one class that follow each other, as one run; every other unit on its own.

    Zero-request pods without a gang are left to `backfill`.
    """
    for kind, run in groupby(units, key=_kind):
        if kind is not None:
            yield list(run)


def _kind(unit: Unit) -> object:
    record = unit.pod
    if record is None or record.pod.problem:
        return unit.key
    return None if record.cls.pod_class.best_effort else record.cls
