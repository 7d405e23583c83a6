"""Units to which collected room is open: those that get it before any pod is evicted."""

from __future__ import annotations

from phalanx.scheduling.collecting.collection import Collection
from phalanx.scheduling.collecting.eligibility import charges_of_parts, is_below_due
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.unit_request import parts_of


def opens_to(session: Session, collection: Collection, unit: QueuedUnit, *, if_needed: bool = False) -> bool:
    """Return whether the room of a collection is open to a unit.

    It is open to the gang itself; to units of higher priority, or below the due of another queue or quota; to pods
    of nodes (DaemonSets) and critical pods; to promised starts whose time has come, and to users of advance
    reservations. Surplus members never get it. With `if_needed`, a single pod that fits beside it does not.
    """
    if unit.key == collection.key:
        return True
    pod = unit.pod
    if pod is not None:
        if pod.pod.fixture or pod.pod.critical or pod.pod_class.spec.reservation is not None:
            return True
        # For a dynamic class the number of copies is a bound only.
        if if_needed and not pod.pod_class.dynamic and session.placer.total_copies(pod.pod_class):
            return False
    elif any(session.requirement(gang).satisfied for gang in unit.required):
        return False
    plan = plan_of(session)
    promise = plan.get(unit.key) if plan is not None else None
    # A late start keeps its claim: its repaired window avoids collected nodes and can be far away.
    if promise is not None and min(promise.promised, promise.start) <= session.now:
        return True
    if session.unit_priority(unit) > collection.priority:
        return True
    members = [member for gang in unit.required for member in gang.pending.values()]
    if any(member.pod.critical or member.pod_class.spec.reservation is not None for member in members):
        return True
    queues = frozenset(
        path.queue.key for part in collection.parts if (path := part.charge_path) is not None and path.queue
    )
    return is_below_due(session, charges_of_parts(parts_of(session, unit)), queues)
