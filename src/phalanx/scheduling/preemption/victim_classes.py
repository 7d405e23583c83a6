"""Whether anybody could have to go for somebody at all, by the kinds of pods that there are."""

from __future__ import annotations

from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.session.victim_class_arrays import has_quota


def no_lower_priority(session: Session, unit: QueuedUnit) -> bool:
    """Whether nobody can have to go for a unit: everybody is in its queue and without a quota, where only pods of
    lower priority make room, and there are none. (False proves nothing.)"""
    state = session.state
    if session.pipeline.policy.eviction.levels or state.pods.terminating or state.pods.nominated:
        return False
    if any(gang.counts().active for gang in unit.gangs):  # may find victims among its own
        return False
    table = state.victim_table()
    lowest = session.victim_classes().lowest_priority(table)
    if lowest.lowest is None:
        return True
    payers = [session.payer(member) for member in unit.members]
    alike = not lowest.quotas and all({payer.queue} == lowest.queues for payer in payers)
    return (
        alike
        and not any(has_quota(payer) for payer in payers)
        and all(session.priority(each) <= lowest.lowest for each in (*unit.members, *unit.gangs))
    )
