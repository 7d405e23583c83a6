"""The loop of the scheduler process on a clock with fractions, and the kubelets of its nodes, without an API."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable
from itertools import count
from random import Random

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.events import (
    AccountUpdated,
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass, PodPhase
from phalanx.model.run_time import RunTime
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.scheduler import Scheduler
from phalanx.testing import amounts

from .features import starts

BASE = 1_000_000
MOST_CYCLES = 200


class LiveJob(msgspec.Struct):
    """Equal pods of 1 GPU that start together; one pod has no gang. `runs` is the run time without a kill."""

    name: str
    pods: int
    limit: int
    queue: str = "default"
    priority: int = 0
    runs: float = math.inf
    submitted: float = 0.0
    bound: float = math.nan
    #: First promised start in seconds since the begin of the loop.
    promised: float = math.nan
    nodes: tuple[str, ...] = ()
    ended: int = 0


class LiveLoop:
    """One scheduler and its cluster; all times are seconds since the begin of the loop.

    `start_delay` and `kill_delay` return the seconds between a binding and the start, and between the limit and the
    end of a pod; `reaction` those between an event and the cycle that it causes.
    """

    def __init__(
        self,
        policy: str,
        start_delay: Callable[[], float] = lambda: 0.4,
        kill_delay: Callable[[], float] = lambda: 0.2,
        reaction: Callable[[], float] = lambda: 0.01,
    ) -> None:
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, load_policy(policy), refresh_verdicts=False)
        self.now = 0.0
        self.jobs: dict[str, LiveJob] = {}
        self.pods: dict[str, tuple[LiveJob, Pod]] = {}
        self.nodes: dict[str, Node] = {}
        self.events = 0
        self.after_cycles: Callable[[], None] = lambda: None
        self._start_delay, self._kill_delay, self._reaction = start_delay, kill_delay, reaction
        self._coming: list[tuple[float, int, Callable[[], object]]] = []
        self._numbers = count()

    @property
    def plan(self) -> ReservationPlan:
        plan = starts(self.scheduler).plan
        assert plan is not None
        return plan

    # declarations

    def at(self, when: float, effect: Callable[[], object]) -> None:
        heapq.heappush(self._coming, (when, next(self._numbers), effect))

    def apply(self, event: ClusterEvent) -> None:
        self.events += 1
        self.state.apply(event)

    def add_nodes(self, number: int, gpus: int = 1) -> LiveLoop:
        for place in range(1, number + 1):
            self.set_node(Node(f"n{place}", allocatable=amounts(cpu=64, memory="64Gi", pods=110, gpu=gpus)))
        return self

    def set_node(self, node: Node) -> None:
        self.nodes[node.name] = node
        self.apply(NodeUpdated(node))

    def cordon(self, name: str, closed: bool = True) -> None:
        if name in self.nodes:
            self.set_node(msgspec.structs.replace(self.nodes[name], unschedulable=closed))

    def lose_node(self, name: str) -> Node | None:
        """Remove a node; its pods are deleted, and their jobs end with them."""
        node = self.nodes.pop(name, None)
        if node is not None:
            for uid in [uid for uid, (_, pod) in self.pods.items() if pod.node == name]:
                self.end_pod(uid)
            self.apply(NodeRemoved(name))
        return node

    def queues(self, names: Iterable[str]) -> LiveLoop:
        for name in names:
            self.apply(AccountUpdated(Account(AccountKey(Tree.QUEUE, name), label=f"queue {name}")))
        return self

    def submit(self, when: float, job: LiveJob) -> LiveJob:
        self.jobs[job.name] = job
        job.submitted = when
        self.at(when, lambda: self._submit(job))
        return job

    # the cluster

    def _submit(self, job: LiveJob) -> None:
        created = BASE + math.floor(self.now)
        gang = job.name if job.pods > 1 else ""
        if gang:
            spec = Gang(GangKey("ns", gang), uid=gang, min_member=job.pods, queue=job.queue, created=created)
            self.apply(GangUpdated(spec))
        for number in range(job.pods):
            uid = f"{job.name}-{number}" if gang else job.name
            requests = amounts(cpu=1, gpu=1)
            pod = Pod(
                "ns",
                uid,
                uid,
                PodClass(requests=requests, run_limit=job.limit),
                requests,
                "phalanx",
                priority=job.priority,
                created=created,
                gang=gang,
                queue=job.queue,
                grace=0,
                run_time=RunTime(job.limit),
            )
            self.pods[uid] = (job, pod)
            self.apply(PodUpdated(pod))

    def _change(self, uid: str, **change: object) -> None:
        job, pod = self.pods[uid]
        self.pods[uid] = (job, msgspec.structs.replace(pod, **change))
        self.apply(PodUpdated(self.pods[uid][1]))

    def _bind(self, uid: str, node: str) -> None:
        job, _ = self.pods[uid]
        job.bound, job.nodes = self.now, (*job.nodes, node)
        self._change(uid, node=node, bound=BASE + math.floor(self.now))
        self.at(self.now + self._start_delay(), lambda: self._start(uid))

    def _start(self, uid: str) -> None:
        if uid not in self.pods:
            return
        job, _ = self.pods[uid]
        # The API has whole seconds, and kubelets count the limit from them.
        started = BASE + math.floor(self.now)
        self._change(uid, phase=PodPhase.RUNNING, started=started)
        killed = started - BASE + job.limit + self._kill_delay()
        self.at(min(killed, self.now + job.runs), lambda: self.end_pod(uid))

    def end_pod(self, uid: str) -> None:
        if uid not in self.pods:
            return
        job, _ = self.pods.pop(uid)
        self.apply(PodRemoved(uid))
        job.ended += 1
        if job.ended == job.pods > 1:
            self.apply(GangRemoved(GangKey("ns", job.name)))

    # the loop

    def run(self, until: float) -> LiveLoop:
        """Run as the service does: wait for an event or the next due time, then plan until nothing is left."""
        while True:
            event = self._coming[0][0] if self._coming else math.inf
            alarm = self.scheduler.next_recheck
            due = max(math.ceil(alarm) - BASE, self.now) if alarm is not None else math.inf
            moment = min(event, due)
            if moment > until:
                return self
            self.now = max(self.now, moment) + self._reaction()
            while self._coming and self._coming[0][0] <= self.now:
                self._effect()
            self._plan()

    def _effect(self) -> None:
        when, _, effect = heapq.heappop(self._coming)
        now, self.now = self.now, when
        effect()
        self.now = now

    def _plan(self) -> None:
        self.scheduler.observe(BASE + self.now)
        self.scheduler.activate_due(BASE + self.now)
        for _ in range(MOST_CYCLES):
            if self.scheduler.idle:
                break
            plan = self.scheduler.cycle(BASE + self.now)
            assert not plan.failures, plan.failures
            for reservation in self.plan.all():
                job = self.jobs[reservation.name.rpartition("/")[2]]
                if math.isnan(job.promised):
                    job.promised = reservation.promised - BASE
            for bind in plan.binds:
                self._bind(bind.uid, bind.node)
            self.now += self._reaction() / 8
        else:
            raise AssertionError(f"not idle after {MOST_CYCLES} cycles at {self.now}")
        self.after_cycles()


def uniform(random: Random, least: float, most: float) -> Callable[[], float]:
    return lambda: random.uniform(least, most)
