"""Units that are proved not to fit on the present nodes: no admission and no share counts what they request."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.pod import MemberState
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.ordering.failures import ask_plugins
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.unplaceable import is_unplaceable
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session

#: Demands for which the result of the proof is stored.
_MOST_PROOFS = 10_000
#: Demands that a cycle examines after a change of nodes or accounts, beside the marked ones.
_MOST_EXAMINED = 32


class UnplaceableUnits(CyclePlugin):
    """Marks the pods of waiting units that could not run even on empty nodes, and their groups.

    The proof is made once per demand, at its first refusal, before the evictions of that cycle. When nodes or
    accounts change, the marked demands are examined again before any decision of that cycle, and the others in this
    and the next cycles.
    """

    name = "unplaceable-units"

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._state = state
        self._queue = queue
        self._proofs: dict[WaitReason, bool] = {}
        self._version: object = None
        # Demands that wait since before the last change of nodes, accounts or policy; their units, where the queue
        # does not know these any more.
        self._unexamined: list[tuple[WaitReason, Iterable[UnitKey] | None]] = []
        # The marked units of each demand.
        self._units: dict[WaitReason, dict[UnitKey, None]] = {}
        self._demands: dict[UnitKey, WaitReason] = {}
        self._purge_at = _MOST_PROOFS
        # Number of the last cycle with a search for victims.
        self._searched_in = 0

    def configure(self, policy: Policy) -> None:
        self._version = None
        # A new policy wakes all units, but what is proved of them does not wait for their next refusal.
        self._unexamined = [(demand, self._queue.units_with(demand)) for demand in self._queue.waiting_demands()]

    def outdated(self) -> bool:
        return bool(self._unexamined)

    def wake(self, session: Session) -> Iterable[UnitKey]:
        """Examine demands after a change. Return the units that are not unplaceable any more."""
        state, fit_again = self._state, list[UnitKey]()
        version = (state.topology.version, state.ledger.shape_version, session.placer.invalidations)
        if version != self._version:
            self._version = version
            self._proofs.clear()
            for demand in list(self._units):
                if not self._is_unplaceable(session, demand):
                    fit_again += self._units[demand]
            for key in fit_again:
                self._unmark(key)
            waiting = self._queue.waiting_demands()
            self._unexamined = [(demand, None) for demand in waiting] if waiting else self._unexamined
        marked = False
        for _ in range(min(_MOST_EXAMINED, len(self._unexamined))):
            demand, units = self._unexamined.pop()
            if demand not in self._proofs and _is_provable(demand) and self._is_unplaceable(session, demand):
                for key in units if units is not None else self._queue.units_with(demand):
                    marked |= self._mark(key, demand)
        if marked:
            state.room_opened()
        if marked or fit_again:
            # The proofs have read limits, and limits that follow from requests have changed since.
            session.quota_check.forget_limits()
        return fit_again

    def guard_search(self, session: Session, unit: QueuedUnit) -> None:
        """Mark the units that this cycle has refused, before its first search for victims.

        Otherwise the first evictions of a process would rest on shares that count these units.
        """
        if self._searched_in != session.plan.cycle:
            self._searched_in = session.plan.cycle
            self._examine(session, session.unschedulable)

    def revise(self, session: Session) -> None:
        self._examine(session, session.unschedulable)
        for unit in session.units if self._demands else ():
            if unit.key in self._demands and unit.key not in session.unschedulable:
                self._unmark(unit.key)  # it is placed, or waits for a change of its own

    def _examine(self, session: Session, keys: Iterable[UnitKey]) -> None:
        """Mark the unschedulable units with these keys that are proved to be unplaceable, and unmark the others."""
        proofs, marked = self._proofs, False
        for key in keys:
            demand, _ = session.unschedulable[key]
            if demand in proofs:
                unplaceable = proofs[demand]
            elif _is_provable(demand):
                unplaceable = self._is_unplaceable(session, demand)
            else:
                continue
            if unplaceable:
                marked |= self._mark(key, demand)
            elif key in self._demands:
                self._unmark(key)
        if marked:
            self._state.room_opened()

    def _is_unplaceable(self, session: Session, demand: WaitReason) -> bool:
        if len(self._proofs) >= _MOST_PROOFS:
            self._proofs.clear()
        parts = demand.separate_parts
        if parts:
            proofs = [self._is_unplaceable(session, part) for part in parts]
            proved = any(proofs)
        else:
            # The eligible nodes are computed by plugins, which can fail.
            proved = ask_plugins(session, "a proof", partial(is_unplaceable, session, demand), False)
        self._proofs[demand] = proved
        return proved

    def _mark(self, key: UnitKey, demand: WaitReason) -> bool:
        """Mark the pods of a unit that the demand contains. Return whether any was not marked before."""
        if self._demands.get(key, demand) != demand:
            self._unmark(key)
        self._demands[key] = demand
        self._units.setdefault(demand, {})[key] = None
        if len(self._demands) > self._purge_at:
            self._purge()
        pods = [pod for pod in self._pods(key) if pod.state is MemberState.PENDING]
        parts = demand.separate_parts
        if parts:
            kinds = {kind for part in parts if self._proofs.get(part) for kind in _kinds(part)}
            pods = [pod for pod in pods if (pod.pod_class, pod.charge_path) in kinds]
        elif not isinstance(key, str):
            for gang in key:
                self._state.gangs.inqueue.set_unplaceable(gang, True)
        changed = [pod for pod in pods if not pod.unplaceable]
        self._set(changed, True)
        return bool(changed)

    def _unmark(self, key: UnitKey) -> None:
        demand = self._demands.pop(key)
        units = self._units[demand]
        del units[key]
        if not units:
            del self._units[demand]
        for gang in () if isinstance(key, str) else key:
            self._state.gangs.inqueue.set_unplaceable(gang, False)
        self._set([pod for pod in self._pods(key) if pod.unplaceable], False)

    def _purge(self) -> None:
        """Forget units that do not exist any more."""
        for key in [key for key in self._demands if not self._pods(key)]:
            self._unmark(key)
        self._purge_at = max(_MOST_PROOFS, 2 * len(self._demands))

    def _set(self, pods: Iterable[PodRecord], unplaceable: bool) -> None:
        for pod in pods:
            pod.unplaceable = unplaceable
            self._state.ledger.book(pod)
            if pod.gang is not None:
                self._state.gangs.inqueue.stale.add(pod.gang.key)

    def _pods(self, key: UnitKey) -> list[PodRecord]:
        if isinstance(key, str):
            record = self._state.pods.get(key)
            return [record] if record is not None else []
        records = [self._state.gangs[gang] for gang in key if gang in self._state.gangs]
        return [member for record in records for member in record.members.values()]


def _is_provable(demand: WaitReason) -> bool:
    return bool(demand.quorums or demand.separate_parts)


def _kinds(part: WaitReason) -> Iterable[tuple[ClassRecord, ChargePath | None]]:
    return ((pods.pod_class, pods.charge_path) for quorum in part.quorums for pods in quorum.members)
