"""`allocate`: gangs onto nodes, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.actions.enqueue import admit_unit
from phalanx.scheduling.actions.preempt import preempt_for
from phalanx.scheduling.ordering.borrowing import Borrowing, Entry
from phalanx.scheduling.ordering.failures import try_each, walk_in_order
from phalanx.scheduling.ordering.fifo import FifoQueues
from phalanx.scheduling.ordering.queue_order import QueueOrder
from phalanx.scheduling.ordering.surplus import SurplusTurn, SurplusTurns
from phalanx.scheduling.queue.demands import PodDemand
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import StartReservations, plan_of
from phalanx.scheduling.units.pod import take_pods_turn
from phalanx.scheduling.units.turn import take_turn


def allocate(session: Session) -> None:
    """Gives the units their turns: quorums, and after those of a band its surplus.

    A unit that does not fit holds nothing and does not block those behind it, unless its queue keeps its order.
    Zero-request pods without a gang are left to `backfill`, except in queues that keep their order.
    """
    fifo = FifoQueues(session)
    in_order = session.state.ledger.keeps_order and "backfill" in session.plugin_runtime.policy.actions
    walk(
        session,
        [unit for unit in session.units if not is_best_effort(unit) or (in_order and fifo.keeps_order(unit))],
    )


def left_to_backfill(session: Session, plan: ReservationPlan, units: list[QueuedUnit]) -> bool:
    """Return whether `backfill` places the units.

    It does where a start is reserved for a unit that must wait: those behind it go by how long they run.
    """
    if session.backfilling or not plan.settings.shortest_first or not plan.active:
        return False
    return not any(unit.reserved for unit in units)


def walk(session: Session, units: list[QueuedUnit]) -> None:
    """What would be lent comes last, and only after others have been told to leave for what is within its own."""
    walk, entries = _Walk(session), list[Entry](units)
    while entries and session.plan.complete:
        walk.turns = [entry for entry in entries if isinstance(entry, SurplusTurn)]
        walk_in_order(session, [entry for entry in entries if isinstance(entry, QueuedUnit)], walk.along)
        entries = walk.later() if session.plan.complete else []
        if entries and session.plugin_runtime.policy.eviction.reclaim:
            preempt_for(session, units)


class _Walk:
    """The turns of one walk, in rounds; `turns` are those of surplus that a round begins with."""

    def __init__(self, session: Session) -> None:
        self._session, self._plan = session, plan_of(session)
        # Only where a plugin votes on backfill.
        self._starts = session.feature(StartReservations) if session.plugin_runtime.plugins("backfill") else None
        self._surpluses, self._lanes = SurplusTurns(session), FifoQueues(session)
        self._known_borrowing: Borrowing | None = None
        self.turns: list[SurplusTurn] = []

    def along(self, line: QueueOrder) -> Callable[[list[QueuedUnit] | SurplusTurn], None]:
        """Begins a round, or begins it anew where putting it in order has failed."""
        self._line = line
        if self._known_borrowing is None:
            self._known_borrowing = Borrowing(self._session, line.charge_paths)
        self._known_borrowing.begin()
        for turn in self.turns:
            if turn.members:
                line.add_turn(turn)
        session = self._session
        if self._plan is None and not self._known_borrowing.active and not session.state.ledger.keeps_order:
            line.room = self._certain_room
        return self._take

    def _certain_room(self, unit: QueuedUnit) -> int:
        """No limit keeps the pod away, and each pod that is placed before it fills one node for it at most."""
        session, record = self._session, unit.pod
        assert record is not None
        if session.quota_check.room(record.charge_path, record.footprint) < UNLIMITED:
            return 0
        return session.placer.certain_rows(record.pod_class)

    def later(self) -> list[Entry]:
        return self._known_borrowing.next_round() if self._known_borrowing is not None else []

    def _take(self, turn: list[QueuedUnit] | SurplusTurn) -> None:
        if isinstance(turn, SurplusTurn):
            try_each(self._session, [turn.unit], lambda: self._take_surplus(turn))
            return
        open_units = [unit for unit in turn if not self._lanes.blocked(unit)]
        if not open_units:
            return
        plan = self._plan
        if (
            plan is not None
            and left_to_backfill(self._session, plan, open_units)
            and not self._lanes.keeps_order(open_units[0])
        ):
            return
        if self._starts is not None and not (
            open_units := self._starts.permitted_backfills(self._session, open_units)
        ):
            return
        first = open_units[0]
        if first.pod is None:
            try_each(self._session, open_units, lambda: self._take_gangs(first))
            if self._session.plan.complete and first not in self._borrowing:
                self._lanes.passed(open_units)
        else:
            self._take_pods(open_units, first.pod)

    @property
    def _borrowing(self) -> Borrowing:
        assert self._known_borrowing is not None
        return self._known_borrowing

    def _take_surplus(self, turn: SurplusTurn) -> None:
        while turn.members:
            head = turn.members[0]
            most = UNLIMITED
            if head.nomination is None:
                most = self._borrowing.within(turn, head.charge_path, head.footprint.amounts, UNLIMITED)
            if not most and head.charge_path is not None and _has_room(self._session, head):
                self._borrowing.postpone([turn], {head.charge_path: head.footprint.amounts})
                return
            session = self._session
            with session.state.nodes.maintenance.surplus_turn(), session.features.turn(session, [turn.unit]):
                self._surpluses.take(turn, most if most and self._line.single else 1)
            if turn.members and (not turn.together or self._session.out_of_time()):
                self._line.add_turn(turn)
                return

    def _take_gangs(self, unit: QueuedUnit) -> None:
        if unit.key in self._session.postponed_admissions:
            self._session.postponed_admissions.discard(unit.key)
            self._session.forget_totals()
            admit_unit(self._session, unit)
        if place_unit(self._session, unit, self._borrowing):
            for further in self._surpluses.of(unit):
                if further.together:
                    self._take_surplus(further)
                else:
                    self._line.add_turn(further)

    def _take_pods(self, units: list[QueuedUnit], first: PodRecord) -> None:
        """Pods of one kind all at once; if that raises one by one, so that it is known for whose sake."""
        session = self._session
        marks = session.decisions.begin_turn()
        try:
            self._place_pods(units, first)
        except Exception:
            session.decisions.undo_turn(marks)
            for unit in units:
                if unit.pod is not None and unit.pod.state is MemberState.ASSUMED:
                    session.mark_attempted(unit)  # it was bound before another one failed
                if unit.key not in session.attempted and unit.pod is not None:
                    try_each(session, [unit], partial(self._place_pods, [unit], unit.pod))

    def _place_pods(self, units: list[QueuedUnit], first: PodRecord) -> None:
        """Those that would be lent what they ask for are put off."""
        session, kind = self._session, PodDemand(first.pod_class, first.charge_path)
        while units and session.plan.complete:
            count = len(units)
            free = self._borrowing.active and first.nomination is None and not first.pod.problem
            if free and session.fit_errors.known(kind) is None:
                count = self._borrowing.within(units[0], first.charge_path, first.footprint.amounts, count)
                if not count and first.charge_path is not None and _has_room(session, first):
                    self._borrowing.postpone(units, {first.charge_path: first.footprint.amounts})
                    return
                count = count or len(units)
            place_alone(session, units[:count], kind)
            if session.plan.complete:
                self._lanes.passed(units[:count])
            units = units[count:]


def _has_room(session: Session, record: PodRecord) -> bool:
    """Whether the pod could be placed now."""
    if session.blocked(record) is not None or not session.quota_check.room(record.charge_path, record.footprint):
        return False
    return bool(session.placer.place(record.pod_class, 1))


def is_best_effort(unit: QueuedUnit) -> bool:
    record = unit.pod
    return record is not None and not record.pod.problem and record.pod_class.spec.best_effort


def place_alone(session: Session, units: list[QueuedUnit], kind: PodDemand) -> None:
    """Places pods of one kind that belong to no gang, one after the other in one step; what fits is bound."""
    features = session.features
    with features.turn(session, units) as turn:
        take_pods_turn(session, units, kind, turn.opened)
        if units[0].reserved and units[0].key not in session.unschedulable:
            turn.placed = units[0]
    features.refused(session, units)


def place_unit(session: Session, unit: QueuedUnit, loans: Borrowing) -> bool:
    """Places the quorum of every gang of a gang group in one transaction, or nothing. True if all quorums hold."""
    with session.features.turn(session, [unit]) as turn:
        placed = take_turn(session, unit, loans, turn.opened)
        if placed:
            turn.placed = unit
    if not placed:
        session.features.refused(session, [unit])
    return placed
