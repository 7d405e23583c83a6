"""A cluster with the writes of the scheduler as API objects, so that another process can continue from them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec

from phalanx.cluster.devices.shared import SHARED_DEVICES, Given
from phalanx.cluster.pods.records import PodRecord
from phalanx.model.decisions import EvictionReason, Plan
from phalanx.model.devices.cards import Card, Family
from phalanx.model.events import GangUpdated, NodeUpdated, PodRejected
from phalanx.model.node import Node
from phalanx.model.pod import MemberState, PodClass, PodPhase
from phalanx.model.resources import requests_of
from phalanx.scheduling.scheduler import never

from ..scheduling.features import starts
from ..scheduling.scenario import Scenario
from ..soak.records import StoredRecords

RACK, HOST = "topology.kubernetes.io/rack", "kubernetes.io/hostname"
RACKS = {"x": ("x1", "x2"), "y": ("y1", "y2")}
SLOTS = 4  # CPUs of a node; a member of the job requests one
CARDS, CARD_MEMORY = 4, 1000
MEMORY, COUNT = "volcano.sh/vgpu-memory", "volcano.sh/vgpu-number"
ROUNDS = 30


def policy(reserves: bool) -> str:
    reserve = "reserve, " if reserves else ""
    return f"""
actions: "enqueue, allocate, {reserve}preempt, reclaim, backfill"
tiers:
- plugins: [{{name: priority}}, {{name: gang}}, {{name: conformance}}]
- plugins: [{{name: capacity}}, {{name: predicates}}, {{name: binpack}},
            {{name: overcommit, arguments: {{overcommit-factor: 1.0}}}},
            {{name: deviceshare, arguments: {{deviceshare.VGPUEnable: true}}}}]
