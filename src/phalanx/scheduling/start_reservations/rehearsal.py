"""Where a dry run moves the starts that the scheduler has promised."""

from __future__ import annotations

import msgspec

from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.stored import StoredReservation
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.turns import due_units


class PromiseMove(msgspec.Struct, frozen=True):
    """Move of a promised start, from `promise.told` `to` a moment; 0 where no start is known any more. `cause` is
    why it moves back, "" where it moves forward."""

    promise: StoredReservation
    to: int
    cause: str = ""


def promise_moves(session: Session) -> list[PromiseMove]:
    """Return the promised starts that a dry run moves, after its cycle: `session` is one after it.

    The plan is brought up to date, as at the beginning of the next cycle: what the last one placed in reserved room
    moves starts then. A unit that the cycle placed, or that waits no more, has no promise that could move.
    """
    plan = plan_of(session)
    if plan is None or not plan.restored:
        return []
    due_units(session, plan)
    return moves_of(plan)


def moves_of(plan: ReservationPlan) -> list[PromiseMove]:
    """Return the promised starts that were loaded into a plan and that it has moved since."""
    moves = (_move(plan, promise) for promise in plan.restored.values())
    return [move for move in moves if move is not None]


def _move(plan: ReservationPlan, promise: StoredReservation) -> PromiseMove | None:
    reservation = plan.get(promise.key)
    if reservation is None:
        lost = plan.starts.lost(promise.key)
        return PromiseMove(promise, 0, lost.slips[-1].cause.value) if lost is not None else None
    if reservation.told == promise.told:
        return None
    later = reservation.told > promise.told and reservation.slips
    return PromiseMove(promise, reservation.told, reservation.slips[-1].cause.value if later else "")
