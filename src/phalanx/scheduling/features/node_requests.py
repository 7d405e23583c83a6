"""Requests for nodes: one waiting gang per queue has its pods, so that an autoscaler creates nodes for them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from phalanx.cluster.node_requests import request_uid
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.account import AccountKey, Tree
from phalanx.model.decisions import WithdrawAdmission
from phalanx.model.gang import GangKey
from phalanx.model.node_request import NodeRequest
from phalanx.model.text.moments import shown_moment, shown_span
from phalanx.scheduling.framework.policy import AUTOSCALERS, Policy
from phalanx.scheduling.framework.queue_policies import keeps_order
from phalanx.scheduling.ordering.failures import ask_plugins
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import awaits_admission
from phalanx.scheduling.queue.unschedulable import Rank, UnitKey
from phalanx.scheduling.quota.declared_quota import fits_declared_quota
from phalanx.scheduling.refusals.no_room import NO_ELIGIBLE_NODE, NOT_ENOUGH_RESOURCES
from phalanx.scheduling.refusals.over_quota import QUOTA_EXCEEDED
from phalanx.scheduling.refusals.waiting_for_nodes import waiting_for_nodes
from phalanx.scheduling.session.cycle_plugin import CyclePlugin
from phalanx.scheduling.session.session import Session

#: Seconds after which a request ends if no node came.
WAIT = 900
#: Longest pause before a request is repeated, in seconds; the pause begins with WAIT and doubles.
LONGEST_PAUSE = 4 * 3600
# Seconds after which the failures of a job that requests no nodes any more are forgotten.
_FORGOTTEN_AFTER = 86_400
# Verdicts that more nodes can end.
_LACK_OF_NODES = frozenset({NOT_ENOUGH_RESOURCES, NO_ELIGIBLE_NODE, QUOTA_EXCEEDED})


class NodeRequests(CyclePlugin):
    """Admission of gangs that wait only because nodes are missing, one per queue at a time (`phalanx.autoscaler`).

    Such a gang is admitted in the order of the queue if its minResources fit every declared quota. Its pods exist
    then, are unschedulable, and an autoscaler creates nodes for them. Its amounts count for no other admission. A
    request ends when the gang has its quorum, or WAIT seconds after the last time that more of its members fitted
    than ever before. Then the admission is withdrawn, and the next gang of the queue has its turn; the gang itself
    has another one after a pause, behind gangs with fewer failures.
    """

    name = "node-requests"

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self._state = state
        self._queue = queue
        self._requests = state.gangs.node_requests
        self._autoscaler = AUTOSCALERS[0]
        self._now = 0
        self._examined: object = None

    @property
    def _active(self) -> bool:
        return self._autoscaler != AUTOSCALERS[0]

    def configure(self, policy: Policy) -> None:
        self._autoscaler = policy.autoscaler if "enqueue" in policy.actions else AUTOSCALERS[0]
        self._examined = None

    def next_due(self) -> float | None:
        times = (entry.until for entry in self._requests if entry.until > self._now)
        return min(times, default=None)

    def advance(self, now: int) -> None:
        self._now = now

    def revise(self, session: Session) -> None:
        if not self._active:
            for entry in self._requests:
                self._requests.drop(entry)
            return
        for entry in self._requests:
            self._update(session, entry)
        for entry in self._requests:
            if entry.open and entry.until <= session.now:
                self._end(session, entry.unit)
        self._begin_next(session)

    def note(self, of: GangKey | str) -> str:
        record = self._state.gangs.get(of) if isinstance(of, GangKey) and self._requests else None
        entry = self._requests.of(record) if record is not None else None
        if entry is None or entry.open or record is None or not awaits_admission(record):
            return ""
        when = f" at {shown_moment(entry.until)}," if entry.until > self._now else ""
        return (
            f"{entry.failures} {'request' if entry.failures == 1 else 'requests'} for nodes ended without a node "
            f"after {shown_span(WAIT)}; it requests nodes again{when} behind the next gangs of its queue"
        )

    # open requests

    def _update(self, session: Session, entry: NodeRequest) -> None:
        """Drop a request that is over, and set the verdict of one that lasts."""
        record = self._state.gangs.get(entry.key)
        spec = record.spec if record is not None else None
        if record is None or spec is None or request_uid(record) != entry.uid:
            # A new group of the same job inherits the failures.
            if entry.open or entry.until + _FORGOTTEN_AFTER <= session.now:
                self._requests.drop(entry)
            return
        if record.active >= max(1, spec.min_member):
            self._requests.drop(entry)
        elif not entry.open:
            if record.admitted:
                self._requests.drop(entry)  # it fits now
            elif record.may_create_pods and not record.active:
                self._withdraw(session, record)  # an earlier process ended before it wrote the withdrawal
        elif not record.may_create_pods or spec.suspended:
            self._requests.drop(entry)
        else:
            self._publish(session, entry, record)

    def _publish(self, session: Session, entry: NodeRequest, record: GangRecord) -> None:
        """Name the missing nodes in the verdict of this cycle, and prolong the request if more members fit."""
        verdict = session.decisions.gang_verdict(record.key)
        if verdict is None or not verdict.unschedulable or verdict.code not in _LACK_OF_NODES:
            return
        if verdict.placeable > entry.best:
            entry = msgspec.structs.replace(entry, best=verdict.placeable, until=session.now + WAIT)
            self._requests.put(entry)
        session.decisions.set_gang_verdict(
            record, waiting_for_nodes(record, verdict, self._autoscaler, entry.until)
        )

    def _end(self, session: Session, unit: str) -> None:
        """End the requests of the gangs that start together, and withdraw their admissions."""
        self._examined = None
        for entry in self._requests:
            if not entry.open or entry.unit != unit:
                continue
            failures = entry.failures + 1
            pause = min(LONGEST_PAUSE, WAIT << min(failures - 1, 8))
            self._requests.put(
                msgspec.structs.replace(
                    entry, open=False, best=0, failures=failures, ended=session.now, until=session.now + pause
                )
            )
            record = self._state.gangs.get(entry.key)
            if record is not None and not record.active:
                self._withdraw(session, record)

    def _withdraw(self, session: Session, record: GangRecord) -> None:
        self._state.gangs.withdraw_admission(record.key)
        session.plan.withdrawals.append(WithdrawAdmission(record.key))
        session.decisions.set_gang_verdict(record, session.admission_refusal(record).gang_verdict(record))

    # new requests

    def _begin_next(self, session: Session) -> None:
        """Open a request for the first gang of each queue without one that lacks nothing but nodes."""
        due = [entry.uid for entry in self._requests if not entry.open and entry.until <= session.now]
        version = (self._state.version, self._requests.version, tuple(due))
        if version == self._examined or not session.plan.complete:
            return
        taken = {self._queue_of(entry) for entry in self._requests if entry.open}
        heads = self._paused_heads(session)
        for (_, rank), key in sorted(self._candidates(session, taken), key=lambda candidate: candidate[0]):
            unit = self._queue.unit(key)
            if unit is None:
                continue
            gangs = [gang for gang in unit.gangs if awaits_admission(gang)]
            queues = {gang.spec.queue for gang in gangs if gang.spec is not None}
            if any(queue in heads and heads[queue] < rank for queue in queues):
                continue
            if taken.isdisjoint(queues) and all(self._lacks_nodes_only(session, gang) for gang in gangs):
                taken |= queues
                for gang in gangs:
                    self._open(session, gang, str(gangs[0].key.path))
        self._examined = (self._state.version, self._requests.version, tuple(due))

    def _candidates(self, session: Session, taken: set[str]) -> Iterator[tuple[tuple[int, Rank], UnitKey]]:
        """Yield the first unit of each demand for admission whose pause is over, with its sort key."""
        for demand in self._queue.waiting_demands():
            queues = demand.awaited_queues
            if not queues or not taken.isdisjoint(queues):
                continue
            in_order = any(_keeps_order(session, queue) for queue in queues)
            units = (
                ((0 if in_order else self._failures(key), rank), key)
                for key, rank in self._queue.units_with(demand).items()
                if not self._is_paused(key, session.now)
            )
            first = min(units, key=lambda candidate: candidate[0], default=None)
            if first is not None:
                yield first

    def _paused_heads(self, session: Session) -> dict[str, Rank]:
        """Return the rank of the first gang whose pause lasts, by queue of strict order: no gang behind it has a
        turn."""
        heads: dict[str, Rank] = {}
        for entry in self._requests:
            record = self._state.gangs.get(entry.key)
            spec = record.spec if record is not None else None
            if entry.open or entry.until <= session.now or record is None or spec is None:
                continue
            if _keeps_order(session, spec.queue):
                rank = (True, *session.rank(record), spec.created, record.key.namespace, record.key.name)
                heads[spec.queue] = min(heads.get(spec.queue, rank), rank)
        return heads

    def _is_paused(self, key: UnitKey, now: int) -> bool:
        return any(entry.open or entry.until > now for entry in self._entries(key))

    def _failures(self, key: UnitKey) -> int:
        return max((entry.failures for entry in self._entries(key)), default=0)

    def _entries(self, key: UnitKey) -> list[NodeRequest]:
        if not self._requests or isinstance(key, str):
            return []
        gangs = (gang for each in key if (gang := self._state.gangs.get(each)) is not None)
        return [entry for gang in gangs if (entry := self._requests.of(gang)) is not None]

    def _lacks_nodes_only(self, session: Session, gang: GangRecord) -> bool:
        spec = gang.spec
        if spec is None or not spec.min_resources or spec.suspended or spec.problem is not None or gang.withdrawn:
            return False
        charge_path = session.charge_path(gang)
        if session.blocked(gang) is not None:
            return False
        if not fits_declared_quota(session, session.quota_check, charge_path, gang):
            return False
        return ask_plugins(
            session,
            f"the admission of {gang.title}",
            lambda: session.plugin_runtime.lacks_nodes_only(session, gang),
            False,
        )

    def _open(self, session: Session, gang: GangRecord, unit: str) -> None:
        former = self._requests.of(gang)
        request = NodeRequest(
            request_uid(gang),
            gang.key.namespace,
            gang.key.name,
            unit,
            since=session.now,
            until=session.now + WAIT,
            failures=former.failures if former is not None else 0,
        )
        self._requests.put(request)
        session.admit(gang)
        session.decisions.set_gang_verdict(gang, None)

    def _queue_of(self, entry: NodeRequest) -> str:
        record = self._state.gangs.get(entry.key)
        return record.spec.queue if record is not None and record.spec is not None else ""


def _keeps_order(session: Session, name: str) -> bool:
    """Return whether the units of the queue with this name keep their order."""
    queue = session.ledger.accounts.get(AccountKey(Tree.QUEUE, name))
    return queue is not None and keeps_order(session.plugin_runtime.policy.queues, queue)
