"""Plugin `rescheduling` of Volcano: periodically evicts pods from overloaded nodes if other nodes have room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

import msgspec

from phalanx.cluster.node_table import NO_ROW
from phalanx.model.pod import MemberState
from phalanx.model.text.decoding import quoted
from phalanx.plugin import Arguments, EvictionReason, Plugin, PodRecord, Tree, Victim, View
from phalanx.scheduling.plugins.evictions.node_balance import WHOLE, Balance

LOW_NODE_UTILIZATION = "lowNodeUtilization"
_INTERVAL = 300
# the only priority classes with values that do not depend on the cluster
_CRITICAL = MappingProxyType({"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000})
_UNRESOLVED = -(2**31)
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
    """Volcano's lowNodeUtilization. Thresholds are in hundredths of a percent; pods of `priority` and above are not
    moved.

    With `node_fit` a pod is evicted only if the scheduler would place a copy on a low node within its target. More
    than `nodes` nodes must be low.
    """

    thresholds: Mapping[str, int] = _FULL
    targets: Mapping[str, int] = _FULL
    priority: int = _CRITICAL["system-cluster-critical"]
    node_fit: bool = True
    nodes: int = 0


class Rescheduling(Plugin):
    """Once per `interval`, and not right after a start, evict pods from nodes above a target if other nodes are
    below all thresholds.

    The fullest node and the pod of least importance come first, until the node is within its target. Utilisation is
    requested resources. Only pods with a controller that replaces them are moved.
    """

    name = "rescheduling"
    arguments = ("interval", "labelSelector", "metricsPeriod", "queueSelector", "strategies")
    without_effect = ("metricsPeriod",)

    def __init__(self, arguments: Arguments) -> None:
        self._interval = arguments.duration("interval") or _INTERVAL
        self._queues = frozenset(map(str, arguments.sequence("queueSelector")))
        remarks = ["utilisation is by requested resources: usage metrics are not supported yet"]
        self._paused = bool(arguments.mapping("labelSelector"))
        if self._paused:
            remarks.append("labelSelector is not supported yet: no pod is moved")
        self._strategy = self._read(arguments, remarks)
        if self._strategy is not None and min(self._strategy.targets.values()) >= WHOLE:
            remarks.append("no pod is moved: no node can exceed targetThresholds of 100; set one below 100")
        self.remarks = tuple(remarks)

    def next_wake(self, session: View) -> float | None:
        return session.timers.next(self.name, self._interval)

    def victims(self, session: View) -> Iterator[Victim]:
        if session.timers.next(self.name, self._interval) is None:
            session.timers.begin(self.name, session.now)  # a new process may not have read all pods yet
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
        result: ReschedulingStrategy | None = None
        for place, entry in enumerate(entries):
            where = f"strategies[{place}]"
            strategy = Arguments(f"{arguments.owner}: {where}", entry if isinstance(entry, Mapping) else {})
            strategy.only(("name", "params", "parameters"))
            if strategy.text("name") != LOW_NODE_UTILIZATION:
                remarks.append(
                    f"{where}: {quoted(strategy.text('name'))} is unknown and ignored; expected "
                    f"{LOW_NODE_UTILIZATION}"
                )
                continue
            result = _low_node_utilization(strategy, remarks)
        return result


class _Round:
    """One periodic round of the plugin's moves, tried on the live arrays in a transaction that is rolled back. Each
    move is judged after the moves before it."""

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
                yield from self._victims_on(row)
        finally:
            self._transaction.rollback()

    def _victims_on(self, row: int) -> Iterator[Victim]:
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
                self._apply_move(record, target)

    def _destination(self, record: PodRecord) -> int | None:
        """Return the node row to which the pod can move, NO_ROW if none is required, None if it does not fit
        anywhere."""
        amounts = record.footprint.amounts
        if not self._strategy.node_fit:
            return NO_ROW if all(amounts.get(name, 0) <= room for name, room in self._room.items()) else None
        rows = self._session.placer.place(record.pod_class, 1)
        return rows[0] if rows and self._balance.takes(rows[0], amounts) else None

    def _apply_move(self, record: PodRecord, target: int) -> None:
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
    """Return Volcano's sort key of pods to move: priority, then QoS as far as the class shows it, then the least
    lost work."""
    pod = record.pod
    return pod.priority, not record.pod_class.spec.best_effort, -pod.started, pod.key


def _low_node_utilization(entry: Arguments, remarks: list[str]) -> ReschedulingStrategy:
    params = Arguments(entry.owner, entry.mapping("params") or entry.mapping("parameters"))
    params.only(_PARAMS)
    class_name = params.text("thresholdPriorityClassName", "system-cluster-critical")
    priority = params.integer("thresholdPriority", _CRITICAL.get(class_name, _UNRESOLVED))
    if priority == _UNRESOLVED:
        remarks.append(
            f"thresholdPriorityClassName {quoted(class_name)} is not resolved: no pod is moved; write its value as "
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
    """Return the load thresholds of a strategy: 100 percent by default for CPU, memory and pods, none for other
    resources."""
    mapping = params.mapping(key)
    percentages = Arguments(f"{params.owner}.{key}", mapping)
    percent = {name: percentages.number(name, 100.0, least=0.0) for name in mapping}
    return {**_FULL} | {"pods" if name == "pod" else name: round(value * 100) for name, value in percent.items()}
