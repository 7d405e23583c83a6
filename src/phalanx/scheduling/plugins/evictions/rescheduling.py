"""`rescheduling`: now and then, pods leave nodes that carry too much for nodes that carry little (Volcano)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from phalanx.cluster.node_table import NO_ROW
from phalanx.model.pod import MemberState
from phalanx.plugin import Arguments, EvictionReason, Plugin, PodRecord, Tree, Victim, View
from phalanx.scheduling.plugins.evictions.node_balance import WHOLE, Balance

LOW_NODE_UTILIZATION = "lowNodeUtilization"
_INTERVAL = 300
# The only classes whose values do not depend on the cluster.
_CRITICAL = MappingProxyType({"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000})
_NOBODY = -(2**31)
_FULL = MappingProxyType({"cpu": WHOLE, "memory": WHOLE, "pods": WHOLE})
_PARAMS = (
    "thresholds",
    "targetThresholds",
    "thresholdPriority",
    "thresholdPriorityClassName",
    "nodeFit",
    "numberOfNodes",
)


class ReschedulingStrategy(msgspec.Struct, frozen=True):
    """Volcano's lowNodeUtilization. Thresholds are in hundredths of a percent; pods of `priority` and above stay.

    With `node_fit` a pod leaves only if the scheduler would put another like it on a low node that stays within its
    target. More than `nodes` nodes must be low.
    """

    thresholds: Mapping[str, int] = _FULL
    targets: Mapping[str, int] = _FULL
    priority: int = _CRITICAL["system-cluster-critical"]
    node_fit: bool = True
    nodes: int = 0


class Rescheduling(Plugin):
    """Once per `interval`, and not right after a start, pods leave nodes that are above a target for nodes that
    are below all thresholds: the fullest first, the least important pod first, until the node is within its target.

    Utilisation is what pods request. Only pods that a controller makes anew are moved.
    """

    name = "rescheduling"
    arguments = ("interval", "labelSelector", "metricsPeriod", "queueSelector", "strategies")
    without_effect = ("metricsPeriod",)

    def __init__(self, arguments: Arguments) -> None:
        self._interval = arguments.duration("interval") or _INTERVAL
        self._queues = frozenset(map(str, arguments.sequence("queueSelector")))
        remarks = ["utilisation is what pods request: there is no source of metrics yet"]
        self._paused = bool(arguments.mapping("labelSelector"))
        if self._paused:
            remarks.append("labelSelector is not supported yet; so that it spares whom it means, nothing is moved")
        self._strategy = self._read(arguments, remarks)
        if self._strategy is not None and min(self._strategy.targets.values()) >= WHOLE:
            remarks.append("no targetThresholds below 100 is stated: no node can be above it, so nothing is moved")
        self.remarks = tuple(remarks)

    def next_wake(self, session: View) -> float | None:
        return session.timers.next(self.name, self._interval)

    def victims(self, session: View) -> Iterator[Victim]:
        if session.timers.next(self.name, self._interval) is None:
            session.timers.begin(self.name, session.now)  # what a new process does not know yet may come in first
        if self._strategy is None or self._paused or not session.timers.due(self.name, self._interval, session.now):
            return
        session.timers.begin(self.name, session.now)
        balance = Balance(session.state.nodes, self._strategy.thresholds, self._strategy.targets)
        if balance.low.sum() > self._strategy.nodes and balance.high.any():
            yield from _Round(session, self._strategy, balance, self._queues).victims()

    def _read(self, arguments: Arguments, remarks: list[str]) -> ReschedulingStrategy | None:
        entries = arguments.sequence("strategies")
        if not entries:
            return ReschedulingStrategy()
        found: ReschedulingStrategy | None = None
        for place, entry in enumerate(entries):
            where = f"strategies[{place}]"
            strategy = Arguments(f"{arguments.owner}: {where}", entry if isinstance(entry, Mapping) else {})
            strategy.only(("name", "params", "parameters"))
            if strategy.text("name") != LOW_NODE_UTILIZATION:
                remarks.append(f"{where}: {strategy.text('name')!r} is not {LOW_NODE_UTILIZATION}; it is ignored")
                continue
            found = _low_node_utilization(strategy, remarks)
        return found


class _Round:
    """Moves are tried on the live arrays, in a transaction that is undone in the end: each is judged as if those
    before it had been made."""

    def __init__(
        self, session: View, strategy: ReschedulingStrategy, balance: Balance, queues: frozenset[str]
    ) -> None:
        self._session = session
        self._strategy = strategy
        self._balance = balance
        self._queues = queues
        self._nodes = session.state.nodes
        self._transaction = session.state.transaction()
        self._room = balance.room()

    def victims(self) -> Iterator[Victim]:
        try:
            for row in self._balance.fullest_first():
                yield from self._from(row)
        finally:
            self._transaction.rollback()

    def _from(self, row: int) -> Iterator[Victim]:
        transaction, node = self._transaction, self._nodes.names[row]
        movable = [record for record in self._session.state.pods.on(row) if self._may_move(record)]
        for record in sorted(movable, key=_least_important_first):
            excess = self._balance.excess(row)
            if not excess:
                return
            if not any(record.footprint.amounts.get(name) for name in excess):
                continue
            reason = f"the pods of node {node} request {self._balance.percent(row, excess[0])}% of its {excess[0]}"
            transaction.remove([record])
            target = self._destination(record)
            transaction.put_back([record])
            if target is None:
                continue
            where = f", there is room on {self._nodes.names[target]}" if target != NO_ROW else ""
            yield Victim(record, EvictionReason.RESCHEDULED, reason + where)
            if record.state is not MemberState.RUNNING:
                self._arrive(record, target)

    def _destination(self, record: PodRecord) -> int | None:
        """The row for which the pod would leave, NO_ROW where nobody asks for one; None if it has nowhere to go."""
        amounts = record.footprint.amounts
        if not self._strategy.node_fit:
            return NO_ROW if all(amounts.get(name, 0) <= room for name, room in self._room.items()) else None
        rows = self._session.placer.place(record.pod_class, 1)
        return rows[0] if rows and self._balance.takes(rows[0], amounts) else None

    def _arrive(self, record: PodRecord, target: int) -> None:
        for name in self._room:
            self._room[name] -= record.footprint.amounts.get(name, 0)
        if target != NO_ROW:
            self._transaction.place(record.pod_class, [record], [target])

    def _may_move(self, record: PodRecord) -> bool:
        pod = record.pod
        if record.state is not MemberState.RUNNING or not pod.controlled or pod.priority >= self._strategy.priority:
            return False
        path = record.charge_path.path if record.charge_path is not None else ()
        return not self._queues or any(
            account.key.tree is Tree.QUEUE and account.key.name in self._queues for account in path
        )


def _least_important_first(record: PodRecord) -> tuple[object, ...]:
    """Volcano's order, priority and then QoS, as far as the class tells it; of equals the one that lost least."""
    pod = record.pod
    return pod.priority, not record.pod_class.spec.best_effort, -pod.started, pod.key