configurations: [{{name: reserve, arguments: {{depth: 0, startDelaySeconds: 0}}}}]
phalanx: {{exceededRunTimes: kill}}
"""


class Snapshot(msgspec.Struct, frozen=True):
    """Decisions and verdicts that another process must arrive at too."""

    nodes: dict[str, str]
    nominations: dict[str, str]
    reasons: dict[str, str]
    promises: dict[str, int]


class World(Scenario):
    """Two racks of two nodes. Evictions, nominations and admissions are written as soon as they are decided;
    bindings arrive when `arrive` is called, and evicted pods leave when `leave` is called.

    `decisions` are those of all cycles, `controllers` are called after each
    round: they create and delete pods as the owners of gangs do.
    """

    def __init__(self, *, reserves: bool = False) -> None:
        super().__init__(policy(reserves))
        self.controllers: list[Callable[[], None]] = []
        self.reasons_of_evictions: dict[str, EvictionReason] = {}
        self.restarts = 0
        self.decisions: list[object] = []
        self._sent: dict[str, str] = {}
        self._stored = StoredRecords.of(self.scheduler, self.state)
        for rack, names in RACKS.items():
            for name in names:
                self._rack_node(rack, name)

    def _rack_node(self, rack: str, name: str) -> None:
        cards = tuple(
            Card(Family.VGPU, f"{name}-{at}", CARD_MEMORY, 10, "A100", "hami-core") for at in range(CARDS)
        )
        offer = {"cpu": SLOTS * 1000, "memory": 64 << 30, "pods": 110, MEMORY: CARD_MEMORY * CARDS, COUNT: 40}
        labels = ((RACK, rack), (HOST, name))
        node = Node(name, allocatable=requests_of(offer), labels=tuple(sorted(labels)), cards=cards)
        self.observe(f"node {name}", NodeUpdated(node))

    # the scheduler's writes

    def cycle(self, should_stop: Callable[[], bool] = never) -> Plan:
        """Run one cycle and write its decisions, except bindings."""
        plan = self.plan(should_stop)
        self._stored = StoredRecords.of(self.scheduler, self.state)
        self.decisions += [*plan.binds, *plan.evictions, *plan.admissions]
        for nominate in plan.nominations:
            if nominate.uid not in self.state.pods:
                continue
            if self._pod(nominate.uid).nominated_node != nominate.node:
                self.decisions.append(nominate)
                self.becomes(nominate.uid, nominated_node=nominate.node)
            for number, placeholder in enumerate(self._placeholders_of(nominate.uid)):
                node = nominate.held[number] if number < len(nominate.held) else ""
                self.becomes(placeholder.pod.uid, nominated_node=node)
        for evict in plan.evictions:
            self.reasons_of_evictions[evict.name] = evict.reason
            self.becomes(evict.uid, terminating=True, condemned="phalanx", leaves=self.now + 30)
        for bind in plan.binds:
            former = self._sent.setdefault(bind.uid, bind.node)
            assert former == bind.node, f"{bind.name} was sent to {former} and is sent to {bind.node}"
        for admit in plan.admissions:
            spec = self.state.gangs[admit.gang].spec
            assert spec is not None
            self.observe(f"gang {admit.gang.name}", GangUpdated(msgspec.structs.replace(spec, admitted=True)))
        return plan

    def plan(self, should_stop: Callable[[], bool] = never) -> Plan:
        """Run one cycle and write nothing."""
        plan = super().cycle(should_stop)
        assert not plan.failures, plan.failures
        return plan

    def arrive(self, most: int = 1000) -> Self:
        """Let the first `most` sent bindings arrive at the API server; their pods run."""
        assumed = [uid for uid, record in self.state.pods.items() if record.state is MemberState.ASSUMED]
        for uid in [uid for uid in assumed if not self.state.pods[uid].pod.placeholder][:most]:
            record = self.state.pods[uid]
            taken = record.allocated.get(SHARED_DEVICES)
            cards = tuple(hold.card for share in taken.shares for hold in share) if isinstance(taken, Given) else ()
            claimed = [(each.pod.uid, each.nominated_node) for each in self._placeholders_of(uid)]
            self.becomes(uid, node=record.assumed_node, mark=record.mark, nominated_node="", cards=cards)
            self.becomes(uid, phase=PodPhase.RUNNING, started=self.now, bound=self.now)
            for placeholder, node in claimed:
                if placeholder in self.state.pods:
                    self.becomes(placeholder, nominated_node=node, expires=self.now + 3000)
        return self

    def _placeholders_of(self, uid: str) -> list[PodRecord]:
        gang = self.state.pods[uid].gang
        return list(gang.placeholders.values()) if gang is not None else []

    def leave(self) -> Self:
        """Let evicted pods leave their nodes."""
        for uid in [uid for uid, record in self.state.pods.items() if record.pod.terminating]:
            self.gone(uid)
        return self

    def settle(self, *, after: int = 0) -> Self:
        """Run cycles, let bindings arrive and controllers work until nothing changes; evicted pods stay."""
        for _ in range(ROUNDS):
            self.work()
            self.arrive()
            for controller in self.controllers:
                controller()
            if self.scheduler.idle:
                return self
        raise AssertionError(f"not settled after {ROUNDS} rounds")

    def finish(self) -> Self:
        """Settle, with evicted pods leaving, until none is left."""
        for _ in range(ROUNDS):
            self.settle()
            if not any(record.pod.terminating for record in self.state.pods.values()):
                return self
            self.leave()
        raise AssertionError("evictions do not end")

    def pass_time(self, seconds: int) -> Self:
        """Advance the time; pods end at their limits, and the scheduler wakes at its own times."""
        until = self.now + seconds
        while self.now < until:
            ends = [
                record.pod.started + record.pod.run_time.limit
                for record in self.state.pods.values()
                if record.state is MemberState.RUNNING and record.pod.run_time.limit
            ]
            times = [*ends, self.scheduler.next_recheck or until]
            self.now = min([int(-(-time // 1)) for time in times if self.now < time < until], default=until)
            for uid, record in list(self.state.pods.items()):
                # A limit of the queue is enforced by the scheduler, any other one by the kubelet.
                limit = 0 if record.pod.run_time.allowed else record.pod.run_time.limit
                if record.state is MemberState.RUNNING and limit and record.pod.started + limit <= self.now:
                    self.gone(uid)
            self.scheduler.activate_due(self.now)
            self.settle()
        return self

    def rejects(self, node: str) -> None:
        """Let the kubelet of a node reject pods."""
        for namespace in ("one", "two"):  # of two namespaces: the node is closed to all that request CPUs
            event = PodRejected(node, "OutOfcpu", namespace, PodClass(requests=(("cpu", 1000),)), self.now)
            self.observe(f"rejection by {node} of a pod of {namespace}", event)

    # the end of a process

    def kill(self) -> Self:
        """Start another process, which has the API objects and the stored promises only."""
        self.restarts += 1
        for uid, record in self.state.pods.items():
            if record.state is MemberState.ASSUMED:
                self._sent.pop(uid, None)
        self.restart()
        self.state.pods.load_nominations()
        self._stored.load(self.scheduler, self.state)
        self.scheduler.activate_due(self.now)
        return self

    def kill_before_writes(self) -> Self:
        """Kill the process when it has planned and written nothing."""
        self.plan()
        return self.kill()

    def kill_at_rest(self) -> Self:
        """Kill the process when nothing is to be done: the next one decides nothing and gives the same reasons."""
        before, known = self.snapshot(), len(self.decisions)
        self.kill().settle()
        decided = self.decisions[known:]
        assert not decided, f"the new process decided {decided}"
        after = self.snapshot()
        for name in Snapshot.__struct_fields__:
            assert getattr(after, name) == getattr(before, name), (
                name,
                getattr(before, name),
                getattr(after, name),
            )
        return self

    def snapshot(self) -> Snapshot:
        pods = sorted(self.state.pods)
        reasons = {gang.key.name: self.reason(gang.key.name) for gang in self.state.gangs.values()}
        for uid in pods:
            # A waiting gang's verdict is that of its members; a surplus member of a running gang has its own.
            verdict, gang = self._pod_verdicts.get(uid), self.state.pods[uid].gang
            if verdict is not None and not self.where(uid) and (gang is None or not self.reason(gang.key.name)):
                reasons[uid] = verdict.code
        plan = starts(self.scheduler).plan
        promises = {each.name: each.start for each in plan.all()} if plan is not None else {}
        return Snapshot({uid: self.where(uid) for uid in pods}, self.held(), reasons, promises)

    def cpus_of(self, node: str) -> int:
        """Return the CPUs that pods on a node use."""
        on_node = (record.pod.usage for uid, record in self.state.pods.items() if self.where(uid) == node)
        return sum(dict(usage).get("cpu", 0) for usage in on_node) // 1000

    def reason(self, gang: str) -> str:
        """Return the code of a gang's verdict, "" for a gang that waits for nothing."""
        verdict = self._gang_verdicts.get(gang)
        return verdict.code if verdict is not None else ""
