"""Moves of promised starts in a dry run."""

from __future__ import annotations

import msgspec

from phalanx.model.promise_records import StoredReservation
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.turns import due_units


class PromiseMove(msgspec.Struct, frozen=True):
    """Move of a promised start from `promise.told` to the moment `to`; 0 if no start is known any more.

    `cause` is the cause of a postponement, "" for a move forward.
    """

    promise: StoredReservation
    to: int
    cause: str = ""


def promise_moves(session: Session) -> list[PromiseMove]:
    """Return the promised starts that a dry run moves. `session` is a session after its cycle.

    The plan is updated as at the beginning of the next cycle: pods placed in reserved room move starts then. A unit
    that the cycle placed, or that no longer waits, has no promise to move.
    """
    plan = plan_of(session)
    if plan is None or not plan.restored:
        return []
    due_units(session, plan)
    return moves_of(plan)


def moves_of(plan: ReservationPlan) -> list[PromiseMove]:
    """Return the promised starts that were loaded into a plan and have moved since."""
    moves = (_move(plan, promise) for promise in plan.restored.values())
    return [move for move in moves if move is not None]


def _move(plan: ReservationPlan, promise: StoredReservation) -> PromiseMove | None:
    reservation = plan.get(promise.key)
    if reservation is None:
        lost = plan.starts.lost(promise.key)
        return PromiseMove(promise, 0, lost.cause.value) if lost is not None else None
    if reservation.told == promise.told:
        return None
    later = reservation.told > promise.told and reservation.slips
    return PromiseMove(promise, reservation.told, reservation.slips[-1].cause.value if later else "")
