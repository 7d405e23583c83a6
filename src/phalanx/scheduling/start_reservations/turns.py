"""Turns under a plan of starts: the windows that are open to a unit, and the units that get a start reservation."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import TracebackType

import msgspec
import numpy as np

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.model.advance_reservation import AdvanceReservation
from phalanx.model.gang import GangKey
from phalanx.model.pod import ReservationUse
from phalanx.scheduling.framework.extension_points import Vote
from phalanx.scheduling.framework.queue_policies import reserves_starts
from phalanx.scheduling.ordering.fifo import any_queue_keeps_order
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.quota.limits import UNLIMITED, AccountLimit
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.window import Part, request_of
from phalanx.scheduling.session.cycle_plugin import Turn
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.obstacles import start_obstacle
from phalanx.scheduling.start_reservations.stored_promises import is_present, restored_reservation
from phalanx.scheduling.start_reservations.unit_request import (
    classes_of,
    created_of,
    parts_of,
    queue_of,
    requested_parts,
    run_limit,
    use_of,
)
from phalanx.scheduling.start_reservations.votes import start_vote

#: Largest number of start reservations under any policy.
MOST_RESERVATIONS = 1000


class _ReservedQuota:
    """Quota beside reserved windows, for a unit of limited run time that can `use` an advance reservation."""

    def __init__(self, plan: ReservationPlan, limit: int, use: ReservationUse | None) -> None:
        self._plan = plan
        self._limit = limit
        self._use = use

    def room(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
        with self._plan.accounts_until(self._limit, self._use) as accounts:
            room = accounts[0].room(charge_path, amounts, accounts[1]) if accounts is not None else None
        return UNLIMITED if room is None else room

    def excess(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> tuple[AccountLimit, str, int] | None:
        with self._plan.accounts_until(self._limit, self._use) as accounts:
            return accounts[0].excess(charge_path, amounts, accounts[1]) if accounts is not None else None


@contextmanager
def reserved_turn(session: Session, plan: ReservationPlan, units: list[QueuedUnit], turn: Turn) -> Iterator[None]:
    """Open the windows of the first unit, and of units that it outranks, during a turn of equal units."""
    first = units[0]
    priority = min(session.turn_priority(member) for unit in units for member in unit.members)
    opened = plan.lift(first.key, priority)
    turn.opened |= opened
    mark = len(session.plan.binds)
    use = use_of(first)
    session.quota_check.reserved_quota = _ReservedQuota(plan, run_limit(first), use)
    try:
        yield
    finally:
        session.quota_check.reserved_quota = None
        if opened or turn.placed is not None:
            nodes = session.state.nodes
            rows = [nodes.row(bind.node) for bind in session.plan.binds[mark:]]
            plan.restore(turn.placed.key if turn.placed is not None else None, first.name, rows)
        if use is not None and len(session.plan.binds) > mark:
            plan.recount_users()


@contextmanager
def search_beside_the_plan(session: Session, plan: ReservationPlan, unit: QueuedUnit) -> Iterator[None]:
    """Open the windows of a unit, and of units that it outranks, while victims for the unit are searched.

    Reserved quota applies: its turn after the evictions is under the same limits.
    """
    priority = session.unit_priority(unit)
    keys = [each.key for each in plan.all() if each.key == unit.key or each.priority < priority]
    quota_check = session.quota_check
    former, quota_check.reserved_quota = (
        quota_check.reserved_quota,
        _ReservedQuota(plan, run_limit(unit), use_of(unit)),
    )
    try:
        with plan.opened_to(keys):
            yield
    finally:
        quota_check.reserved_quota = former


class BesideThePlan(AbstractContextManager[None]):
    """Context that opens the windows and applies the reserved quota of the unit's turn, while a cycle checks
    whether it would fit. `opens` is whether windows are open.

    Otherwise the check would pass where the turn refuses, again and again, or refuse where the turn would pass.
    """

    def __init__(self, session: Session, plan: ReservationPlan, unit: QueuedUnit) -> None:
        self._session, self._plan, self._unit = session, plan, unit
        self.opens = False

    def __enter__(self) -> None:
        session, plan, unit = self._session, self._plan, self._unit
        priority = session.unit_priority(unit)
        self.opens = plan.opens_room(unit.key, priority) and plan.lift(unit.key, priority)
        session.quota_check.reserved_quota = self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.quota_check.reserved_quota = None
        if self.opens:
            self._plan.restore()

    # As the reserved quota of the unit, which most rechecks do not reach.

    def room(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> int:
        return self._quota().room(charge_path, amounts)

    def excess(self, charge_path: ChargePath, amounts: Mapping[str, int]) -> tuple[AccountLimit, str, int] | None:
        return self._quota().excess(charge_path, amounts)

    def _quota(self) -> _ReservedQuota:
        return _ReservedQuota(self._plan, run_limit(self._unit), use_of(self._unit))


def due_units(session: Session, plan: ReservationPlan) -> list[UnitKey]:
    """Update the plan; return the units that are due."""
    if plan.has_loaded:
        plan.restore_loaded(
            lambda kept: restored_reservation(session, plan, kept), session.quota_check, session.now
        )
        plan.restore_losses(lambda loss: is_present(session, loss))
    return plan.begin_cycle(
        session.now,
        session.quota_check,
        session.queue.waits,
        session.out_of_time,
        partial(wanted_by, session),
        partial(_obstacle, session),
        partial(_parts_now, session, plan),
    )


def _parts_now(session: Session, plan: ReservationPlan, reservation: Reservation) -> tuple[Part, ...]:
    """Return the request of a reservation with the classes, nodes and topology domains of now; itself if
    unchanged."""
    reclassified = _is_reclassified(session, reservation)
    if len(reservation.parts) == 1 and not reclassified and not plan.collected:
        (part,) = reservation.parts
        open_rows = session.placer.eligible_rows(part.pod_class)
        if (
            part.domains is None
            and len(open_rows) == len(part.rows)
            and not np.count_nonzero(open_rows != part.rows)
        ):
            return reservation.parts
    if any(part.domains is not None for part in reservation.parts) or reclassified:
        unit = session.queue.unit(reservation.key)
        fresh = requested_parts(session, plan, unit) if unit is not None else ()
        same = len(fresh) == len(reservation.parts) and all(map(_same, fresh, reservation.parts))
        return reservation.parts if same or request_of(fresh) != request_of(reservation.parts) else fresh
    rows = [
        plan.beside_collections(reservation.key, session.placer.eligible_rows(part.pod_class))
        for part in reservation.parts
    ]
    if all(np.array_equal(part.rows, now) for part, now in zip(reservation.parts, rows, strict=True)):
        return reservation.parts
    return tuple(
        msgspec.structs.replace(part, rows=now.copy()) for part, now in zip(reservation.parts, rows, strict=True)
    )


def _is_reclassified(session: Session, reservation: Reservation) -> bool:
    """Return whether the pods of a unit have other classes now: a namespace in which a kubelet has rejected pods
    shares none with other namespaces."""
    key = reservation.key
    record = session.state.pods.get(key) if isinstance(key, str) else None
    namespace = (record.pod.namespace if record is not None else "") if isinstance(key, str) else key[0].namespace
    separate = namespace if namespace in session.state.pods.separate else ""
    return any(part.pod_class.namespace != separate for part in reservation.parts)


def _same(one: Part, other: Part) -> bool:
    if one.pod_class is not other.pod_class:
        return False
    if one.domains is None or other.domains is None:
        return one.domains is other.domains and np.array_equal(one.rows, other.rows)
    return np.array_equal(one.rows, other.rows) and np.array_equal(one.domains, other.domains)


def _obstacle(session: Session, key: UnitKey) -> str:
    unit = session.queue.unit(key)
    return start_obstacle(session, unit) if unit is not None else ""


def wanted_by(session: Session, reservation: AdvanceReservation) -> tuple[Part, ...] | str:
    """Return the request of an advance reservation by class, or the reason why it has none."""
    if reservation.template is not None:
        pod_class = session.state.classes.record(reservation.template)
        rows = session.placer.eligible_rows(pod_class).copy()
        return (Part(pod_class, reservation.count, None, rows),)
    key = GangKey(*reservation.gang) if reservation.gang is not None else None
    unit = session.queue.unit((key,)) if key is not None else None
    if unit is None:
        return f"gang {key} has no pods that wait for room" if key is not None else "it requests nothing"
    return parts_of(session, unit) or f"gang {key} requests nothing"


def next_in_line(session: Session, plan: ReservationPlan, searches: bool) -> list[UnitKey]:
    """Return the unschedulable units that get a start reservation next.

    No unit behind them can have a turn before them. Where a queue has its reservations, none is next, unless a unit
    with a reservation has its turn in this cycle: once it starts, the next one must be reserved before others. With
    `searches`, units without a possible start are left out: a search costs less than a turn in vain, but more than
    no search for units that have one.
    """
    depth = plan.settings.depth
    if not depth:
        return []
    in_turn = {queue_of(session, unit) for unit in session.units if plan.get(unit.key) is not None}
    least = _least_priorities(plan, depth)
    candidates = [
        (rank, unit, queue)
        for rank, unit in session.queue.first_unschedulable(depth)
        if (queue := queue_of(session, unit)) not in least
        or queue in in_turn
        or session.unit_priority(unit) > least[queue]
    ]
    heads: dict[str, list[UnitKey]] = {}
    for _, unit, queue in sorted(candidates, key=lambda entry: entry[0]):
        chosen = heads.setdefault(queue, [])
        # Only as many units as get a reservation are examined.
        if len(chosen) >= depth or plan.get(unit.key) is not None or plan.hopeless(unit.key):
            continue
        if entitled(session, plan, unit) and (not searches or _has_start(session, plan, unit)):
            chosen.append(unit.key)
    return [key for keys in heads.values() for key in keys]


def _has_start(session: Session, plan: ReservationPlan, unit: QueuedUnit) -> bool:
    """Return whether a start is known for an unschedulable unit."""
    demand = session.queue.demand_of(unit.key)
    if demand is None or not demand.for_room:
        return False
    parts = requested_parts(session, plan, unit)
    return bool(parts) and plan.has_start(unit.key, session.unit_priority(unit), parts, run_limit(unit), demand)


def _least_priorities(plan: ReservationPlan, depth: int) -> dict[str, int]:
    """Return the lowest priority among the `depth` highest ones with a reservation, by queue with so many."""
    priorities: dict[str, list[int]] = {}
    for reservation in plan.all():
        priorities.setdefault(reservation.queue, []).append(reservation.priority)
    return {queue: each[depth - 1] for queue, each in priorities.items() if len(each) >= depth}


def reserve_start(session: Session, plan: ReservationPlan, unit: QueuedUnit) -> None:
    """Reserve a start for an unschedulable unit, if it is eligible and a start exists."""
    demand, fit_error = session.unschedulable[unit.key]
    priority = session.unit_priority(unit)
    if plan.get(unit.key) is not None:
        plan.follow(unit.key, queue_of(session, unit), priority)
        parts = requested_parts(session, plan, unit) if demand.for_room else ()
        if not parts or not plan.revise(unit.key, parts, run_limit(unit), session.quota_check):
            plan.failed(unit.key, type(fit_error.facts).__name__)
        return
    if not demand.for_room or plan.hopeless(unit.key, demand, priority) or not entitled(session, plan, unit):
        return
    queue, depth = queue_of(session, unit), plan.settings.depth
    if len(plan) >= MOST_RESERVATIONS or (depth and plan.count(queue, priority) >= depth):
        return
    wait = created_of(unit) + plan.settings.min_age - session.now
    if plan.settings.min_age and wait > 0 and not _permitted(session, unit):
        session.queue.recheck_at(unit, session.now + wait)
        return
    parts = requested_parts(session, plan, unit)
    if parts:
        made = plan.reserve(
            unit.key, unit.name, queue, priority, parts, run_limit(unit), session.quota_check, demand
        )
        unit.reserved = made is not None
        if (
            made is not None
            and made.start > session.now
            and depth
            and plan.count(queue, priority) >= depth
            and not any_queue_keeps_order(session)
        ):
            # No further unit of the queue gets a start, none is behind this one, and it is not due yet.
            plan.note_silent_change()


def entitled(session: Session, plan: ReservationPlan, unit: QueuedUnit) -> bool:
    """Return whether the policy reserves starts for such a unit, apart from its age."""
    if not plan.settings.reserves_starts or any(map(_inside, classes_of(unit))):
        return False
    policies = session.plugin_runtime.policy.queues
    if policies and not all(
        reserves_starts(policies, session.charge_path(member).queue) for member in unit.members
    ):
        return False
    if not unit.starts_planned or (unit.pod is not None and unit.pod.pod_class.spec.best_effort):
        return False
    needs = [session.requirement(gang) for gang in unit.required]
    if any(need.repair or need.satisfied for need in needs):
        return False
    # The end of such a wait is unknown.
    if start_obstacle(session, unit):
        return False
    if session.plugin_runtime.plugins("reserve_start") and (vote := start_vote(session, unit)) is not Vote.ABSTAIN:
        return vote is Vote.PERMIT
    return session.unit_priority(unit) >= plan.settings.min_priority


def _permitted(session: Session, unit: QueuedUnit) -> bool:
    """Return whether a plugin permits a start reservation at any age of the unit."""
    return bool(session.plugin_runtime.plugins("reserve_start")) and start_vote(session, unit) is Vote.PERMIT


def _inside(pod_class: ClassRecord) -> bool:
    """Return whether pods of the class can start in their advance reservation only."""
    use = pod_class.spec.reservation
    return use is not None and (use.inside or bool(use.fault))
