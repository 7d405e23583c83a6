"""The world around the scheduler in virtual time: kubelets, controllers, failing nodes, a clock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import ceil

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Bind, Plan
from phalanx.model.events import (
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
from phalanx.simulation.amounts import WorldAmounts
from phalanx.simulation.event_queue import EventOrder, EventQueue
from phalanx.simulation.history import JobHistory, JobOutcome, Stint
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.job_runs import JobRun, PodRun
from phalanx.simulation.present import PresentJob, replacement
from phalanx.simulation.promises import PromiseLog

# More cycles in one moment than this, and the scheduler would never come to rest.
_MOST_CYCLES = 1000
# So often it is looked again where nothing happens any more but the time that passes.
_MOST_FRUITLESS = 100


class Delays(msgspec.Struct, frozen=True):
    """How long the world takes, in seconds: `start` from a binding until the pod runs."""

    start: int = 0


class World:
    """One cluster, one policy, one list of jobs. `start` is the moment (seconds since the epoch) that jobs count
    their submission from.

    `looked` is called once per moment after its cycles, with the time. `held` is what each queue holds of the
    `main_resource`, `wanted` what all its jobs that have not ended ask for.
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
    ) -> None:
        self.state = state
        self.scheduler = Scheduler(state, policy, refresh_verdicts=False)
        self.promises = PromiseLog(state, reservation_plan(self.scheduler.features), main_resource)
        self.queue = EventQueue()
        self.start = self.now = start
        self._amounts = amounts = WorldAmounts(main_resource)
        self.used, self.capacity = amounts.used, amounts.capacity
        self.held, self.wanted = amounts.held, amounts.wanted
        self.histories: list[JobHistory] = []
        self._fruitless = 0
        self._adopted = 0
        self.cycles = self.binds = self.evictions = self.pod_events = 0
        self.waiting = 0  # jobs that have not started
        self.failures: list[str] = []
        self._delays = delays or Delays()
        self.looked: Callable[[int], None] = lambda now: None
        self.ended = 0
        self._runs: dict[str, JobRun] = {}  # by the uid of a pod that lives
        self._jobs: dict[GangKey, JobRun] = {}  # those that are gangs
        self.nodes: dict[str, Node] = {}
        for job in jobs:
            self.queue.add(start + job.submit, EventOrder.SUBMIT, partial(self._submit, job))

    # what the outside does

    def apply(self, events: Iterable[ClusterEvent]) -> None:
        """Nodes, queues and quotas as they are from now on."""
        for event in events:
            match event:
                case NodeUpdated(node):
                    self._amounts.resize(self.now, self.nodes.pop(node.name, None), node)
                    self.nodes[node.name] = node
                case NodeRemoved(name):
                    self._amounts.resize(self.now, self.nodes.pop(name, None), None)
            self.state.apply(event)
            if isinstance(event, NodeRemoved):
                self._lose_pods_of(event.name)

    @property
    def submitted(self) -> list[JobHistory]:
        """Those that have come, without those that were there at the beginning."""
        return self.histories[self._adopted :]

    def lose_node(self, when: int, name: str, duration: int | None) -> None:
        """A node fails with all that is on it; it is back after `duration` seconds, as it was (None: never)."""

        def lost() -> None:
            node = self.nodes.get(name)
            if node is None:
                return
            self.apply([NodeRemoved(name)])
            if duration is not None:
                self.at(self.now + duration, EventOrder.NODE, lambda: [NodeUpdated(node)])

        self.queue.add(when, EventOrder.NODE, lost)

    def at(self, when: int, order: EventOrder, events: Callable[[], Sequence[ClusterEvent]]) -> None:
        """Something that will come from outside; `events` is asked when it is time."""
        self.queue.add(when, order, lambda: self.apply(events()))

    def run(self, until: int | None = None, enough: Callable[[], bool] = lambda: False) -> None:
        """To the end of everything that happens, or until `until` (seconds since the epoch), or `enough` is so."""
        while (when := self._next_moment()) is not None and (until is None or when < until):
            self.now = when
            self._moment()
            if enough():
                return
        if until is not None:
            self.now = max(self.now, until)

    def _next_moment(self) -> int | None:
        if not self.scheduler.idle:
            return self.now
        when, wake = self.queue.next_time, self.scheduler.next_recheck
        if wake is None or not (self.waiting or self.queue):
            return when
        wake = max(self.now + 1, ceil(wake))
        if when is None:
            # Nothing will happen any more but what the scheduler itself waits for.
            return wake if self.waiting and self._fruitless < _MOST_FRUITLESS else None
        return min(when, wake)

    def _moment(self) -> None:
        now, scheduler, before = self.now, self.scheduler, self.binds + self.evictions
        for happening in self.queue.due(now):
            happening()
        scheduler.activate_due(now)
        for _ in range(_MOST_CYCLES):
            if scheduler.idle:
                break
            plan = scheduler.cycle(now)
            self.promises.update(self._history_of)
            self._carry_out(plan)
            # What begins and ends without delay belongs to this moment.
            for happening in self.queue.due(now):
                happening()
        self._fruitless = self._fruitless + 1 if self.binds + self.evictions == before else 0
        self.promises.measure(now, self.waiting)
        self.looked(now)

    def _history_of(self, key: UnitKey) -> JobHistory | None:
        run = self._runs.get(key) if isinstance(key, str) else self._jobs.get(key[0])
        return run.history if run is not None else None

    # jobs

    def _submit(self, job: SimulatedJob) -> None:
        if not self.histories:
            # What stood empty before there was anything to do says nothing about a policy.
            self.capacity.restart(self.now)
        history = JobHistory(
            job.name, self.now, job.width, job.pods, job.queue, job.user, job.limits.limit, job.priority
        )
        key = GangKey(job.namespace, job.name) if job.pods > 1 else None
        run = JobRun(job, history, key)
        self.histories.append(history)
        self._amounts.want(job, 1)
        self.waiting += 1
        if key is not None:
            self._jobs[key] = run
            self.state.apply(
                GangUpdated(
                    Gang(
                        key,
                        uid=job.name,
                        min_member=job.minimum,
                        # Who is left of a gang whose others are done still runs.
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
        made, run.made = run.made, run.made + 1
        name = job.name if job.pods == 1 and made == 0 else f"{job.name}-{made}"
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
        run.pods[name] = PodRun(pod, job.ends_after, saved)
        self._runs[name] = run
        self._observe(pod)

    def adopt(self, jobs: Iterable[PresentJob]) -> None:
        """Takes over pods that the state holds already."""
        if not self.histories:
            self.capacity.restart(self.now)
        for present in jobs:
            run = JobRun(present.job, present.history, present.gang, present=True)
            self.histories.append(run.history)
            self._adopted += 1
            self._amounts.want(run.job, 1)
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
        self._amounts.hold(self.now, run, [live], 1)
        if pod.terminating:
            when = max(pod.leaves, self.now + 1)
            self.queue.add(when, EventOrder.END, partial(self._leave, run, live))
        elif pod.started:
            live.started = pod.started
            if live.length is not None:
                self.queue.add(pod.started + live.length, EventOrder.END, partial(self._end, run, [live]))
        else:
            self.queue.add(self.now + self._delays.start, EventOrder.START, partial(self._begin, run, [live]))

    def _observe(self, pod: Pod) -> None:
        self.pod_events += 1
        self.state.apply(PodUpdated(pod))

    def _remove(self, uid: str) -> None:
        self.pod_events += 1
        del self._runs[uid]
        self.state.apply(PodRemoved(uid))

    # what the scheduler decides

    def _carry_out(self, plan: Plan) -> None:
        self.cycles += 1
        self.failures.extend(f"{failure.what}: {failure.why}" for failure in plan.failures)
        starting: dict[int, tuple[JobRun, list[PodRun]]] = {}
        for bind in plan.binds:
            self._bind(bind, starting)
        for run, pods in starting.values():
            self._amounts.hold(self.now, run, pods, 1)
            stint = Stint(self.now, Counter(live.pod.node for live in pods))
            run.history.stints.append(stint)
            for live in pods:
                live.stint = stint
            if self._delays.start:
                self.queue.add(self.now + self._delays.start, EventOrder.START, partial(self._begin, run, pods))
            else:
                self._plan_end(run, pods)
        for key in (admission.gang for admission in plan.admissions):
            record = self.state.gangs.get(key)
            if record is not None and record.spec is not None:
                self.state.apply(GangUpdated(msgspec.structs.replace(record.spec, admitted=True)))
        for evict in plan.evictions:
            self._evict(evict.uid)
        for entry in plan.gangs:
            if entry.verdict is not None and entry.gang in self._jobs:
                self._jobs[entry.gang].history.why = entry.verdict.message
        for told in plan.pods:
            if told.verdict is not None and told.uid in self._runs:
                self._runs[told.uid].history.why = told.verdict.message

    def _bind(self, bind: Bind, starting: dict[int, tuple[JobRun, list[PodRun]]]) -> None:
        run = self._runs[bind.uid]
        live = run.pods[bind.uid]
        live.bound = self.now
        delay = self._delays.start
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
            history.outcome = JobOutcome.RUNNING
            if history.start is None:
                history.start, history.node = self.now, bind.node
        starting.setdefault(id(run), (run, []))[1].append(live)

    def _begin(self, run: JobRun, pods: list[PodRun]) -> None:
        """Bound pods begin to run, unless they have gone meanwhile."""
        pods = [live for live in pods if live.pod.uid in run.pods and not live.pod.terminating]
        for live in pods:
            live.started = self.now
            live.pod = msgspec.structs.replace(live.pod, phase=PodPhase.RUNNING, started=self.now)
            self._observe(live.pod)
        self._plan_end(run, pods)

    def _plan_end(self, run: JobRun, pods: list[PodRun]) -> None:
        """Pods that have begun together end together, but for what some have saved before."""
        groups: dict[int, list[PodRun]] = {}
        for live in pods:
            if live.length is not None:
                groups.setdefault(live.length - live.saved, []).append(live)
        for left, group in groups.items():
            self.queue.add(self.now + left, EventOrder.END, partial(self._end, run, group))

    def _end(self, run: JobRun, pods: list[PodRun]) -> None:
        """The pods are done, or their limit kills them; those that have gone before are not among them."""
        ended = [live for live in pods if run.pods.get(live.pod.uid) is live and not live.pod.terminating]
        killed = run.job.killed
        for live in ended:
            if not killed and live.started is not None:
                run.history.useful += self.now - live.started + live.saved
            self._release(run, live)
            run.kept.append(live.pod.uid)
        self._amounts.hold(self.now, run, ended, -1)
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
        self._amounts.want(run.job, -1)
        for uid in run.kept:
            self._remove(uid)
        if run.key is not None:
            self.state.apply(GangRemoved(run.key))
            del self._jobs[run.key]

    def _withdraw(self, run: JobRun) -> None:
        """Its user gives up, unless it has started or begun to."""
        if run.history.start is not None or run.with_nodes:
            return
        self.waiting -= 1
        run.kept += run.pods
        run.pods.clear()
        self._finish(run, JobOutcome.WITHDRAWN)

    # what goes before its time

    def _evict(self, uid: str) -> None:
        run = self._runs[uid]
        run.history.evicted += 1
        self.evictions += 1
        self._tell_to_leave(run, run.pods[uid])

    def _tell_to_leave(self, run: JobRun, live: PodRun) -> None:
        grace = run.job.grace
        live.pod = msgspec.structs.replace(live.pod, terminating=True, leaves=self.now + grace)
        self._observe(live.pod)
        self.queue.add(self.now + grace, EventOrder.END, partial(self._leave, run, live))

    def _leave(self, run: JobRun, live: PodRun) -> None:
        if run.pods.get(live.pod.uid) is live:
            self._lose(run, [live])

    def _lose_pods_of(self, node: str) -> None:
        found: dict[int, tuple[JobRun, list[PodRun]]] = {}
        for uid, run in self._runs.items():
            live = run.pods.get(uid)
            if live is not None and live.bound is not None and live.pod.node == node:
                found.setdefault(id(run), (run, []))[1].append(live)
        for run, pods in found.values():
            run.history.lost += len(pods)
            self._lose(run, pods)

    def _lose(self, run: JobRun, pods: list[PodRun]) -> None:
        """The pods have gone and their controller makes others; a gang that falls below its quorum begins anew."""
        self._amounts.hold(self.now, run, [live for live in pods if live.bound is not None], -1)
        for live in pods:
            saved = live.saved
            if run.job.checkpoint and live.started is not None:
                done = live.saved + self.now - live.started
                saved = done - done % run.job.checkpoint
            self._release(run, live)
            self._remove(live.pod.uid)
            self._make_again(run, live, saved)
        if run.present and not run.pods:
            self._give_up(run)
            return
        succeeded = run.job.pods - run.remaining - run.lost
        if run.with_nodes + succeeded >= run.job.minimum or run.history.outcome is not JobOutcome.RUNNING:
            return
        run.history.restarts += 1
        run.history.outcome = JobOutcome.WAITING
        self.waiting += 1
        for live in [live for live in run.pods.values() if live.bound is not None and not live.pod.terminating]:
            self._tell_to_leave(run, live)

    def _make_again(self, run: JobRun, live: PodRun, saved: int) -> None:
        """As the controller of the pod does. Who was deleted by its user comes no more."""
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
        again = replacement(pod, f"{pod.name.partition('+')[0]}+{run.made}", self.now)
        run.pods[again.uid] = PodRun(again, live.length, saved)
        self._runs[again.uid] = run
        self._observe(again)

    def _give_up(self, run: JobRun) -> None:
        """All that is left of a job are pods that nobody makes again."""
        if run.history.outcome is JobOutcome.WAITING:
            self.waiting -= 1
        self._finish(run, JobOutcome.KILLED)

    def _release(self, run: JobRun, live: PodRun) -> None:
        """A pod holds its node no longer."""
        if live.bound is not None:
            run.with_nodes -= 1
        if live.stint is not None:
            live.stint.end = self.now
        if live.started is not None:
            run.history.ran += self.now - live.started
        live.bound = live.started = None
        del run.pods[live.pod.uid]
