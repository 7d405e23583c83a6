"""Queues that keep their order: while the first waiting unit lacks nodes or quota, no unit behind it starts."""

from __future__ import annotations

from phalanx.cluster.account_objects import account_objects
from phalanx.cluster.accounts import AccountRecord
from phalanx.model.account import AccountKey
from phalanx.model.verdict import NamedObject, gang_object
from phalanx.scheduling.framework.queue_policies import any_order, keeps_order
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.queue.demands import FifoBlocked
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import Rank, UnitKey
from phalanx.scheduling.refusals.refusal import BlockedByFifo, pod_object
from phalanx.scheduling.session.session import Session


class FifoQueues:
    """The queues whose units keep their order during one walk: by `dequeueStrategy: fifo`, or by the policy.

    A unit that waits for neither nodes nor quota (members or claims are missing, its queue is closed) holds up no
    other unit, and a nominated unit is held up by no unit.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._any = any_queue_keeps_order(session)
        self._undecided: dict[AccountKey, Rank] | None = None

    def blocked(self, unit: QueuedUnit) -> bool:
        """Return whether the unit must wait for one before it; set its verdict if so."""
        queue = self._queue(unit)
        head = self._head_before(queue, unit)
        if queue is None or head is None:
            return False
        demand = FifoBlocked(queue.key)
        self._session.refuse(unit, demand, self._session.fit_errors.record(demand, head))
        self._session.mark_attempted(unit)
        return True

    def is_behind(self, unit: QueuedUnit) -> bool:
        """Return whether another unit of the queue blocks the unit; its verdict is unchanged."""
        return self._head_before(self._queue(unit), unit) is not None

    def _head_before(self, queue: AccountRecord | None, unit: QueuedUnit) -> BlockedByFifo | None:
        """Return the head that holds up the unit in its queue; None if there is none."""
        if queue is None or nominated_members(unit):
            return None
        head = self._session.queue.fifo_head(queue.key, self._session.unschedulable, unit.key)
        return None if head is None or unit.rank < head[0] else head[1]

    def postpones_admission(self, unit: QueuedUnit) -> bool:
        """Return whether a unit before this one has its turn later in this cycle: it may hold up the queue then."""
        queue = self._queue(unit)
        if queue is None:
            return False
        if self._undecided is None:
            self._undecided = self._first_undecided()
        first = self._undecided.get(queue.key)
        return first is not None and first < unit.rank

    def keeps_order(self, unit: QueuedUnit) -> bool:
        """Return whether the unit is in a queue that keeps its order."""
        return self._queue(unit) is not None

    def passed(self, units: list[QueuedUnit]) -> None:
        """Record the turns of units: one that lacks nodes or quota holds up the rest, no other one does."""
        for unit in units if self._any else ():
            queue, waits = self._queue(unit), self._session.unschedulable.get(unit.key)
            if queue is not None and waits is not None and waits[0].holds_the_line(self._session):
                head = (unit.rank, BlockedByFifo(queue.label, unit.name, _named(queue, unit)))
                self._session.queue.set_fifo_head(queue.key, unit.key, head)
                continue
            self._session.queue.remove_fifo_head(unit.key)
            if queue is not None and waits is None:
                self._session.queue.activate_all_of(FifoBlocked(queue.key))

    def _first_undecided(self) -> dict[AccountKey, Rank]:
        """Return the rank of the first unit of each queue that is to be placed in this cycle."""
        found: dict[AccountKey, Rank] = {}
        for unit in self._session.units:
            if unit.key in self._session.attempted or any(map(awaits_admission, unit.gangs)):
                continue
            queue = self._queue(unit)
            if queue is not None:
                found[queue.key] = min(found.get(queue.key, unit.rank), unit.rank)
        return found

    def _queue(self, unit: QueuedUnit) -> AccountRecord | None:
        queue = self._session.charge_path(unit.members[0]).queue if self._any and unit.members else None
        policies = self._session.plugin_runtime.policy.queues
        return queue if queue is not None and keeps_order(policies, queue) else None


def any_queue_keeps_order(session: Session) -> bool:
    """Return whether the units of some queue keep their order; cheap."""
    return session.state.ledger.keeps_order or any_order(session.plugin_runtime.policy.queues)


def unready_heads(session: Session) -> list[UnitKey]:
    """Return the heads that have ceased to wait for nodes or quota: a reservation that they need has ended."""
    waiting = ((key, session.queue.demand_of(key)) for key in session.queue.heads)
    return [key for key, demand in waiting if demand is not None and not demand.holds_the_line(session)]


def _named(queue: AccountRecord, unit: QueuedUnit) -> tuple[NamedObject, ...]:
    """Return the objects that the name of a queue and of the unit at its head are about."""
    head = pod_object(unit.pod) if unit.pod is not None else gang_object(unit.gangs[0].key)
    return (*account_objects(queue), head)
