"""Votes of plugins: which units get a start reservation, and which units can start before reserved starts."""

from __future__ import annotations

from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.framework.extension_points import Vote
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.ordering.failures import set_aside
from phalanx.scheduling.queue.demands import FifoBlocked
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.refusals.refusal import Blocked
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.session.session import Session

BACKFILL_REJECTED = "BackfillRejected"


class BackfillRejected(FifoBlocked, frozen=True):
    """Wait reason of units that a plugin rejects before a unit with a reserved start (`ahead`)."""

    plugin: str
    ahead: str


def start_vote(session: Session, unit: QueuedUnit) -> Vote:
    """Return the vote of the plugins on a start reservation for a unit."""
    return _vote(session, "reserve_start", unit)[0]


def reject_backfills(session: Session, plan: ReservationPlan, units: list[QueuedUnit]) -> list[QueuedUnit]:
    """Mark units unschedulable that a plugin rejects before a reserved start; return these units and the units
    whose plugin raised."""
    reservations = plan.all()
    return [unit for unit in units if reservations and _is_rejected(session, unit, reservations[0])]


def _is_rejected(session: Session, unit: QueuedUnit, first: Reservation) -> bool:
    # `first` has the highest priority: a unit that outranks it starts before it anyway.
    if unit.reserved or nominated_members(unit) or not _starts(session, unit):
        return False
    if session.unit_priority(unit) > first.priority:
        return False
    vote, plugin = _vote(session, "backfill", unit)
    if vote is Vote.REJECT and plugin:
        message = f"plugin {plugin} rejects its start before {first.name}, whose start is reserved"
        facts = Blocked(BACKFILL_REJECTED, message, f"wait until {first.name} starts")
        demand = BackfillRejected(_queue_of(session, unit), plugin, first.name)
        session.refuse(unit, demand, session.fit_errors.record(demand, facts))
        session.mark_attempted(unit)
    return vote is Vote.REJECT


def _starts(session: Session, unit: QueuedUnit) -> bool:
    """Return whether the unit waits for its start, and not for more members or a repair."""
    needs = [session.requirement(gang) for gang in unit.gangs]
    return not any(need.satisfied or need.repair for need in needs)


def _queue_of(session: Session, unit: QueuedUnit) -> AccountKey:
    queue = session.charge_path(unit.members[0]).queue
    return queue.key if queue is not None else AccountKey(Tree.QUEUE, "")


def _vote(session: Session, point: str, unit: QueuedUnit) -> tuple[Vote, str]:
    """Return the vote and its plugin. If a plugin raises, set the unit aside and return (REJECT, "")."""
    try:
        return session.plugin_runtime.vote(point, session, unit)
    except Exception as error:
        set_aside(session, [unit], error)
        return Vote.REJECT, ""
