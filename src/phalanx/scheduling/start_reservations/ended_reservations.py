"""Evictions when an advance reservation ends: the pods that use it, by gangs."""

from __future__ import annotations

from phalanx.model.decisions import EvictionReason
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.preemption.rules.min_available import whole_gang_of
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.session.session import Session


def evict_users_of_ended(session: Session, plan: ReservationPlan) -> bool:
    """Evict the users of ended advance reservations, as whole gangs.

    Return whether some could not be evicted yet. As with a run-time limit, no veto and no budget holds.
    """
    blocked, evicted = False, set[str]()
    for grant, record in plan.advance.left_over():
        if record.pod.uid in evicted or record.evicting or record.pod.terminating or record.pod.fixture:
            continue
        if record.pod.scheduler not in session.state.schedulers:
            continue
        members = whole_gang_of(record, session.state) if record.state in CAN_LEAVE else "it is being bound"
        if isinstance(members, str):
            blocked = True
            continue
        members = [member for member in members if member.pod.scheduler in session.state.schedulers]
        evicted.update(member.pod.uid for member in members)
        cause, message = session.decisions.next_cause(), f"{grant.spec.title} has ended"
        for member in members:
            session.decisions.evict(member, EvictionReason.REVOKED, message, cause=cause)
    return blocked
