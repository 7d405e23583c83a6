"""Ledger over all member clusters: the usage of each queue, the order of gangs, and the queue limits.

Queues are those of the hub (Volcano's Queue): weight, guarantee, capability, parent. Their usage is that of the
member clusters, including their own users' pods, and of the gangs sent there since.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from phalanx.daemon.policy_file import dialect_options
from phalanx.dialects.intake import Intake
from phalanx.dialects.registry import installed_dialects
from phalanx.model.account import DEFAULT_QUEUE, ROOT_QUEUE, AccountState, Tree
from phalanx.model.account import Account as Queue
from phalanx.model.events import AccountUpdated, ClusterEvent, GangUpdated, NodeUpdated, PodUpdated
from phalanx.model.gang import GangKey
from phalanx.model.pod import PodPhase
from phalanx.model.resources import PODS
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.quota.dominant_share import order_by_share
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import Document, FileObject, take_in
from phalanx.simulation.errors import InputError

Amounts = dict[str, int]
_DEEPEST = 20


class ClusterAccount(msgspec.Struct, frozen=True):
    """Capacity of one member cluster, usage by queue without the hub's copies, and usage by the copies."""

    total: Amounts
    held: dict[str, Amounts]
    copies: Amounts = {}

    def used(self) -> Amounts:
        used: Amounts = {}
        for amounts in (*self.held.values(), self.copies):
            _add(used, amounts)
        return used

    def free(self) -> Amounts:
        used = self.used()
        return {name: self.total.get(name, 0) - used.get(name, 0) for name in {**self.total, **used}}


class QueueDemand(msgspec.Struct, frozen=True):
    """Requests of a gang: all its pods together, in integer units of each resource (cpu in milli-cores)."""

    queue: str = DEFAULT_QUEUE
    priority: int = 0
    amounts: Amounts = {}


class WaitingGang(msgspec.Struct, frozen=True):
    """Gang at the hub that has no member cluster yet; `created` is in seconds since the epoch."""

    uid: str
    name: str
    created: int
    demand: QueueDemand


def account_of(
    cluster: SimulatedCluster, policy: Policy, copies: Collection[tuple[str, str]] = ()
) -> ClusterAccount:
    """Return capacity and usage of a captured cluster; `copies` are the hub's pods by namespace and name.

    Raises InputError.
    """
    _, events = cluster.open(dialect_options(policy))
    total: Amounts = {}
    for event in events:
        if isinstance(event, NodeUpdated):
            _add(total, dict(event.node.allocatable))
    used_by_queue: dict[str, Amounts] = {}
    used_by_copies: Amounts = {}
    gangs = _queues_of_gangs(events)
    for pod in {event.pod.uid: event.pod for event in events if isinstance(event, PodUpdated)}.values():
        if pod.node and pod.phase not in (PodPhase.SUCCEEDED, PodPhase.FAILED):
            queue = gangs.get(GangKey(pod.namespace, pod.gang), pod.queue) or DEFAULT_QUEUE
            used = used_by_copies if (pod.namespace, pod.name) in copies else used_by_queue.setdefault(queue, {})
            _add(used, pod.pod_class.charged(pod.usage))
    return ClusterAccount(total, used_by_queue, used_by_copies)


def demand_of(documents: Sequence[Document], policy: Policy, schedulers: Sequence[str]) -> QueueDemand:
    """Return the requests of the PodGroup and the pods of one gang; unreadable objects request nothing."""
    intake = Intake(schedulers, dialect_options(policy), dialects=installed_dialects())
    events: list[ClusterEvent] = []
    try:
        for document in documents:
            events += take_in(intake, FileObject(str(document.get("kind")), document))
    except (InputError, ValueError, TypeError):
        return QueueDemand()
    amounts: Amounts = {}
    pods = {event.pod.uid: event.pod for event in events if isinstance(event, PodUpdated)}
    for pod in pods.values():
        _add(amounts, pod.pod_class.charged(pod.pod_class.requests))
    queues = [*_queues_of_gangs(events).values(), *(pod.queue for pod in pods.values())]
    queue = next((queue_name for queue_name in queues if queue_name), DEFAULT_QUEUE)
    return QueueDemand(queue, max((pod.priority for pod in pods.values()), default=0), amounts)


