"""The turn of a gang group or composite: the unit is placed as a whole or refused with a reason."""

from __future__ import annotations

from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, wait_for_victims
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, charges_of, demand_of
from phalanx.scheduling.ordering.borrowing import Borrowing
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import Attempt
from phalanx.scheduling.units.repair import place_with_moves
from phalanx.scheduling.units.unit import GangsUnit


def take_turn(session: Session, unit: QueuedUnit, borrowing: Borrowing, opened: bool) -> bool:
    """Place a unit in one transaction, or nothing of it. Return whether it has all it needs.

    A unit that would borrow can be postponed. With `opened`, reserved room is open to the unit, so an earlier
    refusal does not count.
    """
    assert isinstance(unit, GangsUnit)
    attempt = unit.attempt(session)
    if attempt is None:
        session.decisions.withdraw_nominations(nominated_members(unit))
        session.mark_attempted(unit)
        return False
    if not attempt.asks:
        attempt.accept()
        return True
    nominated = attempt.nominated
    known = session.fit_errors.known(attempt.demand) if not nominated and not opened else None
    return _place(session, attempt, borrowing) if known is None else _refuse(attempt, borrowing, known)


def _place(session: Session, attempt: Attempt, borrowing: Borrowing) -> bool:
    unit, nominated = attempt.unit, attempt.nominated
    # A half-bound unit is completed, and nominated room was charged before: neither counts as borrowing.
    may_borrow = borrowing.active and not nominated and unit.band[0]
    required = attempt.least() if may_borrow else ()
    charges = charges_of(session, list(required), demand_of(list(required))) if may_borrow else {}
    late = bool(may_borrow and borrowing.is_late(unit, charges))
    transaction = session.state.transaction()
    transaction.lift(nominated)
    refusal = attempt.place(transaction)
    if refusal is None and not late and nominated and attempt.asks and not transaction.placed:
        transaction.rollback()
        attempt.accept()
        _keep_room(session, unit)
        return True
    if refusal is None and not late:
        transaction.commit()
        attempt.accept()
        if nominated:
            session.decisions.withdraw_nominations(nominated_members(unit))  # of members that are not needed now
        return True
    transaction.rollback()
    may_move = refusal is not None and refusal.of_nodes and bool(session.plan.binds) and not nominated
    fits = may_move and place_with_moves(session, attempt, only_try=late)
    if fits and not late:
        attempt.accept()
        return True
    if refusal is None or fits:
        borrowing.postpone([unit], charges)
        return False
    wanted = attempt.wanted() if nominated else None
    if wanted is not None and wait_for_victims(session, unit, wanted):
        session.mark_attempted(unit)
        return False
    return _refuse(attempt, borrowing, session.fit_errors.record(attempt.demand, refusal))


def _refuse(attempt: Attempt, borrowing: Borrowing, fit_error: FitError) -> bool:
    """Refuse the unit, or postpone it behind a postponed one of its queue."""
    if borrowing.active and not attempt.nominated and borrowing.follows(attempt.unit):
        borrowing.postpone_behind([attempt.unit])
        return False
    return attempt.refuse(fit_error)


def _keep_room(session: Session, unit: QueuedUnit) -> None:
    """Let the nominated gangs of a composite, whose minimum is reached without them, wait for their victims; else
    withdraw their nominations."""
    waiting = QueuedUnit(
        unit.key, None, tuple({m.gang: None for m in nominated_members(unit) if m.gang is not None})
    )
    demand = demand_of([GangPlacement(session, gang) for gang in waiting.gangs])
    if not wait_for_victims(session, waiting, demand):
        session.decisions.withdraw_nominations(nominated_members(waiting))
