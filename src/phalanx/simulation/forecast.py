"""A cluster as it goes on from one moment if nothing else comes: who starts when and where, who is evicted."""

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
from phalanx.simulation.capture import Capture
from phalanx.simulation.history import JobHistory, JobOutcome
from phalanx.simulation.job_runs import JobRun, PodRun
from phalanx.simulation.present import AssumedRunTimes, present_jobs
from phalanx.simulation.world import World


class PodMove(msgspec.Struct, frozen=True):
    """A pod of the job got a node, left it because its time was over, or was told to leave, at `when` (seconds
    since the epoch); `ran` is for how long it had run, in seconds, since its work was saved."""

    when: int
    job: str
    pod: str
    node: str
    priority: int = 0
    ran: int = 0


class Forecast(msgspec.Struct):
    """`jobs` are all gangs and pods on their own by name (namespace/name); of those, `running` had started before.
    `promised` are the starts that a policy which keeps starts would promise at once."""

    moment: int
    until: int
    jobs: dict[str, JobHistory]
    running: frozenset[str]
    members: dict[str, frozenset[str]]
    bound: list[PodMove]
    ended: list[PodMove]
    evicted: list[PodMove]
    promised: dict[str, int]
    failures: list[str]

    def start(self, name: str) -> int | None:
        """When a job starts that had not; None where it does not."""
        job = self.jobs.get(name)
        return job.start if job is not None else None

    def nodes(self, name: str) -> list[str]:
        """The nodes of the pods that a job gets until its start, one for each."""
        start = self.start(name)
        if start is None:
            return []
        placed = {move.pod: move.node for move in self.bound if move.job == name and move.when <= start}
        return sorted(placed.values())


class _ForecastWorld(World):
    """Takes down what happens to whom."""

    def __init__(self, state: ClusterState, policy: Policy, moment: int) -> None:
        super().__init__(state, policy, (), start=moment)
        self.bound: list[PodMove] = []
        self.left: list[PodMove] = []
        self.evicted: list[PodMove] = []

    def _bind(self, bind: Bind, starting: dict[int, tuple[JobRun, list[PodRun]]]) -> None:
        super()._bind(bind, starting)
        run = self._runs[bind.uid]
        self.bound.append(self._move(run, run.pods[bind.uid]))

    def _end(self, run: JobRun, pods: list[PodRun]) -> None:
        self.left += [self._move(run, live) for live in pods if run.pods.get(live.pod.uid) is live]
        super()._end(run, pods)

    def _leave(self, run: JobRun, live: PodRun) -> None:
        if run.pods.get(live.pod.uid) is live:
            self.left.append(self._move(run, live))
        super()._leave(run, live)

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
    """What follows within `horizon` seconds. `events` bring the cluster about, `then` happens to it at once.

    It is over when everything that waits has started, or all of `awaited` where some are named.
    """
    moment = capture.moment
    state = ClusterState(capture.schedulers)
    world = _ForecastWorld(state, policy, moment)
    world.apply(events)
    present = present_jobs(state, moment, run_times)
    world.adopt(present)
    running = frozenset(each.history.name for each in present if each.history.outcome is JobOutcome.RUNNING)
    members = {each.history.name: frozenset(pod.uid for pod, _ in each.pods) for each in present}
    load_promises(world.scheduler.features, capture.promises)
    world.scheduler.history.restore(capture.usages, moment)
    world.apply(then)
    promised: dict[str, int] = {}

    def look(now: int) -> None:
        if now == moment:
            promised.update(_promises(world))

    world.looked = look
    jobs = {each.history.name: each.history for each in present}
    waited = [jobs[name] for name in awaited if name in jobs]

    def enough() -> bool:
        if waited:
            return all(job.outcome is not JobOutcome.WAITING for job in waited)
        return not world.waiting

    world.run(moment + horizon, enough)
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
        world.failures[:20],
    )


def _promises(world: World) -> dict[str, int]:
    plan, found = reservation_plan(world.scheduler.features), dict[str, int]()
    for reservation in plan.all() if plan is not None else ():
        keys: list[str | GangKey] = [reservation.key] if isinstance(reservation.key, str) else [*reservation.key]
        for key in keys:
            found[name_of(world.state, key)] = reservation.told
    return found


def name_of(state: ClusterState, who: str | GangKey) -> str:
    """What a gang, or a pod on its own (by uid), is called here."""
    if isinstance(who, GangKey):
        return who.path
    record = state.pods.get(who)
    pod: Pod | None = record.pod if record is not None else None
    if record is not None and record.gang is not None:
        return record.gang.key.path
    return pod.key if pod is not None else who