def queues_of(documents: Iterable[Document], policy: Policy) -> dict[str, Queue]:
    """Return the hub's queues by name, without unreadable ones."""
    intake = Intake((), dialect_options(policy), dialects=installed_dialects())
    queues: dict[str, Queue] = {}
    for document in documents:
        try:
            events = take_in(intake, FileObject("Queue", document))
        except (InputError, ValueError, TypeError):
            continue
        for event in events:
            if isinstance(event, AccountUpdated) and event.account.key.tree is Tree.QUEUE:
                queues[event.account.key.name] = event.account
    return queues


class ClusterLedger:
    """Usage of all queues in all member clusters; `accounts` are those of the clusters, and gangs sent since are
    added by `charge`."""

    def __init__(self, accounts: Iterable[ClusterAccount], queues: Mapping[str, Queue]) -> None:
        self._queues = queues
        self._total: Amounts = {}
        self._held: dict[str, Amounts] = {}
        for account in accounts:
            _add(self._total, account.total)
            for queue, amounts in account.held.items():
                self.charge(QueueDemand(queue, 0, amounts))

    def charge(self, demand: QueueDemand) -> None:
        """Add the requests of a gang to the usage of its queue and of the queues above it."""
        for name in self._path(demand.queue):
            _add(self._held.setdefault(name, {}), demand.amounts)

    def refusal(self, demand: QueueDemand) -> str:
        """Return the reason why no gang with these requests can be sent now, a queue limit or a closed queue; ""
        for none."""
        for name in self._path(demand.queue):
            queue = self._queues.get(name)
            if queue is None:
                continue
            if queue.state in (AccountState.CLOSED, AccountState.CLOSING):
                return f"queue {name} is closed"
            held = self._held.get(name, {})
            for resource, limit in queue.capability:
                requested = demand.amounts.get(resource, 0)
                if requested and held.get(resource, 0) + requested > limit:
                    usage = f"uses {held.get(resource, 0)} of {limit} {resource} in all clusters"
                    return f"queue {name} {usage}, and the gang requests {requested} more"
        return ""

    def in_order(self, gangs: Iterable[WaitingGang]) -> Iterator[tuple[WaitingGang, str]]:
        """Yield the waiting gangs in scheduling order, each with the reason why it cannot be sent ("" if it can).

        Queues below their guarantee come first, then the queue with the smallest share of all clusters by its
        weight. Within a queue the order is by priority, then by age. A gang that can be sent is charged before the
        next one is chosen.
        """
        lines: dict[str, list[WaitingGang]] = {}
        for gang in gangs:
            lines.setdefault(gang.demand.queue, []).append(gang)
        for line in lines.values():
            line.sort(key=lambda gang: (-gang.demand.priority, gang.created, gang.name, gang.uid), reverse=True)
        turns = [(self._turn(name), name) for name in lines]
        heapq.heapify(turns)
        while turns:
            _, name = heapq.heappop(turns)
            gang = lines[name].pop()
            refusal = self.refusal(gang.demand)
            yield gang, refusal
            if not refusal:
                self.charge(gang.demand)
            if lines[name]:
                heapq.heappush(turns, (self._turn(name), name))

    def share(self, name: str) -> float:
        """Return the part of all clusters' capacity that a queue uses, of its dominant resource, divided by its
        weight."""
        queue = self._queues.get(name)
        weight = max(1, queue.weight) if queue is not None else 1
        held = ((resource, amount) for resource, amount in self._held.get(name, {}).items() if resource != PODS)
        return order_by_share(held, self._total, weight)

    def _turn(self, name: str) -> tuple[bool, float]:
        """Return the sort key of a queue at the hub; queues of a tree are compared directly, not level by level."""
        queue, held = self._queues.get(name), self._held.get(name, {})
        guarantee = queue.guarantee if queue is not None else ()
        below = any(held.get(resource, 0) < amount for resource, amount in guarantee)
        return not below, self.share(name)

    def _path(self, name: str) -> list[str]:
        path = [name]
        while (queue := self._queues.get(path[-1])) is not None and queue.parent is not None:
            if queue.parent.name in (ROOT_QUEUE, *path) or len(path) > _DEEPEST:
                break
            path.append(queue.parent.name)
        return path


def _queues_of_gangs(events: Iterable[ClusterEvent]) -> dict[GangKey, str]:
    return {event.gang.key: event.gang.queue for event in events if isinstance(event, GangUpdated)}


def _add(amounts: Amounts, more: Mapping[str, int]) -> None:
    for name, amount in more.items():
        amounts[name] = amounts.get(name, 0) + amount
