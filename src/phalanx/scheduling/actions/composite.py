"""Groups of groups onto nodes: so many of their gangs as they need, or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from phalanx.cluster.composites import INVALID
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import Problem
from phalanx.model.verdict import Verdict
from phalanx.scheduling.gang_placement.composite_attempt import CompositeAttempt, composite_fit_error
from phalanx.scheduling.gang_placement.composite_placer import CompositePlacer, core, hold_up
from phalanx.scheduling.gang_placement.composite_verdicts import CompositeFitError, explain_composite
from phalanx.scheduling.gang_placement.nominated_placement import (
    nominated_members,
    place_where_nominated,
    wait_for_victims,
)
from phalanx.scheduling.gang_placement.quorum_placement import GangPlacement, charges_of, demand_of
from phalanx.scheduling.ordering.borrowing import Borrowing
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session

Commit = Callable[[list[GangPlacement]], None]


def place_composite(session: Session, unit: QueuedUnit, commit: Commit, loans: Borrowing) -> bool:
    """Places what fits of a tree in one transaction, if enough of it does; else nothing. True if the tree holds.

    `commit` records what was placed of each gang. A tree whose least part would be lent may be put off.
    """
    assert unit.composite is not None
    fault = session.state.gangs.composites.fault(unit.composite)
    if fault is not None:
        for gang in unit.gangs:
            session.decisions.set_gang_verdict(gang, _faulty(gang, fault) if gang.pending else None)
        session.decisions.withdraw_nominations(nominated_members(unit))
        session.mark_attempted(unit)
        return False
    attempt, nominated = CompositeAttempt(session, unit, unit.composite), nominated_members(unit)
    if hold_up(attempt.tree, attempt.placements, attempt.lacks):
        session.decisions.withdraw_nominations(nominated)
        _wait(session, unit, attempt, attempt.lacks, unschedulable=False)
        return False
    if not attempt.open:
        _holds(session, unit, attempt, attempt.lacks, unschedulable=False)
        return True
    fit_error = session.fit_errors.known(attempt.demand) if not nominated else None
    if fit_error is not None:
        assert isinstance(fit_error.facts, CompositeFitError)
        _explain(session, unit, attempt, fit_error)
        return fit_error.facts.holds
    least = [attempt.placements[gang] for gang in core(attempt.tree, attempt.placements)] or attempt.open
    lends = loans.active and not nominated and unit.band[0]
    charges = charges_of(session, least, demand_of(least)) if lends else {}
    late = lends and loans.is_late(unit, charges)
    transaction = session.state.transaction()
    transaction.lift(nominated)
    kept = [
        placement
        for placement in attempt.open
        if any(m.nomination is not None for b in placement.batches for m in b.members)
    ]
    if kept and not place_where_nominated(session, transaction, kept):
        for placement in kept:
            placement.placed = []
    placer = CompositePlacer(session, attempt.placements, attempt.lacks, transaction)
    if not placer.run(attempt.tree):
        transaction.rollback()
        needed = attempt.core_unit(unit)
        if nominated and needed is not None:
            wanted = demand_of([attempt.placements[gang] for gang in needed.gangs])
            if wait_for_victims(session, unit, wanted):
                session.mark_attempted(unit)
                return False
        _wait(session, unit, attempt, placer.lacks)
        return False
    if late:
        transaction.rollback()
        loans.postpone([unit], charges)
        return False
    transaction.commit()
    commit(attempt.open)
    session.decisions.withdraw_nominations(nominated_members(unit))  # who had room held and is not needed now
    placed = {placement.gang for placement in attempt.open if placement.placed}
    _holds(session, unit, attempt, {gang: lack for gang, lack in placer.lacks.items() if gang not in placed})
    return True


def _holds(
    session: Session,
    unit: QueuedUnit,
    attempt: CompositeAttempt,
    lacks: Mapping[GangRecord, object],
    unschedulable: bool = True,
) -> None:
    """The tree has what it needs; gangs that are still open wait for themselves."""
    for gang in unit.gangs:
        if gang not in lacks:
            session.decisions.set_gang_verdict(gang, None)
    if lacks:
        _wait(session, unit, attempt, lacks, unschedulable, holds=True)


def _wait(
    session: Session,
    unit: QueuedUnit,
    attempt: CompositeAttempt,
    lacks: Mapping[GangRecord, object],
    unschedulable: bool = True,
    holds: bool = False,
) -> None:
    fit_error = session.fit_errors.record(attempt.demand, composite_fit_error(unit, attempt, lacks, holds))
    _explain(session, unit, attempt, fit_error, unschedulable)


def _explain(
    session: Session, unit: QueuedUnit, attempt: CompositeAttempt, fit_error: FitError, unschedulable: bool = True
) -> None:
    """Says what is lacking; what lacks room, or may not be charged, waits for it."""
    assert isinstance(fit_error.facts, CompositeFitError)
    explain_composite(session, unit, fit_error.facts)
    if unschedulable or attempt.demand.has_blocked_gang:
        session.set_unschedulable(unit, attempt.demand, fit_error)
    session.mark_attempted(unit)


def _faulty(gang: GangRecord, fault: Problem) -> Verdict:
    wrong, _, remedy = fault.message.partition("; ")
    least = gang.spec.min_member if gang.spec is not None else 0
    return Verdict(
        fault.code, wrong, needed=least, members=gang.counts().present, change=remedy, fault=fault.code == INVALID
    )
