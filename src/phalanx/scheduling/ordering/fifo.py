"""Queues that keep their order: while the first that waits has no room, nobody behind it starts."""

from __future__ import annotations

from phalanx.cluster.account_objects import account_objects
from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey
from phalanx.model.verdict import NamedObject, gang_object
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.queue.demands import FifoBlocked
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import Rank
from phalanx.scheduling.refusals.refusal import BlockedByFifo, pod_object
from phalanx.scheduling.session.session import Session


class FifoQueues:
    """Which of the queues with `dequeueStrategy: fifo` are held up in this walk, and by whom.

    A unit that cannot start whatever room there is (members are missing, its queue is closed) holds up nobody, and
    one for which others were told to leave when it was its turn is held up by nobody who came since.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._any = session.state.ledger.keeps_order
        self._heads: dict[AccountKey, tuple[Rank, BlockedByFifo] | None] = {}

    def blocked(self, unit: QueuedUnit) -> bool:
        """Whether the unit must wait for another one; says so."""
        queue = self._queue(unit)
        if queue is None or nominated_members(unit):
            return False
        if queue.key not in self._heads:
            self._heads[queue.key] = self._session.queue.fifo_head(queue.key)
        head = self._heads[queue.key]
        if head is None or unit.rank < head[0]:
            return False
        demand = FifoBlocked(queue.key)
        self._session.refuse(unit, demand, self._session.fit_errors.record(demand, head[1]))
        self._session.mark_attempted(unit)
        return True

    def passed(self, units: list[QueuedUnit]) -> None:
        """The units had their turn: whoever has no room holds up the rest, whoever has got it lets the next go."""
        for unit in units if self._any else ():
            queue = self._queue(unit)
            if queue is None:
                continue
            waits = self._session.unschedulable.get(unit.key)
            if waits is None:
                self._session.queue.activate_all_of(FifoBlocked(queue.key))
            elif waits[0].holds_the_line:
                head = (unit.rank, BlockedByFifo(queue.label, unit.name, _named(queue, unit)))
                self._session.queue.set_fifo_head(queue.key, unit, *head)
                known = self._heads.get(queue.key)
                self._heads[queue.key] = min(known, head, key=lambda each: each[0]) if known is not None else head

    def _queue(self, unit: QueuedUnit) -> AccountRecord | None:
        queue = self._session.charge_path(unit.members[0]).queue if self._any and unit.members else None
        return queue if queue is not None and queue.spec is not None and queue.spec.fifo else None


def _named(queue: AccountRecord, unit: QueuedUnit) -> tuple[NamedObject, ...]:
    """Return the objects that the name of a queue and of the unit at its head are about."""
    head = pod_object(unit.pod) if unit.pod is not None else gang_object(unit.gangs[0].key)
    return (*account_objects(queue), head)
