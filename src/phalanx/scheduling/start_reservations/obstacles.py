"""Obstacles of reserved starts: reasons other than room for which a unit could not start now."""

from __future__ import annotations

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.diagnosis.verdicts import UNREADABLE, members_missing, unreadable_members
from phalanx.scheduling.ordering.fifo import FifoQueues
from phalanx.scheduling.ordering.ranks import try_to_rank
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.refusals.refusal import BEHIND_IN_QUEUE, WAITING_FOR_GANG_GROUP
from phalanx.scheduling.session.session import Session

AWAITS_ADMISSION = "AwaitingAdmission"


def start_obstacle(session: Session, unit: QueuedUnit) -> str:
    """Return the reason why the unit could not start even with free room: a code, or a sentence; "" for none.

    A start is reserved only while there is none. Room and quotas within their limits are no obstacles: the window
    of the reservation covers them. `queue_obstacle` covers the order of queues.
    """
    if unit.pod is not None:
        return _obstacle_of_pod(session, unit.pod)
    if unit.oversized_group or unit.missing:
        return WAITING_FOR_GANG_GROUP
    return next((reason for gang in unit.required if (reason := _obstacle_of_gang(session, gang))), "")


def queue_obstacle(session: Session, queues: FifoQueues, key: UnitKey) -> str:
    """Return the code of the reason if a unit waits behind the head of a queue that keeps its order; "" if not.

    The head is known after its turn. Windows do not cover the wait: the head can lack the room that is reserved for
    the unit behind it.
    """
    unit = session.queue.unit(key)
    if unit is None or not queues.keeps_order(unit):
        return ""
    try_to_rank(session, unit)
    return BEHIND_IN_QUEUE if queues.is_behind(unit) else ""


def _obstacle_of_pod(session: Session, record: PodRecord) -> str:
    if record.pod.problem:
        return UNREADABLE
    blocked = session.blocked(record)
    return blocked.code if blocked is not None else _unready(session, record.pod_class)


def _obstacle_of_gang(session: Session, gang: GangRecord) -> str:
    spec = gang.spec
    if spec is None:
        return WAITING_FOR_GANG_GROUP
    if spec.problem is not None:
        return spec.problem.code
    if awaits_admission(gang):
        return AWAITS_ADMISSION
    need = session.requirement(gang)
    verdict = members_missing(gang, spec, need) or unreadable_members(gang, need)
    if verdict is not None:
        return verdict.code
    if gang.pending and not need.repair and (blocked := session.blocked(gang)) is not None:
        return blocked.code
    return _unready_members(session, gang)


def _unready_members(session: Session, gang: GangRecord) -> str:
    """Return why too few members have their volumes, claims and reservations; "" if enough have."""
    classes = gang.pending_facts.classes
    reasons = {pod_class: reason for pod_class in classes if (reason := _unready(session, pod_class))}
    if not reasons:
        return ""
    unready = [member for member in gang.pending.values() if member.pod_class in reasons]
    need = session.requirement(gang)
    present = len(gang.pending) + len(gang.starting_placeholders)
    enough = present - len(unready) >= need.total and all(
        gang.count(MemberState.PENDING, role) - sum(member.pod.role == role for member in unready) >= least
        for role, least in need.roles
    )
    return "" if enough else reasons[unready[0].pod_class]


def _unready(session: Session, pod_class: ClassRecord) -> str:
    runtime = session.plugin_runtime
    return runtime.pre_filter(pod_class) or runtime.unready(pod_class) or ""
