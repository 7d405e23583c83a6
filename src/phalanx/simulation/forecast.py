"""Forecast of a cluster without further arrivals: start times and nodes of jobs, and evictions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Bind
from phalanx.model.events import ClusterEvent
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.start_reservations.plugin import load_promises, reservation_plan
from phalanx.scheduling.start_reservations.rehearsal import PromiseMove, moves_of
from phalanx.simulation.capture import Capture
from phalanx.simulation.history import JobHistory, JobOutcome
from phalanx.simulation.live_jobs import JobRun, PodRun
from phalanx.simulation.present import AssumedRunTimes, present_jobs
from phalanx.simulation.world import World


class PodMove(msgspec.Struct, frozen=True):
    """Binding, end or eviction of a pod on `node` at `when` (seconds since the epoch); `ran` is its run time in
    seconds since its last checkpoint."""

    when: int
    job: str
    pod: str
    node: str
    priority: int = 0
    ran: int = 0


class Forecast(msgspec.Struct):
    """Result of a forecast. `jobs` are all gangs and single pods by name (namespace/name); `running` had started
    before. `promised` are the starts that a policy with start reservations would promise at once, `moves` the
    promised starts of the capture that it would move at once."""

    moment: int
    until: int
    jobs: dict[str, JobHistory]
    running: frozenset[str]
    members: dict[str, frozenset[str]]
    bound: list[PodMove]
    ended: list[PodMove]
    evicted: list[PodMove]
    promised: dict[str, int]
    moves: dict[str, PromiseMove]
    failures: list[str]

    def start(self, name: str) -> int | None:
        """Return the start of a job, None if it does not start."""
        job = self.jobs.get(name)
        return job.start if job is not None else None

    def nodes(self, name: str) -> list[str]:
        """Return the nodes of the pods that a job has at its start, one entry per pod."""
        start = self.start(name)
        if start is None:
            return []
        placed = {move.pod: move.node for move in self.bound if move.job == name and move.when <= start}
        return sorted(placed.values())


class _ForecastWorld(World):
    """World that records bindings, ends and evictions of pods."""

    def __init__(self, state: ClusterState, policy: Policy, moment: int) -> None:
        super().__init__(state, policy, (), start=moment)
        self.bound: list[PodMove] = []
        self.left: list[PodMove] = []
        self.evicted: list[PodMove] = []

    def _bind(self, bind: Bind, starting: dict[int, tuple[JobRun, list[PodRun]]]) -> None:
        super()._bind(bind, starting)
        run = self._runs[bind.uid]
        self.bound.append(self._move(run, run.pods[bind.uid]))

    def _end_pods(self, run: JobRun, pods: list[PodRun]) -> None:
        self.left += [self._move(run, live) for live in pods if run.pods.get(live.pod.uid) is live]
        super()._end_pods(run, pods)

    def _complete_deletion(self, run: JobRun, live: PodRun) -> None:
        if run.pods.get(live.pod.uid) is live:
            self.left.append(self._move(run, live))
        super()._complete_deletion(run, live)

    def _evict(self, uid: str) -> None:
        run = self._runs[uid]
        self.evicted.append(self._move(run, run.pods[uid]))
        super()._evict(uid)

    def _move(self, run: JobRun, live: PodRun) -> PodMove:
        pod = live.pod
        since = max(live.started or self.now, pod.checkpoint)
        return PodMove(self.now, run.history.name, pod.key, pod.node, pod.priority, max(0, self.now - since))


def forecast(
    events: Sequence[ClusterEvent],
    policy: Policy,
    capture: Capture,
    run_times: AssumedRunTimes,
    horizon: int,
    then: Sequence[ClusterEvent] = (),
    awaited: Collection[str] = (),
) -> Forecast:
    """Return the forecast for `horizon` seconds. `events` create the cluster, `then` is applied at the beginning.

    It ends when every waiting job has started, or all of `awaited` if that is not empty.
    """
    moment = capture.moment
    state = ClusterState(capture.schedulers)
    world = _ForecastWorld(state, policy, moment)
    world.apply(events)
    present = present_jobs(state, moment, run_times)
    world.adopt(present)
    running = frozenset(job.history.name for job in present if job.history.outcome is JobOutcome.RUNNING)
    members = {job.history.name: frozenset(pod.uid for pod, _ in job.pods) for job in present}
    load_promises(world.scheduler.features, capture.promises)
    world.scheduler.history.restore(capture.usages, moment)
    world.apply(then)
    promised: dict[str, int] = {}
    moves: dict[str, PromiseMove] = {}

    def observe(now: int) -> None:
        if now == moment:
            promised.update(_promises(world))
            moves.clear()
            moves.update(_moves(world))

    world.observer = observe
    jobs = {job.history.name: job.history for job in present}
    awaited_jobs = [jobs[name] for name in awaited if name in jobs]

    def is_complete() -> bool:
        if awaited_jobs:
            return all(job.outcome is not JobOutcome.WAITING for job in awaited_jobs)
        return not world.waiting

    world.run(moment + horizon, is_complete)
    return Forecast(
        moment,
        world.now,
        jobs,
        running,
        members,
        world.bound,
        world.left,
        world.evicted,
        promised,
        moves,
        world.failures[:20],
    )


def _promises(world: World) -> dict[str, int]:
    plan, starts = reservation_plan(world.scheduler.features), dict[str, int]()
    for reservation in plan.all() if plan is not None else ():
        keys: list[str | GangKey] = [reservation.key] if isinstance(reservation.key, str) else [*reservation.key]
        for key in keys:
            starts[name_of(world.state, key)] = reservation.told
    return starts


def _moves(world: World) -> dict[str, PromiseMove]:
    plan, moves = reservation_plan(world.scheduler.features), dict[str, PromiseMove]()
    for move in moves_of(plan) if plan is not None else ():
        key = move.promise.key
        for unit in (key,) if isinstance(key, str) else key:
            moves[name_of(world.state, unit)] = move
    return moves


def name_of(state: ClusterState, unit: str | GangKey) -> str:
    """Return the name of a gang, or of a single pod (by uid), in a forecast."""
    if isinstance(unit, GangKey):
        return unit.path
    record = state.pods.get(unit)
    pod: Pod | None = record.pod if record is not None else None
    if record is not None and record.gang is not None:
        return record.gang.key.path
    return pod.key if pod is not None else unit
