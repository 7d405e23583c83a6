"""The loop on a clock with fractions and disturbances, against virtual time, on random jobs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import partial
from random import Random

import pytest

from phalanx.model.promise_records import Slip, SlipCause

from .live_loop import LiveJob, LiveLoop, uniform
from .test_promises_on_a_clock import policy

pytestmark = pytest.mark.feature("start-reservations")

NODES = 12
#: Bounds of the disturbances in seconds. A unit can be delayed by each generation of pods before it.
START_DELAY, KILL_DELAY, REACTION = 44.0, 25.0, 1.5
ASSUMED_DELAY = 30
SHORTEST = 60
#: Seconds after the last submission in which all jobs end.
REST = 100_000
#: Causes whose delay is not bounded by those disturbances: the time until a node is back, and units of higher
#: priority.
_UNBOUNDED = {SlipCause.NODE_LOST, SlipCause.NODE_CLOSED, SlipCause.NODE_SHRUNK, SlipCause.DISPLACED}
_FAULTS = {SlipCause.UNKNOWN, SlipCause.NOT_PLACEABLE, SlipCause.CANNOT_START}


class Disturbed(LiveLoop):
    """A loop whose rules are checked after each round of cycles."""

    def __init__(self, depth: int, random: Random) -> None:
        super().__init__(
            policy(depth),
            start_delay=uniform(random, 0.1, START_DELAY),
            kill_delay=uniform(random, 0.0, KILL_DELAY),
            reaction=uniform(random, 0.005, REACTION),
        )
        self.after_cycles = self.check
        self.slips: dict[str, dict[tuple[int, SlipCause], Slip]] = {}
        self.idle_faults: list[str] = []

    def check(self) -> None:
        busy = Counter(pod.node for _, pod in self.pods.values() if pod.node)
        idle = sum(not node.unschedulable and not busy[node.name] for node in self.nodes.values())
        for reservation in self.plan.all():
            name = reservation.name.rpartition("/")[2]
            for slip in reservation.slips:
                self.slips.setdefault(name, {})[slip.when, slip.cause] = slip
            # Units of lower rank leave the idle nodes to those before them.
            due = min(reservation.promised, reservation.start) <= self.plan.now
            if due and idle >= reservation.pods:
                self.idle_faults.append(f"{self.now:.2f}: {reservation} waits beside {idle} idle nodes")
            idle -= min(idle, reservation.pods)


def workload(random: Random, number_of_jobs: int) -> list[LiveJob]:
    """Return jobs that keep 12 nodes busy and a queue of some twenty units behind them."""
    jobs, when = list[LiveJob](), 0.0
    for number in range(number_of_jobs):
        pods = random.choice((1, 1, 1, 2, 3, 5, 8, 12))
        limit = random.choice((SHORTEST, 120, 300, 600, 1200))
        runs = limit * random.uniform(0.2, 1.0) if random.random() < 0.5 else math.inf
        priority = random.choice((0, 0, 0, 0, 0, 10))
        jobs.append(LiveJob(f"j{number}", pods, limit, priority=priority, runs=runs, submitted=when))
        when += random.expovariate(NODES / (pods * min(limit, runs) * 1.6)) if number > 20 else 1.0
    return jobs


def disturb(loop: Disturbed, random: Random, until: float) -> None:
    """Cordon nodes, and let nodes fail and return."""
    when = 0.0
    while (when := when + random.expovariate(1 / 900)) < until:
        name, back = f"n{random.randint(1, NODES)}", when + random.uniform(30, 600)
        if random.random() < 0.6:
            loop.at(when, partial(loop.cordon, name))
            loop.at(back, partial(loop.cordon, name, False))
        else:
            node = loop.nodes[name]
            loop.at(when, partial(loop.lose_node, name))
            loop.at(back, partial(loop.set_node, node))


def bar(job: LiveJob) -> float:
    """Return the bound of a delay: each generation of pods before the start adds its disturbance."""
    generations = 1 + math.ceil((job.bound - job.submitted) / SHORTEST)
    excess = max(0.0, START_DELAY - ASSUMED_DELAY) + 1
    return generations * (excess + KILL_DELAY + 4 * REACTION) + ASSUMED_DELAY


def disturbed(depth: int, nodes_change: bool, number_of_jobs: int, seed: str) -> Disturbed:
    """Run jobs on the disturbed loop, and check each promise."""
    random = Random(seed)
    jobs = workload(random, number_of_jobs)
    loop = Disturbed(depth, random)
    loop.add_nodes(NODES)
    for job in jobs:
        loop.submit(job.submitted, job)
    if nodes_change:
        disturb(loop, random, jobs[-1].submitted)
    loop.run(jobs[-1].submitted + REST)
    assert not [job.name for job in jobs if math.isnan(job.bound)]
    assert not loop.idle_faults
    slips = {job.name: list(loop.slips.get(job.name, {}).values()) for job in jobs}
    assert not {name: slip for name in slips for slip in slips[name] if slip.cause in _FAULTS}
    assert not _FAULTS & set(loop.plan.starts.outcomes.counts)
    displaced = {
        (name, slip.by)
        for name in slips
        for slip in slips[name]
        if slip.cause is SlipCause.DISPLACED and _job(loop, slip.by).priority <= loop.jobs[name].priority
    }
    assert not displaced
    late = {
        job.name: (job.bound - job.promised, slips[job.name])
        for job in jobs
        if job.bound - job.promised > bar(job) and not _UNBOUNDED & {slip.cause for slip in slips[job.name]}
    }
    assert not late
    return loop


def _job(loop: LiveLoop, name: str) -> LiveJob:
    """Return the job of a gang or pod from its title."""
    return loop.jobs[name.rpartition("/")[2].partition("-")[0]]


def in_virtual_time(depth: int, jobs: Iterable[LiveJob]) -> LiveLoop:
    """Run the jobs on a clock of whole seconds, without disturbances."""
    loop = LiveLoop(policy(depth), lambda: ASSUMED_DELAY, lambda: 0.0, lambda: 0.0).add_nodes(NODES)
    for job in jobs:
        runs = float(math.ceil(job.runs)) if math.isfinite(job.runs) else job.runs
        fresh = LiveJob(job.name, job.pods, job.limit, job.queue, job.priority, runs)
        loop.submit(math.ceil(job.submitted), fresh)
    return loop.run(max(job.submitted for job in jobs) + REST)


def mean_wait(loop: LiveLoop) -> float:
    return sum(job.bound - job.submitted for job in loop.jobs.values()) / len(loop.jobs)


@pytest.mark.parametrize(("depth", "nodes_change"), [(0, True), (1, False)])
def test_short_disturbed_loop_keeps_promises_within_the_disturbance(depth: int, nodes_change: bool) -> None:
    disturbed(depth, nodes_change, 36, f"short {depth}")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("nodes_change", [False, True])
@pytest.mark.parametrize("depth", [0, 1, 3])
def test_disturbed_loop_keeps_promises_within_the_disturbance(depth: int, nodes_change: bool) -> None:
    """The six cases have more than 40,000 events together."""
    loop = disturbed(depth, nodes_change, 400, f"{depth}{nodes_change}")
    assert loop.events > 6_000
    exact = in_virtual_time(depth, loop.jobs.values())
    assert set(exact.plan.starts.outcomes.counts) <= {"Kept", "Displaced"}
    # Each start and each kill takes time: the queue is longer, as the nodes are nearly always busy.
    assert nodes_change or mean_wait(loop) < 1.5 * mean_wait(exact)
