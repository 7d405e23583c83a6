"""The quick no: where priorities alone decide who may go, and nobody has a lower one."""

from __future__ import annotations

from phalanx.scheduling.preemption.victim_classes import Standing, columns_of, has_quota
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session


def outranks_nobody(session: Session, unit: QueuedUnit) -> bool:
    """Whether nobody can have to go for a unit: everybody is in its queue and without a quota, where only pods of
    lower priority make room, and there are none. (False proves nothing.)"""
    state = session.state
    if session.pipeline.policy.eviction.levels or state.pods.terminating or state.pods.nominated:
        return False
    if any(gang.counts().active for gang in unit.gangs):  # may find victims among its own
        return False
    table = state.victim_table()
    columns = columns_of(session)
    if columns.standing is None or columns.standing[0] is not table:
        columns.standing = (table, Standing(columns, table))
    _, standing = columns.standing
    if standing.lowest is None:
        return True
    payers = [session.payer(member) for member in unit.members]
    alike = not standing.quotas and all({payer.queue} == standing.queues for payer in payers)
    return (
        alike
        and not any(has_quota(payer) for payer in payers)
        and all(session.priority(each) <= standing.lowest for each in (*unit.members, *unit.gangs))
    )
