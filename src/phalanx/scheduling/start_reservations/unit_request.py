"""What a unit requests from the plan of starts: pods by class, nodes, topology domains, and run time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.resource_space import IntArray
from phalanx.model.pod import ReservationUse
from phalanx.scheduling.placement.topology_domains import area_of
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.window import Part
from phalanx.scheduling.session.session import Session


def queue_of(session: Session, unit: QueuedUnit) -> str:
    """Return the name of the unit's queue, "" for none."""
    charge_path = session.charge_path(unit.members[0])
    return charge_path.queue.key.name if charge_path.queue is not None else ""


def run_limit(unit: QueuedUnit) -> int:
    """Return the run-time limit of the unit in seconds, 0 if a pod has none."""
    limits = [pod_class.spec.run_limit for pod_class in classes_of(unit)]
    return max(limits) if limits and all(limits) else 0


def expected_run_time(unit: QueuedUnit) -> int:
    """Return the declared run time of the unit in seconds; 0 for none."""
    return max((member.pod.run_time.expected() for member in _pending(unit)), default=0)


def created_of(unit: QueuedUnit) -> int:
    """Return the creation time of the gang, or of the pod on its own; new pods of a gang do not reset it."""
    if unit.pod is not None:
        return unit.pod.pod.created
    return min(gang.spec.created for gang in unit.gangs if gang.spec is not None)


def use_of(unit: QueuedUnit) -> ReservationUse | None:
    """Return the advance reservation that the pods of the unit can use; None for none."""
    return next((pod_class.spec.reservation for pod_class in classes_of(unit)), None)


def classes_of(unit: QueuedUnit) -> Iterable[ClassRecord]:
    """Return the classes of the pending pods of the unit, the first pod's first."""
    if unit.pod is not None:
        return (unit.pod.pod_class,)
    return [pod_class for gang in unit.required for pod_class in gang.pending_facts.classes]


def parts_of(session: Session, unit: QueuedUnit) -> tuple[Part, ...]:
    """Return the quorum of the unit by class and charge path: the members that are placed first.

    A gang that is bound to one topology domain has parts of its own.
    """
    if unit.pod is not None:
        return tuple(_parts(session, [unit.pod], None))
    parts: list[Part] = []
    anywhere: list[PodRecord] = []
    for gang in unit.required:
        domains = _domains(session, gang)
        if domains is None:
            anywhere += _quorum(session, gang)
        else:
            parts += _parts(session, _quorum(session, gang), domains)
    return (*_parts(session, anywhere, None), *parts)


def requested_parts(session: Session, plan: ReservationPlan, unit: QueuedUnit) -> tuple[Part, ...]:
    """Return the parts of the unit without the nodes on which other units collect room."""
    parts = parts_of(session, unit)
    if not plan.collected:
        return parts
    return tuple(msgspec.structs.replace(part, rows=plan.beside_collections(unit.key, part.rows)) for part in parts)


def _parts(session: Session, chosen: list[PodRecord], domains: IntArray | None) -> Iterator[Part]:
    counts: dict[tuple[int, int], list[PodRecord]] = {}
    for member in chosen:
        counts.setdefault((member.pod_class.number, id(member.charge_path)), []).append(member)
    for members in counts.values():
        rows = session.placer.eligible_rows(members[0].pod_class).copy()
        yield Part(members[0].pod_class, len(members), members[0].charge_path, rows, domains)


def _domains(session: Session, gang: GangRecord) -> IntArray | None:
    """Return int64[N]: the number of the gang's widest allowed domain that each row is in; None without a required
    domain."""
    area = area_of(gang.spec.topology if gang.spec is not None else None, gang.members.values())
    ladder = session.topology_domains.ladder(area.rule) if area is not None else None
    if area is None or ladder is None or not ladder.cap:
        return None
    if not ladder.levels:
        return np.zeros(session.state.nodes.capacity, dtype=np.int64)
    domain_of_row: IntArray = ladder.levels[-1].ids.astype(np.int64)
    if area.pins:
        domain_of_row[domain_of_row != ladder.levels[-1].shared(area.pins)] = 0
    return domain_of_row


def _quorum(session: Session, gang: GangRecord) -> list[PodRecord]:
    need = session.requirement(gang)
    members = session.pending_in_order(gang) + (gang.starting_placeholders if gang.placeholders else [])
    chosen: list[PodRecord] = []
    for role, minimum in need.roles:
        chosen += [member for member in members if member.pod.role == role][:minimum]
    chosen_uids = {member.pod.uid for member in chosen}
    chosen += [member for member in members if member.pod.uid not in chosen_uids][: need.total - len(chosen)]
    return chosen


def _pending(unit: QueuedUnit) -> list[PodRecord]:
    if unit.pod is not None:
        return [unit.pod]
    return [member for gang in unit.required for member in gang.pending.values()]
