"""Placement of units with nominations: room is reserved until their victims have terminated."""

from __future__ import annotations

from phalanx.cluster.accounts import AccountRecord
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
    """Return the pods of a unit that have a nomination."""
    if unit.pod is not None:
        return [unit.pod] if unit.pod.nomination is not None else []
    members = [member for gang in unit.gangs for member in gang.pending.values() if member.nomination is not None]
    for gang in unit.gangs:
        if gang.placeholders:
            members += [
                placeholder for placeholder in gang.starting_placeholders if placeholder.nomination is not None
            ]
    return members


def place_where_nominated(session: Session, transaction: Transaction, placements: list[GangPlacement]) -> bool:
    """Place every quorum on its nominated nodes, or place nothing.

    The caller must have lifted the nominations in the transaction.
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
    """Place one pod on one node if it fits there and its accounts allow it. Return whether it was placed."""
    pod_class = member.pod_class
    if not session.quota_check.room(member.charge_path, pod_class.footprint):
        return False
    if session.placer.class_view(pod_class).score[row] == NOWHERE:
        return False
    transaction.place(pod_class, [member], [row])
    return True


def place_nominated(session: Session, record: PodRecord, kind: PodDemand, gang: GangRecord | None = None) -> bool:
    """Place one nominated pod on its nominated node or on another node. Return whether it was placed."""
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
    """Let the unit wait while victims of its nominations terminate. Return False if it need not wait.

    In that case the nominations are useless. They are withdrawn, unless the policy evicts: then the preempting
    action decides.
    """
    nominated = nominated_members(unit)
    if not nominated:
        return False
    # The room of placeholders waits for no victims.
    nominated = [record for record in nominated if not _is_held(record)] or nominated
    nomination = _victims_from_api(session, nominated) or nominated[0].nomination
    assert nomination is not None
    if (
        nomination.awaited(session.state.pods.unreleased)
        and session.now < nomination.until
        and _still_placeable(session, nominated)
    ):
        await_victims(session, unit, wanted)
        return True
    if not session.plugin_runtime.policy.eviction.active:
        session.decisions.withdraw_nominations(nominated)
    return False


def _is_held(record: PodRecord) -> bool:
    return record.nomination is not None and record.nomination.held


def _victims_from_api(session: Session, nominated: list[PodRecord]) -> Nomination | None:
    """Return a nomination that waits for victims evicted before a restart; None if there are none.

    The pods' nominations were read from the API and lack their victims. Terminating pods that this scheduler
    evicted count as the victims: those on the nominated nodes, and those charged to an account that exceeds its
    limit with the nominated pods. Without this, victims with a long grace period would not count, and more pods
    would be evicted.
    """
    if any(member.nomination is None or not member.nomination.from_api for member in nominated):
        return None
    state, rows = session.state, {member.row for member in nominated if member.row != NO_NODE}
    condemned = [record for record in state.pods.terminating.values() if record.pod.condemned in state.schedulers]
    if not condemned:
        return None
    accounts = _exceeded_accounts(session, nominated)
    victims = [
        record
        for record in condemned
        if record.row in rows or (record.charge_path is not None and accounts.intersection(record.charge_path.path))
    ]
    if not victims:
        return None
    until = max(record.pod.leaves or session.now + record.pod.grace for record in victims) + PATIENCE
    uids = frozenset(record.pod.uid for record in victims)
    nomination = Nomination(uids, until, session.decisions.next_cause())
    for member in nominated:
        member.nomination = nomination
    return nomination


def _exceeded_accounts(session: Session, nominated: list[PodRecord]) -> set[AccountRecord]:
    """Return the accounts that exceed a limit, of which nominated pods request the resource; usage includes these
    pods."""
    exceeded: set[AccountRecord] = set()
    for member in nominated:
        for account_limit in session.quota_check.account_limits(member.charge_path) if member.charge_path else ():
            for name, amount in member.footprint.amounts.items():
                if amount > 0 and name in account_limit.limit.limits:
                    limit, used, _ = account_limit.state(name)
                    if used > limit:
                        exceeded.add(account_limit.account)
    return exceeded


def _still_placeable(session: Session, nominated: list[PodRecord]) -> bool:
    """Return whether the pods can still be placed on their nominated nodes."""
    return all(
        member.row >= 0 and session.placer.may_stay_nominated(member.pod_class, member.row) for member in nominated
    )


def nomination_verdict(nominated: list[PodRecord]) -> VictimsTerminating:
    """Return the verdict of pods that were nominated by one decision."""
    nomination = nominated[0].nomination
    assert nomination is not None
    return VictimsTerminating(
        len(nomination.victims), len(nominated), tuple(sorted({record.nominated_node for record in nominated}))
    )


def await_victims(session: Session, unit: QueuedUnit, wanted: Demand) -> None:
    """Refuse the unit until its victims have terminated, at the latest until the nomination expires."""
    nominated = nominated_members(unit)
    nomination = nominated[0].nomination
    assert nomination is not None
    demand = Nominated(unit.key, wanted, nomination.victims)
    fit_error = FitError(nomination_verdict(nominated), session.state.version)
    session.refuse(unit, demand, fit_error)
    session.queue.recheck_at(unit, nomination.until)
