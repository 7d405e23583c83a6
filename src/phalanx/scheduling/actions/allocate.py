"""Action `allocate`: places gangs on nodes, as a whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.actions.enqueue import admit_unit
from phalanx.scheduling.actions.preempt import preempt_for
from phalanx.scheduling.ordering.borrowing import Borrowing, Entry
from phalanx.scheduling.ordering.failures import try_each, walk_in_order
from phalanx.scheduling.ordering.fifo import FifoQueues, any_queue_keeps_order
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
    """Give the units their turns: the quorums of a band, then its surplus.

    A unit that does not fit reserves nothing. It blocks the units behind it only in a fifo queue. `backfill` places
    pods without a gang and without requests, except in fifo queues.
    """
    if not session.units:
        return
    fifo = FifoQueues(session)
    in_order = any_queue_keeps_order(session) and "backfill" in session.plugin_runtime.policy.actions
    walk(
        session,
        [unit for unit in session.units if not is_best_effort(unit) or (in_order and fifo.keeps_order(unit))],
    )


def left_to_backfill(session: Session, plan: ReservationPlan, units: list[QueuedUnit]) -> bool:
    """Return whether `backfill` places the units.

    It does behind a unit with a start reservation that must wait, because backfill orders by run time.
    """
    if session.backfilling or not plan.settings.shortest_first or not plan.active:
        return False
    return not any(unit.reserved for unit in units)


def walk(session: Session, units: list[QueuedUnit]) -> None:
    """Give the units their turns; borrowing units come last, after reclaim for units within their quota."""
    if not units:
        return
    walk, entries = _Walk(session), list[Entry](units)
    while entries and session.plan.complete:
        walk.turns = [entry for entry in entries if isinstance(entry, SurplusTurn)]
        walk_in_order(session, [entry for entry in entries if isinstance(entry, QueuedUnit)], walk.begin_round)
        entries = walk.next_entries() if session.plan.complete else []
        if entries and session.plugin_runtime.policy.eviction.reclaim:
            preempt_for(session, units)


class _Walk:
    """Turns of one walk, in rounds; `turns` are the surplus turns at the start of a round."""

    def __init__(self, session: Session) -> None:
        self._session, self._plan = session, plan_of(session)
        # None unless a plugin votes on backfill.
        self._starts = session.feature(StartReservations) if session.plugin_runtime.plugins("backfill") else None
        self._surpluses, self._lanes = SurplusTurns(session), FifoQueues(session)
        self._known_borrowing: Borrowing | None = None
        self.turns: list[SurplusTurn] = []

    def begin_round(self, line: QueueOrder) -> Callable[[list[QueuedUnit] | SurplusTurn], None]:
        """Begin a round, or restart it after a failure of the order. Return the function that handles a turn."""
        self._line = line
        if self._known_borrowing is None:
            self._known_borrowing = Borrowing(self._session, line.charge_paths)
        self._known_borrowing.begin()
        for turn in self.turns:
            if turn.members:
                line.add_turn(turn)
        session = self._session
        if self._plan is None and not self._known_borrowing.active and not any_queue_keeps_order(session):
            line.room = partial(_certain_room, session)
        return self._handle_turn

    def next_entries(self) -> list[Entry]:
        return self._known_borrowing.next_round() if self._known_borrowing is not None else []

    def _handle_turn(self, turn: list[QueuedUnit] | SurplusTurn) -> None:
        if isinstance(turn, SurplusTurn):
            try_each(self._session, [turn.unit], lambda: self._place_surplus(turn))
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
            try_each(self._session, open_units, lambda: self._place_gang_group(first))
            if self._session.plan.complete and first not in self._borrowing:
                self._lanes.passed(open_units)
        else:
            self._place_equal_pods(open_units, first.pod)

    @property
    def _borrowing(self) -> Borrowing:
        assert self._known_borrowing is not None
        return self._known_borrowing

    def _place_surplus(self, turn: SurplusTurn) -> None:
        while turn.members:
            head = turn.members[0]
            limit = UNLIMITED
            if head.nomination is None:
                limit = self._borrowing.within(turn, head.charge_path, head.footprint.amounts, UNLIMITED)
            if not limit and head.charge_path is not None and _has_room(self._session, head):
                self._borrowing.postpone([turn], {head.charge_path: head.footprint.amounts})
                return
            session = self._session
            with session.state.nodes.maintenance.surplus_turn(), session.features.turn(session, [turn.unit]):
                self._surpluses.take(turn, limit if limit and self._line.single else 1)
            if turn.members and (not turn.together or self._session.out_of_time()):
                self._line.add_turn(turn)
                return

    def _place_gang_group(self, unit: QueuedUnit) -> None:
        if unit.key in self._session.postponed_admissions:
            if self._borrowing.active and self._borrowing.follows(unit):
                self._borrowing.postpone_behind([unit])
                return
            self._session.postponed_admissions.discard(unit.key)
            self._session.forget_totals()
            admit_unit(self._session, unit)
        if place_unit(self._session, unit, self._borrowing):
            for further in self._surpluses.of(unit):
                if further.together:
                    self._place_surplus(further)
                else:
                    self._line.add_turn(further)

    def _place_equal_pods(self, units: list[QueuedUnit], first: PodRecord) -> None:
        """Place pods of one kind at once; if that raises, one by one, so that the failure is reported for the right
        pod.
        """
        session = self._session
        marks = session.decisions.begin_turn()
        try:
            self._place_pods(units, first)
        except Exception:
            session.decisions.undo_turn(marks)
            for unit in units:
                if unit.pod is not None and unit.pod.state is MemberState.ASSUMED:
                    session.mark_attempted(unit)  # it was bound before another pod failed
                if unit.key not in session.attempted and unit.pod is not None:
                    try_each(session, [unit], partial(self._place_pods, [unit], unit.pod))

    def _place_pods(self, units: list[QueuedUnit], first: PodRecord) -> None:
        """Place pods of one kind; postpone the ones that would borrow."""
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
            if free and self._borrowing.follows(units[0]):
                self._borrowing.postpone_behind(units)
                return
            place_alone(session, units[:count], kind)
            if session.plan.complete:
                self._lanes.passed(units[:count])
            units = units[count:]


def _certain_room(session: Session, units: list[QueuedUnit], wanted: int) -> list[int]:
    """Return for each unit the number of pods like these that certainly leave room for it, 0 where a quota limits
    the pod; larger numbers than `wanted` need not be exact.
    """
    records = [unit.pod for unit in units if unit.pod is not None]
    free = [session.quota_check.room(record.charge_path, record.footprint) >= UNLIMITED for record in records]
    counts = session.placer.certain_counts([record.pod_class for record in records], wanted)
    return [count if unlimited else 0 for count, unlimited in zip(counts, free, strict=True)]


def _has_room(session: Session, record: PodRecord) -> bool:
    """Return whether the pod could be placed now."""
    if session.blocked(record) is not None or not session.quota_check.room(record.charge_path, record.footprint):
        return False
    return bool(session.placer.place(record.pod_class, 1))


def is_best_effort(unit: QueuedUnit) -> bool:
    record = unit.pod
    return record is not None and not record.pod.problem and record.pod_class.spec.best_effort


def place_alone(session: Session, units: list[QueuedUnit], kind: PodDemand) -> None:
    """Place single pods of one kind in their order in one step; bind the ones that fit."""
    features = session.features
    with features.turn(session, units) as turn:
        take_pods_turn(session, units, kind, turn.opened)
        if units[0].reserved and units[0].key not in session.unschedulable:
            turn.placed = units[0]
    features.refused(session, units)


def place_unit(session: Session, unit: QueuedUnit, borrowing: Borrowing) -> bool:
    """Place the quorum of every gang of a gang group in one transaction, or nothing.

    Return whether all quorums are reached.
    """
    with session.features.turn(session, [unit]) as turn:
        placed = take_turn(session, unit, borrowing, turn.opened)
        if placed:
            turn.placed = unit
    if not placed:
        session.features.refused(session, [unit])
    return placed