def _low_node_utilization(entry: Arguments, remarks: list[str]) -> ReschedulingStrategy:
    params = Arguments(entry.owner, entry.mapping("params") or entry.mapping("parameters"))
    params.only(_PARAMS)
    class_name = params.text("thresholdPriorityClassName", "system-cluster-critical")
    priority = params.integer("thresholdPriority", _CRITICAL.get(class_name, _NOBODY))
    if priority == _NOBODY:
        remarks.append(
            f"thresholdPriorityClassName {class_name!r} is not looked up: nothing is moved; state its value as "
            "thresholdPriority"
        )
    return ReschedulingStrategy(
        _thresholds(params, "thresholds"),
        _thresholds(params, "targetThresholds"),
        priority,
        params.boolean("nodeFit", True),
        params.integer("numberOfNodes", 0, least=0),
    )


def _thresholds(params: Arguments, key: str) -> dict[str, int]:
    """What is not stated is 100 percent for CPU, memory and pods, and of no account for anything else."""
    mapping = params.mapping(key)
    stated = Arguments(f"{params.owner}.{key}", mapping)
    percent = {name: stated.number(name, 100.0, least=0.0) for name in mapping}
    return {**_FULL} | {"pods" if name == "pod" else name: round(value * 100) for name, value in percent.items()}
