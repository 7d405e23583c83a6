"""Simulated surroundings of the scheduler in virtual time: kubelets, controllers, failing nodes, a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import ceil

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Bind, Plan
from phalanx.model.events import (
    AdvanceReservationRemoved,
    AdvanceReservationUpdated,
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import Gang, GangKey, MatchPolicy
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodPhase
from phalanx.model.resources import CPU
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.start_reservations.plugin import reservation_plan
from phalanx.simulation.delays import DelayDraws, Delays
from phalanx.simulation.event_queue import EventOrder, EventQueue
from phalanx.simulation.history import JobHistory, JobOutcome, Stint
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.live_jobs import JobRun, PodRun
from phalanx.simulation.present import PresentJob, replacement
from phalanx.simulation.promises import PromiseLog
from phalanx.simulation.usage import ClusterUsage
from phalanx.simulation.workloads.distributions import Distribution, stream

# Limit of cycles in one moment, so that a scheduler that never becomes idle does not block the simulation.
_MOST_CYCLES = 1000
# Limit of rechecks while only the time passes and no other event is left.
_MAX_FRUITLESS = 100


class World:
    """One cluster, one policy, one list of jobs. `start` is the zero of the jobs' submission times (seconds
    since the epoch).

    `seed` selects the delays and failures, which are the same under every policy. `observer` is called once per
    moment after its cycles, with the time. `resolve_pod` returns a new pod with the facts of other objects, such as
    the advance reservations that it can use. `held` is the amount of `main_resource` by queue, `wanted` the
    requests of all its jobs that have not ended.
    """

    def __init__(
        self,
        state: ClusterState,
        policy: Policy,
        jobs: Iterable[SimulatedJob],
        *,
        start: int,
        delays: Delays | None = None,
        main_resource: str = CPU,
        seed: int = 0,
    ) -> None:
        self.state = state
        self.scheduler = Scheduler(state, policy, refresh_verdicts=False)
        self.promises = PromiseLog(state, reservation_plan(self.scheduler.features), main_resource)
        self.queue = EventQueue()
        self.start = self.now = start
        self._usage = ClusterUsage(main_resource)
        self.used, self.capacity = self._usage.used, self._usage.capacity
        self.held, self.wanted = self._usage.held, self._usage.wanted
        self.histories: list[JobHistory] = []
        self._fruitless = 0
        # Whether the scheduler was idle at the end of the last moment.
        self._settled = False
        self._adopted = 0
        self.cycles = self.binds = self.evictions = self.pod_events = 0
        self.waiting = 0  # jobs that have not started
        self.failures: list[str] = []
        self._delays = DelayDraws(delays or Delays(), seed)
        self._seed = seed
        self.observer: Callable[[int], None] = lambda now: None
        self.resolve_pod: Callable[[SimulatedJob, Pod], Pod] = lambda job, pod: pod
        self.ended = 0
        self._runs: dict[str, JobRun] = {}  # by the uid of a live pod
        self._jobs: dict[GangKey, JobRun] = {}  # jobs that are gangs
        self.nodes: dict[str, Node] = {}
        for job in jobs:
            self.queue.add(start + job.submit, EventOrder.SUBMIT, partial(self._submit, job))

    # events from outside

    def apply(self, events: Iterable[ClusterEvent]) -> None:
        """Apply changes of nodes, queues and quotas."""
        for event in events:
            match event:
                case NodeUpdated(node):
                    self._usage.resize(self.now, self.nodes.pop(node.name, None), node)
                    self.nodes[node.name] = node
                case NodeRemoved(name):
                    self._usage.resize(self.now, self.nodes.pop(name, None), None)
            self.state.apply(event)
            if isinstance(event, NodeRemoved):
                self._lose_pods_of(event.name)
            elif isinstance(event, AdvanceReservationUpdated | AdvanceReservationRemoved):
                self._resolve_waiting_pods()

    @property
    def submitted(self) -> list[JobHistory]:
        """Histories of submitted jobs, without those that existed at the beginning."""
        return self.histories[self._adopted :]

    def _resolve_waiting_pods(self) -> None:
        """Resolve the pods without a node again, after a change of advance reservations."""
        for run in [*dict.fromkeys(self._runs.values())]:
            for live in run.pods.values() if not run.present else ():
                plain = msgspec.structs.replace(live.pod, pod_class=run.job.pod_class)
                pod = self.resolve_pod(run.job, plain)
                if live.bound is None and pod != live.pod:
                    live.pod = pod
                    self._observe(pod)

    def lose_node(self, when: int, name: str, duration: int | None) -> None:
        """Fail a node with all its pods; it returns unchanged after `duration` seconds (None: never)."""

        def fail_node() -> None:
            node = self.nodes.get(name)
            if node is None:
                return
            self.apply([NodeRemoved(name)])
            if duration is not None:
                self.at(self.now + duration, EventOrder.NODE, lambda: [NodeUpdated(node)])

        self.queue.add(when, EventOrder.NODE, fail_node)

    def at(self, when: int, order: EventOrder, events: Callable[[], Sequence[ClusterEvent]]) -> None:
        """Schedule events from outside; `events` is called when the time has come."""
        self.queue.add(when, order, lambda: self.apply(events()))

    def run(self, until: int | None = None, enough: Callable[[], bool] = lambda: False) -> None:
        """Run until no event is left, or until `until` (seconds since the epoch), or until `enough()` is True."""
        self._settled = False
        while (when := self._next_moment()) is not None and (until is None or when < until):
            self.now = when
            self._moment()
            if enough():
                return
        if until is not None:
            self.now = max(self.now, until)

    def _next_moment(self) -> int | None:
        if not (self._settled or self.scheduler.idle):
            return self.now
        when, wake = self.queue.next_time, self.scheduler.next_recheck
        if wake is None or not (self.waiting or self.queue):
            return when
        wake = max(self.now + 1, ceil(wake))
        if when is None:
            # Only the scheduler's own rechecks are left.
            return wake if self.waiting and self._fruitless < _MAX_FRUITLESS else None
        return min(when, wake)

    def _moment(self) -> None:
        now, scheduler, before = self.now, self.scheduler, self.binds + self.evictions
        for effect in self.queue.due(now):
            effect()
        scheduler.activate_due(now)
        for _ in range(_MOST_CYCLES):
            self._settled = scheduler.idle
            if self._settled:
                break
            plan = scheduler.cycle(now)
            self.promises.update(self._history_of)
            self._execute(plan)
            # Events without a delay belong to the same moment.
            for effect in self.queue.due(now):
                effect()
        self._fruitless = self._fruitless + 1 if self.binds + self.evictions == before else 0
        self.promises.measure(now, self.waiting)
        self.observer(now)

    def _history_of(self, key: UnitKey) -> JobHistory | None:
        run = self._runs.get(key) if isinstance(key, str) else self._jobs.get(key[0])
        return run.history if run is not None else None

    # jobs

    def _submit(self, job: SimulatedJob) -> None:
        if not self.histories:
            # Idle capacity before the first job does not depend on the policy, so it is not counted.
            self.capacity.restart(self.now)
        history = JobHistory(
            job.name, self.now, job.width, job.pods, job.queue, job.user, job.limits.limit, job.priority,
            work=job.ends_after,
        )  # fmt: skip
        key = GangKey(job.namespace, job.name) if job.pods > 1 else None
        run = JobRun(job, history, key)
        self.histories.append(history)
        self._usage.add_demand(job, 1)
        self.waiting += 1
        if key is not None:
            self._jobs[key] = run
            self.state.apply(
                GangUpdated(
                    Gang(
                        key,
                        uid=job.name,
                        min_member=job.minimum,
                        # A gang still runs while some members run and the others have succeeded.
                        match_policy=MatchPolicy.WAITING_RUNNING_SUCCEEDED,
                        queue=job.queue,
                        created=self.now,
                        preemptable=job.preemptable,
                        total=job.pods,
                    )
                )
            )
        for number in range(job.pods):
            self._make_pod(run, number)
        if job.patience is not None:
            self.queue.add(self.now + job.patience, EventOrder.TIMER, partial(self._withdraw, run))

    def _make_pod(self, run: JobRun, index: int, saved: int = 0) -> None:
        job = run.job
        number, run.made = run.made, run.made + 1
        name = job.name if job.pods == 1 and number == 0 else f"{job.name}-{number}"
        pod = Pod(
            job.namespace,
            name,
            name,
            job.pod_class,
            job.pod_class.requests,
            "phalanx",
            priority=job.priority,
            created=self.now,
            gang=job.name if job.pods > 1 else "",
            index=index,
            queue=job.queue,
            user=job.user,
            grace=job.grace,
            preemptable=job.preemptable,
            controller=job.name,
            run_time=job.limits,
        )
        pod = self.resolve_pod(job, pod)
        run.pods[name] = PodRun(pod, job.ends_after, saved)
        self._runs[name] = run
        self._observe(pod)

    def adopt(self, jobs: Iterable[PresentJob]) -> None:
        """Adopt pods that the state has already."""
        if not self.histories:
            self.capacity.restart(self.now)
        for present in jobs:
            run = JobRun(present.job, present.history, present.gang, present=True)
            self.histories.append(run.history)
            self._adopted += 1
            self._usage.add_demand(run.job, 1)
            run.kept, run.remaining = list(present.ended), len(present.pods)
            self._runs.update(dict.fromkeys(present.ended, run))
            if run.key is not None:
                self._jobs[run.key] = run
            stint = Stint(self.now, {})
            for pod, length in present.pods:
                live = PodRun(pod, length)
                self._adopt_pod(run, live)
                if live.bound is not None:
                    live.stint, stint.begin = stint, min(stint.begin, live.bound)
                    stint.nodes[pod.node] = stint.nodes.get(pod.node, 0) + 1
            run.history.stints += [stint] if stint.nodes else []
            ended = len(present.ended)
            if run.with_nodes and run.with_nodes + ended >= run.job.minimum:
                run.history.outcome = JobOutcome.RUNNING
            else:
                run.history.start = None
                self.waiting += 1

    def _adopt_pod(self, run: JobRun, live: PodRun) -> None:
        pod = live.pod
        run.pods[pod.uid] = live
        self._runs[pod.uid] = run
        if not pod.node:
            return
        live.bound = pod.bound or pod.started or self.now
        run.with_nodes += 1
        self._usage.add_pods(self.now, run, [live], 1)
        if pod.terminating:
            when = max(pod.leaves, self.now + 1)
            self.queue.add(when, EventOrder.END, partial(self._complete_deletion, run, live))
        elif pod.started:
            live.started = pod.started
            if live.length is not None:
                self.queue.add(pod.started + live.length, EventOrder.END, partial(self._end_pods, run, [live]))
        else:
            delay = self._delays.start(pod.uid)
            self.queue.add(self.now + delay, EventOrder.START, partial(self._start_pods, run, [live]))

    def _observe(self, pod: Pod) -> None:
        self.pod_events += 1
        self.state.apply(PodUpdated(pod))

    def _remove(self, uid: str) -> None:
        self.pod_events += 1
        del self._runs[uid]
        self.state.apply(PodRemoved(uid))

    # decisions of the scheduler

    def _execute(self, plan: Plan) -> None:
        self.cycles += 1
        self.failures.extend(f"{failure.what}: {failure.why}" for failure in plan.failures)
        starting: dict[int, tuple[JobRun, list[PodRun]]] = {}
        for bind in plan.binds:
            self._bind(bind, starting)
        for run, pods in starting.values():
            self._usage.add_pods(self.now, run, pods, 1)
            stint = Stint(self.now, Counter(live.pod.node for live in pods))
            run.history.stints.append(stint)
            groups: dict[int, list[PodRun]] = {}
            for live in pods:
                live.stint = stint
                groups.setdefault(live.start_delay, []).append(live)
            for delay, group in groups.items():
                if delay:
                    self.queue.add(self.now + delay, EventOrder.START, partial(self._start_pods, run, group))
                else:
                    self._plan_end(run, group)
        for key in (admission.gang for admission in plan.admissions):
            record = self.state.gangs.get(key)
            if record is not None and record.spec is not None:
                self.state.apply(GangUpdated(msgspec.structs.replace(record.spec, admitted=True)))
        for evict in plan.evictions:
            self._evict(evict.uid)
        for entry in plan.gangs:
            if entry.verdict is not None and entry.gang in self._jobs:
                self._jobs[entry.gang].history.why = entry.verdict.message
        for pod_entry in plan.pods:
            if pod_entry.verdict is not None and pod_entry.uid in self._runs:
                self._runs[pod_entry.uid].history.why = pod_entry.verdict.message

    def _bind(self, bind: Bind, starting: dict[int, tuple[JobRun, list[PodRun]]]) -> None:
        run = self._runs[bind.uid]
        live = run.pods[bind.uid]
        live.bound = self.now
        delay = live.start_delay = self._delays.start(bind.uid)
        live.pod = msgspec.structs.replace(
            live.pod,
            node=bind.node,
            mark=bind.mark,
            bound=self.now,
            phase=PodPhase.PENDING if delay else PodPhase.RUNNING,
            started=0 if delay else self.now,
        )
        if not delay:
            live.started = self.now
        self.binds += 1
        self._observe(live.pod)
        run.with_nodes += 1
        history = run.history
        if run.with_nodes >= run.job.minimum and history.outcome is JobOutcome.WAITING:
            self.waiting -= 1
            history.outcome, history.interrupted = JobOutcome.RUNNING, None
            if history.start is None:
                history.start, history.node = self.now, bind.node
            if run.job.failures is not None:
                self._plan_failure(run, run.job.failures)
        starting.setdefault(id(run), (run, []))[1].append(live)

    def _start_pods(self, run: JobRun, pods: list[PodRun]) -> None:
        """Start bound pods, unless they were deleted before."""
        pods = [live for live in pods if live.pod.uid in run.pods and not live.pod.terminating]
        for live in pods:
            live.started = self.now
            live.pod = msgspec.structs.replace(live.pod, phase=PodPhase.RUNNING, started=self.now)
            self._observe(live.pod)
        self._plan_end(run, pods)

    def _plan_end(self, run: JobRun, pods: list[PodRun]) -> None:
        """Schedule the ends of pods: one event for all that leave their nodes at the same time."""
        groups: dict[int, list[PodRun]] = {}
        for live in pods:
            if live.length is not None:
                live.end_delay = self._delays.end(live.pod.uid)
                groups.setdefault(live.length - live.saved + live.end_delay, []).append(live)
        for remaining, group in groups.items():
            self.queue.add(self.now + remaining, EventOrder.END, partial(self._end_pods, run, group))

    def _end_pods(self, run: JobRun, pods: list[PodRun]) -> None:
        """End pods at the end of their work or at their run-time limit; skip deleted pods."""
        ended = [live for live in pods if run.pods.get(live.pod.uid) is live and not live.pod.terminating]
        killed = run.job.killed
        for live in ended:
            if not killed and live.started is not None:
                run.history.useful += self.now - live.started + live.saved - live.end_delay
            self._release(run, live)
            run.kept.append(live.pod.uid)
        self._usage.add_pods(self.now, run, ended, -1)
        run.remaining -= len(ended)
        if ended and not run.remaining:
            self._finish(run, JobOutcome.KILLED if killed else JobOutcome.DONE)
            return
        for live in ended:
            phase = PodPhase.FAILED if killed else PodPhase.SUCCEEDED
            self._observe(msgspec.structs.replace(live.pod, phase=phase))

    def _finish(self, run: JobRun, outcome: JobOutcome) -> None:
        run.history.end, run.history.outcome = self.now, outcome
        self.ended += 1
        self._usage.add_demand(run.job, -1)
        for uid in run.kept:
            self._remove(uid)
        if run.key is not None:
            self.state.apply(GangRemoved(run.key))
            del self._jobs[run.key]

    def _withdraw(self, run: JobRun) -> None:
        """Withdraw a job for its user, unless it has started or a pod is bound."""
        if run.history.start is not None or run.with_nodes:
            return
        self.waiting -= 1
        run.kept += run.pods
        run.pods.clear()
        self._finish(run, JobOutcome.WITHDRAWN)

    # evictions, failures and losses

    def _plan_failure(self, run: JobRun, interval: Distribution) -> None:
        """Schedule the next failure of a pod of a running job."""
        number = run.history.failures
        if number < run.job.most_failures:
            draws = stream(self._seed, "job failures", run.job.name, str(number))
            when = self.now + max(1, interval.draw(draws))
            self.queue.add(when, EventOrder.END, partial(self._fail_pod, run, run.history.restarts, interval))

    def _fail_pod(self, run: JobRun, restarts: int, interval: Distribution) -> None:
        """Fail the first pod of a job, if the job still runs since the failure was planned."""
        if run.history.outcome is not JobOutcome.RUNNING or run.history.restarts != restarts:
            return
        live = next((pod for pod in run.pods.values() if pod.bound is not None and not pod.pod.terminating), None)
        if live is None:
            return
        run.history.failures += 1
        self._lose_pods(run, [live])
        if run.history.outcome is JobOutcome.RUNNING:
            self._plan_failure(run, interval)

    def _evict(self, uid: str) -> None:
        run = self._runs[uid]
        run.history.evicted += 1
        self.evictions += 1
        self._terminate_pod(run, run.pods[uid])

    def _terminate_pod(self, run: JobRun, live: PodRun) -> None:
        grace = run.job.grace
        live.pod = msgspec.structs.replace(live.pod, terminating=True, leaves=self.now + grace)
        self._observe(live.pod)
        leaves = self.now + grace + self._delays.end(live.pod.uid)
        self.queue.add(leaves, EventOrder.END, partial(self._complete_deletion, run, live))

    def _complete_deletion(self, run: JobRun, live: PodRun) -> None:
        if run.pods.get(live.pod.uid) is live:
            self._lose_pods(run, [live])

    def _lose_pods_of(self, node: str) -> None:
        losses: dict[int, tuple[JobRun, list[PodRun]]] = {}
        for uid, run in self._runs.items():
            live = run.pods.get(uid)
            if live is not None and live.bound is not None and live.pod.node == node:
                losses.setdefault(id(run), (run, []))[1].append(live)
        for run, pods in losses.values():
            run.history.lost += len(pods)
            self._lose_pods(run, pods)

    def _lose_pods(self, run: JobRun, pods: list[PodRun]) -> None:
        """Remove pods and recreate them as their controller does; a gang below its quorum restarts."""
        self._usage.add_pods(self.now, run, [live for live in pods if live.bound is not None], -1)
        for live in pods:
            saved = live.saved
            if run.job.checkpoint and live.started is not None:
                work = live.saved + self.now - live.started
                saved = work - work % run.job.checkpoint
            self._release(run, live)
            self._remove(live.pod.uid)
            self._recreate_pod(run, live, saved)
        if run.present and not run.pods:
            self._abandon(run)
            return
        succeeded = run.job.pods - run.remaining - run.lost
        if run.with_nodes + succeeded >= run.job.minimum or run.history.outcome is not JobOutcome.RUNNING:
            return
        run.history.restarts += 1
        run.history.outcome, run.history.interrupted = JobOutcome.WAITING, self.now
        self.waiting += 1
        for live in [live for live in run.pods.values() if live.bound is not None and not live.pod.terminating]:
            self._terminate_pod(run, live)

    def _recreate_pod(self, run: JobRun, live: PodRun, saved: int) -> None:
        """Recreate a pod as its controller does, unless its user had deleted it."""
        pod = live.pod
        if not run.present:
            self._make_pod(run, pod.index, saved)
            return
        deleted = live.deleted and not pod.condemned
        if not pod.controller or deleted:
            run.lost += 1
            run.remaining -= 1
            return
        run.made += 1
        successor = replacement(pod, f"{pod.name.partition('+')[0]}+{run.made}", self.now)
        run.pods[successor.uid] = PodRun(successor, live.length, saved)
        self._runs[successor.uid] = run
        self._observe(successor)

    def _abandon(self, run: JobRun) -> None:
        """Finish a job without pods, because no controller recreates them."""
        if run.history.outcome is JobOutcome.WAITING:
            self.waiting -= 1
        self._finish(run, JobOutcome.KILLED)

    def _release(self, run: JobRun, live: PodRun) -> None:
        """Release the node of a pod."""
        if live.bound is not None:
            run.with_nodes -= 1
        if live.stint is not None:
            live.stint.end = self.now
        if live.started is not None:
            run.history.ran += self.now - live.started
        live.bound = live.started = None
        del run.pods[live.pod.uid]
