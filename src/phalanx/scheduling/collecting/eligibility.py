"""Which waiting gangs can collect room: node amounts alone are in their way."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.accounts import ChargePath, add_amounts
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.ordering.entitlements import copies_within_share
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.reservations.window import Part
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.obstacles import start_obstacle
from phalanx.scheduling.start_reservations.plugin import plan_of
from phalanx.scheduling.start_reservations.unit_request import parts_of

Amounts = Mapping[str, int]


def waits_for_nodes(session: Session, unit: QueuedUnit, demand: WaitReason, fit_error: FitError) -> bool:
    """Return whether a refused unit is a gang that lacks room on nodes, within its hard limits."""
    if unit.pod is not None or not demand.for_room or not unit.starts_planned:
        return False
    facts = fit_error.facts
    if facts is not None and facts.of_nodes:
        # Room does not help where the filters refuse every node.
        return facts.lacks_amounts
    # A limit that lends is no hard limit: the gang can start above its deserved share.
    return within_hard_limits(session, charges_of_parts(parts_of(session, unit)))


def may_collect(session: Session, unit: QueuedUnit) -> bool:
    """Return whether a waiting gang could start if it had the room, and nothing else gets it for the gang: no
    victims, no promised start."""
    plan = plan_of(session)
    if unit.pod is not None or not unit.starts_planned or start_obstacle(session, unit):
        return False
    if plan is not None and plan.get(unit.key) is not None:
        return False
    needs = [session.requirement(gang) for gang in unit.required]
    if not needs or any(need.repair or need.satisfied for need in needs) or nominated_members(unit):
        return False
    members = [member for gang in unit.required for member in gang.pending.values()]
    return not any(member.pod_class.spec.reservation is not None for member in members)


def charges_of_parts(parts: tuple[Part, ...]) -> dict[ChargePath, dict[str, int]]:
    """Return the amounts of the parts by charge path."""
    charges: dict[ChargePath, dict[str, int]] = {}
    for part in parts:
        if part.charge_path is not None:
            add_amounts(charges.setdefault(part.charge_path, {}), part.pod_class.footprint.amounts, part.count)
    return charges


def within_hard_limits(session: Session, charges: Mapping[ChargePath, Amounts]) -> bool:
    """Return whether the limits that do not lend (capability, quota max) allow the amounts."""
    with session.quota_check.lending():
        return all(session.quota_check.room_for(path, amounts) > 0 for path, amounts in charges.items())


def above_share(session: Session, charges: Mapping[ChargePath, Amounts]) -> bool:
    """Return whether the amounts exceed a limit that lends: the deserved share of a queue."""
    return any(session.quota_check.room_for(path, amounts) < 1 for path, amounts in charges.items())


def unit_within_share_waits(session: Session) -> bool:
    """Return whether any unit waits for room within the own share of its queue or quota."""
    for demand in session.queue.waiting_demands():
        for quorum in demand.quorums if demand.for_room else ():
            amounts = quorum.least_amounts()
            paths = {pods.charge_path for pods in quorum.members}
            if any(path is not None and copies_within_share(session, path, amounts) for path in paths):
                return True
    return False


def is_below_due(session: Session, charges: Mapping[ChargePath, Amounts], queues: frozenset[object]) -> bool:
    """Return whether the amounts stay within the own share of a queue or quota outside of `queues`."""
    paths = [path for path in charges if path.queue is None or path.queue.key not in queues]
    return len(paths) == len(charges) and all(
        copies_within_share(session, path, charges[path]) > 0 for path in paths
    )


def collect_after(session: Session, unit: QueuedUnit, default: int) -> int:
    """Return the seconds that a unit waits before it collects: the setting of the nearest queue that has one, else
    the policy's; NEVER if it never does."""
    queue = session.charge_path(unit.members[0]).queue
    for account in queue.lineage() if queue is not None else ():
        if account.spec is not None and account.spec.collect_after is not None:
            return account.spec.collect_after
    return default
