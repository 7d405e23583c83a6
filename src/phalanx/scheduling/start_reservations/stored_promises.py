"""Promised starts as they are stored, and as the next process restores them."""

from __future__ import annotations

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.model.promise_records import StoredLoss, StoredReservation
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.stored import shares_of, stored, stored_gangs
from phalanx.scheduling.reservations.window import Window
from phalanx.scheduling.reservations.window_search import charges_of
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.obstacles import start_obstacle
from phalanx.scheduling.start_reservations.unit_request import queue_of, requested_parts, run_limit


def promises(session: Session, plan: ReservationPlan) -> list[StoredReservation]:
    """Return the promises to store, in the order of compression."""
    records_to_store = []
    for reservation in plan.all():
        records = _known_gangs(session, reservation.key)
        titles = {record.key: record.title for record in records}
        records_to_store.append(stored(reservation, session.state.nodes, _uids(records), titles))
    return records_to_store


def losses(session: Session, plan: ReservationPlan) -> list[StoredLoss]:
    """Return the losses of promises to store, by unit."""
    stored_losses = []
    for key, slips in plan.starts.losses().items():
        gangs = stored_gangs(key, _uids(_known_gangs(session, key)))
        stored_losses.append(StoredLoss(list(slips), gangs, key if isinstance(key, str) else ""))
    return sorted(stored_losses, key=lambda loss: (loss.pod, loss.gangs))


def _known_gangs(session: Session, key: UnitKey) -> list[GangRecord]:
    """Return the known gangs of a unit."""
    gangs = session.state.gangs
    return [gangs[gang] for gang in (() if isinstance(key, str) else key) if gang in gangs]


def _uids(records: list[GangRecord]) -> dict[GangKey, str]:
    """Return the uids of the objects that declare the gangs."""
    return {record.key: record.spec.uid for record in records if record.spec is not None}


def is_present(session: Session, promised: StoredReservation | StoredLoss) -> bool:
    """Return whether the unit of a stored promise still waits, and its gangs are declared by the same objects."""
    if session.queue.unit(promised.key) is None:
        return False
    records = [(session.state.gangs.get(GangKey(namespace, name)), uid) for namespace, name, uid in promised.gangs]
    return all(record is not None and record.spec is not None and record.spec.uid == uid for record, uid in records)


def restored_reservation(session: Session, plan: ReservationPlan, promise: StoredReservation) -> Reservation | None:
    """Return the reservation of a loaded promise; None if its unit no longer waits."""
    unit = session.queue.unit(promise.key)
    if unit is None or not is_present(session, promise):
        return None
    parts = requested_parts(session, plan, unit)
    if not parts or start_obstacle(session, unit):
        return None
    shares = shares_of(promise, parts, session.state.nodes) or ()
    window = Window(promise.start, promise.end, shares, charges_of(parts))
    priority = session.unit_priority(unit)
    queue = queue_of(session, unit)
    limit = run_limit(unit)
    duration = limit + plan.settings.start_delay if limit else 0
    reservation = Reservation(unit.key, unit.name, queue, priority, parts, duration, window, promise.made)
    reservation.promised, reservation.told, reservation.slips = promise.promised, promise.told, tuple(promise.slips)
    reservation.words, reservation.predicted = promise.words, promise.predicted
    return reservation
