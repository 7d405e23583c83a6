"""A cluster in virtual time, shared by namespaces and users of queues: pods arrive, run for a while and end."""

from __future__ import annotations

import heapq
from collections import Counter
from typing import Self

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, Budget, Tree
from phalanx.model.decisions import Plan
from phalanx.model.events import AccountUpdated, NamespaceWeighed, NodeUpdated, PodRemoved, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.verdict import Verdict
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

from ..cluster.audit import audit

HOUR = 3600
CPU = PodClass(requests=(("cpu", 1000),), scored_cpu=1000, scored_memory=200)


def policy(**arguments: object) -> str:
    stated = ", ".join(f"fairshare.{key.replace('_', '-')}: {value}" for key, value in arguments.items())
    return f"""
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}]
- plugins: [{{name: fairshare, arguments: {{{stated}}}}}, {{name: predicates}}, {{name: nodeorder}}]
"""


class Tenancy:
    """One node; pods request one CPU each. Times are in seconds since `start`, a multiple of a day."""

    start = 20_000 * 24 * HOUR
    long = False  # skips the audit of most steps of a long simulation

    def __init__(self, cpus: int, text: str) -> None:
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, load_policy(text))
        self.now = float(self.start)
        self.verdicts: dict[str, Verdict | None] = {}
        self.order: list[str] = []
        self._pods: dict[str, Pod] = {}
        self._lengths: dict[str, float] = {}
        self._ends: list[tuple[float, str]] = []
        self._numbers: Counter[str] = Counter()
        allocatable = (("cpu", cpus * 1000), ("memory", 2**40), ("pods", 10_000))
        self.state.apply(NodeUpdated(Node("n1", allocatable=allocatable)))

    def weigh(self, namespace: str, weight: int) -> Self:
        self.state.apply(NamespaceWeighed(namespace, weight))
        return self

    def queue(self, name: str, **fields: object) -> Self:
        key = AccountKey(Tree.QUEUE, name)
        self.state.apply(AccountUpdated(Account(key, label=f"queue {name}", **fields)))  # type: ignore[arg-type]
        return self

    def budget(self, queue: str, cpu_hours: int, window: int = 24 * HOUR) -> Self:
        return self.queue(queue, budget=Budget((("cpu", cpu_hours * 1000),), window))

    def submit(self, namespace: str, count: int = 1, length: float = 1e9, *, user: str = "", **fields: str) -> Self:
        """Add pods that run for `length` seconds after their start."""
        for _ in range(count):
            owner = user or namespace
            self._numbers[owner] += 1
            name = f"{owner}-{self._numbers[owner]:05}"
            created = int(self.now)
            pod = Pod(namespace, name, name, CPU, CPU.requests, "phalanx", created=created, user=user, **fields)  # type: ignore[arg-type]
            self._pods[name], self._lengths[name] = pod, length
            self.state.apply(PodUpdated(pod))
        return self

    def finish(self, prefix: str, count: int) -> Self:
        """End the first of the running pods early."""
        running = sorted(name for name, pod in self._pods.items() if pod.node and name.startswith(prefix))
        for name in running[:count]:
            self._end(name)
        return self

    def step(self) -> Plan:
        """Run the scheduler; bound pods run at once."""
        self.scheduler.observe(self.now)
        self.scheduler.activate_due(self.now)
        plan = self.scheduler.cycle(self.now)
        for bind in plan.binds:
            self.order.append(bind.name)
            pod = self._pods[bind.name]
            running = msgspec.structs.replace(pod, node=bind.node, phase=PodPhase.RUNNING)
            self._pods[bind.name] = running
            self.state.apply(PodUpdated(running))
            heapq.heappush(self._ends, (self.now + self._lengths[bind.name], bind.name))
        self.verdicts.update({verdict.uid: verdict.verdict for verdict in plan.pods})
        return plan

    def work(self) -> Self:
        for _ in range(50):
            self.step()
            if self.scheduler.idle:
                if not self.long:
                    audit(self.state)
                return self
        raise AssertionError("not idle after 50 cycles")

    def wait(self, hours: float) -> Self:
        """Advance the time without ending pods."""
        self.now += hours * HOUR
        return self.work()

    def next_end(self) -> list[str]:
        """Advance to the next end of a pod; return the namespaces or users of the ended pods."""
        self.now = max(self.now, self._ends[0][0])
        ended: list[str] = []
        while self._ends and self._ends[0][0] <= self.now:
            _, name = heapq.heappop(self._ends)
            if name in self._pods:
                ended.append(self._end(name))
        return ended

    def held(self) -> dict[str, int]:
        """Return the CPUs held by the pods of each owner."""
        counts = Counter(name.rpartition("-")[0] for name, pod in self._pods.items() if pod.node)
        return dict(sorted(counts.items()))

    def _end(self, name: str) -> str:
        del self._pods[name]
        self.state.apply(PodRemoved(name))
        return name.rpartition("-")[0]
