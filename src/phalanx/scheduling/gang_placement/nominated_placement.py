"""Units for which room is held until others have left."""

from __future__ import annotations

from phalanx.cluster.pods.nominations import PATIENCE, Nomination
from phalanx.cluster.pods.records import NO_NODE, GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement
from phalanx.scheduling.gang_placement.surplus_domains import SurplusSubgroup, place_in_domain
from phalanx.scheduling.placement.domain_greedy import NOWHERE
from phalanx.scheduling.queue.demands import Demand, Nominated, PodDemand
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.refusals.refusal import VictimsTerminating
from phalanx.scheduling.session.session import Session


def nominated_members(unit: QueuedUnit) -> list[PodRecord]:
    """The pods of a unit for which room is held."""
    if unit.pod is not None:
        return [unit.pod] if unit.pod.nomination is not None else []
    found = [member for gang in unit.gangs for member in gang.pending.values() if member.nomination is not None]
    for gang in unit.gangs:
        if gang.placeholders:
            found += [each for each in gang.starting_placeholders if each.nomination is not None]
    return found


def place_where_nominated(session: Session, transaction: Transaction, placements: list[GangPlacement]) -> bool:
    """Places every quorum on the nodes where room was held for it; or places nothing.

    The transaction must have lifted the nominations.
    """
    for placement in placements:
        placement.placed = []
        members = [
            m for batch in placement.batches for m in batch.members if m.nomination is not None and m.row >= 0
        ]
        for member in members:
            if not put(session, transaction, member, member.row):
                transaction.unplace()
                return False
            placement.placed.append((member, member.row))
        roles = dict(placement.need.roles)
        for member in members:
            if member.pod.role in roles:
                roles[member.pod.role] -= 1
        short = len(members) < placement.need.total or any(missing > 0 for missing in roles.values())
        if short or not placement.near_enough(session):
            transaction.unplace()
            return False
    return True


def put(session: Session, transaction: Transaction, member: PodRecord, row: int) -> bool:
    """Places one pod on one node, if it fits there and its accounts allow it."""
    pod_class = member.pod_class
    if not session.quota_check.room(member.charge_path, pod_class.footprint):
        return False
    if session.placer.class_view(pod_class).score[row] == NOWHERE:
        return False
    transaction.place(pod_class, [member], [row])
    return True


def place_nominated(session: Session, record: PodRecord, kind: PodDemand, gang: GangRecord | None = None) -> bool:
    """Places one pod for which room is held, there or elsewhere."""
    transaction = session.state.transaction()
    transaction.lift([record])
    near = record.row >= 0 and (kind.area is None or session.topology_domains.holds(kind.area, [record.row]))
    if not (near and put(session, transaction, record, record.row)):
        place_in_domain(session, transaction, SurplusSubgroup(kind, [record], ()))
    if not transaction.placed:
        transaction.rollback()
        return False
    for placed, row in transaction.commit():
        session.decisions.bind_member(placed, row, gang)
    return True


def wait_for_victims(session: Session, unit: QueuedUnit, wanted: Demand) -> bool:
    """Whether the unit has to wait for others to leave still; if so it is told so.

    If not, what was held for it is of no use as it is: it is given up, unless others may be asked to go (then that
    is for the action that asks them).
    """
    held = nominated_members(unit)
    if not held:
        return False
    nomination = _victims_from_api(session, held) or held[0].nomination
    assert nomination is not None
    if (
        nomination.awaited(session.state.pods.unreleased)
        and session.now < nomination.until
        and _stands(session, held)
    ):
        await_victims(session, unit, wanted)
        return True
    if not session.plugin_runtime.policy.eviction.active:
        session.decisions.withdraw_nominations(held)
    return False


def _victims_from_api(session: Session, held: list[PodRecord]) -> Nomination | None:
    """Who has to leave for pods for which room was held in a former life: those on its nodes whom we have told to.
    None where that is known, or nobody has to.

    Without that whoever has long to leave would count for nothing, and others would be told to go in his place.
    """
    if any(member.nomination is None or not member.nomination.from_api for member in held):
        return None
    state, rows = session.state, {member.row for member in held if member.row != NO_NODE}
    victims = [
        record
        for record in state.pods.terminating.values()
        if record.row in rows and record.pod.condemned in state.schedulers
    ]
    if not victims:
        return None
    until = max(record.pod.leaves or session.now + record.pod.grace for record in victims) + PATIENCE
    uids = frozenset(record.pod.uid for record in victims)
    nomination = Nomination(uids, until, session.decisions.next_cause())
    for member in held:
        member.nomination = nomination
    return nomination


def _stands(session: Session, held: list[PodRecord]) -> bool:
    """Whether the pods may still go to the nodes on which room is held for them."""
    return all(
        member.row >= 0 and session.placer.may_stay_nominated(member.pod_class, member.row) for member in held
    )


def nomination_verdict(held: list[PodRecord]) -> VictimsTerminating:
    """What the pods, for all of which one decision holds room, are told."""
    nomination = held[0].nomination
    assert nomination is not None
    return VictimsTerminating(
        len(nomination.victims), len(held), tuple(sorted({record.nominated_node for record in held}))
    )


def await_victims(session: Session, unit: QueuedUnit, wanted: Demand) -> None:
    """Lets the unit wait until those who must leave for it have left."""
    held = nominated_members(unit)
    nomination = held[0].nomination
    assert nomination is not None
    demand = Nominated(unit.key, wanted, nomination.victims)
    fit_error = FitError(nomination_verdict(held), session.state.version)
    session.refuse(unit, demand, fit_error)
    session.queue.recheck_at(unit, nomination.until)
