"""Turns of units above the deserved share of their queue."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.model.gang import GangKey
from phalanx.scheduling.ordering.failures import try_each
from phalanx.scheduling.ordering.fifo import FifoQueues
from phalanx.scheduling.ordering.queue_order import QueueOrder
from phalanx.scheduling.ordering.surplus import SurplusTurn, SurplusTurns
from phalanx.scheduling.queue.demands import FifoBlocked, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.refusals import refusal_now
from phalanx.scheduling.units.unit import GangsUnit


def gangs_or_uid(key: UnitKey) -> set[GangKey | str]:
    """Return the gangs of a unit, or the uid of its pod."""
    return {key} if isinstance(key, str) else set(key)


class BorrowerTurns:
    """Turns of one walk without the limits that lend. A unit that does not fit keeps its wait reason and verdict.

    `may_borrow` is called for each gang group, with whether it fits. No unit borrows in an account in which others
    are `expected` to start: the account would exceed its share then.
    """

    def __init__(
        self,
        session: Session,
        may_borrow: Callable[[Session, QueuedUnit, bool], bool],
        expected: Mapping[AccountRecord, set[GangKey | str]],
    ) -> None:
        self._session = session
        self._may_borrow = may_borrow
        self._expected = expected
        self._surpluses = SurplusTurns(session)
        self._lanes = FifoQueues(session)
        self._failed: set[WaitReason] = set()

    def begin(self, line: QueueOrder) -> Callable[[list[QueuedUnit] | SurplusTurn], None]:
        self._line = line
        return self._handle_turn

    def _handle_turn(self, turn: list[QueuedUnit] | SurplusTurn) -> None:
        session = self._session
        if isinstance(turn, SurplusTurn):
            try_each(session, [turn.unit], partial(self._place_surplus, turn))
            return
        first = turn[0]
        demand, _ = session.unschedulable[first.key]
        if demand in self._failed or self._lanes.is_behind(first) or self._delays_others(first):
            return
        if first.pod is not None:
            try_each(session, turn, partial(self._place_pods, turn, demand))
        elif demand.for_surplus:
            self._add_surplus(first)
        else:
            try_each(session, [first], partial(self._place_gangs, first, demand))

    def _place_pods(self, units: list[QueuedUnit], demand: WaitReason) -> None:
        """Place equal pods on their own in their order."""
        session, record = self._session, units[0].pod
        assert record is not None
        if session.blocked(record) is not None:
            return
        with session.features.turn(session, units) as turn, session.quota_check.lending():
            allowed = session.quota_check.room(record.charge_path, record.footprint)
            rows = session.placer.place(record.pod_class, min(len(units), allowed)) if allowed else []
            if not rows:
                self._failed.add(demand)
                return
            placed = list(zip([unit.pod for unit in units if unit.pod is not None], rows, strict=False))
            transaction = session.state.transaction(charging=False)
            transaction.place(record.pod_class, [pod for pod, _ in placed], rows)
            transaction.commit()
            session.decisions.bind_all(placed, None, None)
            if units[0].reserved:
                turn.placed = units[0]
        for unit in units[: len(rows)]:
            self._end_wait(unit)

    def _place_gangs(self, unit: QueuedUnit, demand: WaitReason) -> None:
        """Place the quorums of a gang group or composite; then its surplus has its turns."""
        session = self._session
        assert isinstance(unit, GangsUnit)
        attempt = unit.attempt(session)
        if attempt is None or not attempt.asks or attempt.nominated:
            return
        with session.features.turn(session, [unit]) as turn, session.quota_check.lending():
            with session.fit_errors.apart():
                transaction = session.state.transaction()
                fits = attempt.place(transaction) is None and transaction.placed > 0
            if not self._may_borrow(session, unit, fits):
                transaction.rollback()
                if not fits and len(demand.quorums) == 1:
                    self._failed.add(demand)
                return
            transaction.commit()
            self._end_wait(unit)
            attempt.accept()
            turn.placed = unit
        self._add_surplus(unit)

    def _add_surplus(self, unit: QueuedUnit) -> None:
        turns, waits = self._surpluses.of(unit), self._session.unschedulable.get(unit.key)
        if turns and waits is not None and waits[0].for_surplus:
            del self._session.unschedulable[unit.key]  # the end of its turns decides
        for turn in turns:
            self._line.add_turn(turn)

    def _place_surplus(self, turn: SurplusTurn) -> None:
        """Place the next surplus member of a gang."""
        session, unit = self._session, turn.unit
        with session.features.turn(session, [unit]), session.quota_check.lending(), session.fit_errors.apart():
            self._surpluses.take(turn, 1)
        if turn.members:
            self._line.add_turn(turn)
            return
        waits = session.unschedulable.get(unit.key)
        fit_error = refusal_now(session, unit, waits[0]) if waits is not None and waits[0].for_surplus else None
        if waits is not None and fit_error is not None:
            # The verdict names the limits that hold for units within their share.
            session.refuse(unit, waits[0], fit_error)

    def _end_wait(self, unit: QueuedUnit) -> None:
        session = self._session
        session.unschedulable.pop(unit.key, None)
        session.mark_attempted(unit)
        self._lanes.passed([unit])
        if self._lanes.keeps_order(unit):
            self._requeue_behind(unit)

    def _requeue_behind(self, head: QueuedUnit) -> None:
        """Give the units that this cycle has refused behind the head of a fifo queue a turn in the next one."""
        session = self._session
        queue = session.charge_path(head.members[0]).queue
        for unit in session.units if queue is not None else ():
            waits = session.unschedulable.get(unit.key)
            if queue is not None and waits is not None and waits[0] == FifoBlocked(queue.key):
                del session.unschedulable[unit.key]
                session.queue.requeue(unit)

    def _delays_others(self, unit: QueuedUnit) -> bool:
        """Return whether others are expected to start in an account whose share this unit would exceed."""
        return bool(self._expected) and any(
            self._expected.get(account, set()) - gangs_or_uid(unit.key)
            for charge_path in self._charge_paths(unit)
            for account in self._session.quota_check.lending_accounts(charge_path)
        )

    def _charge_paths(self, unit: QueuedUnit) -> Iterable[ChargePath]:
        return [self._session.charge_path(member) for member in unit.members]
