"""One simulation from its inputs to its metrics; picklable, for sweeps over processes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.daemon.policy_file import dialect_options
from phalanx.model.account import AccountKey, Tree
from phalanx.model.resources import CPU
from phalanx.model.text.moments import shown_span
from phalanx.scheduling.defragmentation.plugin import Defragmentation
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.quota.water_filling import ShareClaimant, fill
from phalanx.scheduling.start_reservations.plugin import load_promises, reservation_plan
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.errors import InputError
from phalanx.simulation.fragmentation import WorkloadFragmentation
from phalanx.simulation.gantt import GanttHour, gantt_hour
from phalanx.simulation.gpus import GPU, GPU_MILLI, WHOLE_CARD
from phalanx.simulation.history import JobHistory
from phalanx.simulation.job import SimulatedJob, distinct_jobs
from phalanx.simulation.metrics import (
    allocation_at_loads,
    by_group,
    fairness,
    job_metrics,
    limit_class,
    lower_bounds,
    mean,
    promise_metrics,
    ratio,
    saturated,
    start_metrics,
    width_class,
)
from phalanx.simulation.present import AssumedRunTimes, present_jobs
from phalanx.simulation.reservation_use import reservation_resolver
from phalanx.simulation.timeline import SampledTimeline, TimelineSample
from phalanx.simulation.workloads.workload import Workload
from phalanx.simulation.world import World

# 2026-01-01T00:00:00Z: beginning of virtual time, unless a log has its own.
EPOCH = 1_767_225_600
# Fragmentation is computed for one in this many samples.
_FRAGMENTATION_SAMPLES = 16
# Number of internal units of a resource in one unit of reports.
_UNIT = {CPU: 1000, GPU_MILLI: WHOLE_CARD}
Progress = Callable[[int, int], None]
Metrics = dict[str, float | int | str | None]


class NamedPolicy(msgspec.Struct, frozen=True):
    """Name and text of a policy file; "" is the built-in policy."""

    name: str
    text: str = ""


class Speed(msgspec.Struct, frozen=True):
    """Counts of a run, for rates per second of real time."""

    pod_events: int
    cycles: int
    decisions: int


class RunResult(msgspec.Struct):
    """Result of one run. `start` and `end` are seconds since the epoch; `failures` are scheduler exceptions.
    `unit` is the amount of the most important resource that reports show as 1. `lower_bounds` are the names of the
    metrics that would grow if the run went on: jobs wait or run at its end.
    """

    policy: str
    seed: int
    start: int
    end: int
    metrics: Metrics
    by_width: dict[str, dict[str, float | int]]
    by_limit: dict[str, dict[str, float | int]]
    by_queue: dict[str, dict[str, float | int]]
    jobs: list[JobHistory]
    samples: list[TimelineSample]
    gantt: GanttHour
    speed: Speed
    unit: int = 1
    failures: list[str] = []
    lower_bounds: list[str] = []


class Experiment(msgspec.Struct, frozen=True):
    """Input of a run: all workloads together, in one cluster.

    `until` and `hour` are in seconds after the beginning; `hour` selects the chart of nodes (None: the hour with
    the longest queue)."""

    cluster: SimulatedCluster
    workloads: tuple[Workload, ...]
    until: int | None = None
    hour: int | None = None


def simulate(
    experiment: Experiment, policy: NamedPolicy, seed: int, progress: Progress = lambda done, total: None
) -> RunResult:
    """Run one simulation. `progress` gets the counts of ended and of all jobs. Raises InputError, PolicyError."""
    loaded = load_policy(policy.text, policy.name) if policy.text else load_policy()
    cluster = experiment.cluster
    intake, initial_events = cluster.open(dialect_options(loaded))
    jobs = distinct_jobs([job for workload in experiment.workloads for job in workload.jobs(seed, cluster)])
    start = (
        cluster.start or next((workload.start for workload in experiment.workloads if workload.start), 0) or EPOCH
    )
    first = min((job.submit for job in jobs), default=0)
    if jobs and experiment.until is not None and first >= experiment.until and cluster.capture is None:
        raise InputError(
            f"--until: the simulation would end before the first job arrives, after {shown_span(first)}"
        )
    requested = {name for job in jobs for name, _ in job.pod_class.requests}
    main = next((name for name in (GPU_MILLI, GPU) if name in requested), CPU)
    timeline = SampledTimeline()
    world = World(
        ClusterState(cluster.schedulers), loaded, jobs, start=start, delays=cluster.delays, main_resource=main,
        seed=seed,
    )  # fmt: skip
    world.resolve_pod = reservation_resolver(intake)
    fragmentation = WorkloadFragmentation(jobs) if main in (GPU, GPU_MILLI) else None

    def observe(now: int) -> None:
        if timeline.wants(now):
            # The ratio costs as much as many cycles, and changes slowly.
            sampled = fragmentation if len(timeline.samples) % _FRAGMENTATION_SAMPLES == 0 else None
            timeline.add(_sample(world, main, now, sampled))
            progress(world.ended, len(jobs))

    world.observer = observe
    world.apply(initial_events)
    world.adopt(present_jobs(world.state, start, AssumedRunTimes.ESTIMATES))
    if cluster.capture is not None:
        load_promises(world.scheduler.features, cluster.capture.promises)
        world.scheduler.history.restore(cluster.capture.usages, start)
    for workload in experiment.workloads:
        workload.schedule(world, intake, seed)
    with _rare_collections():
        world.run(start + experiment.until if experiment.until is not None else None)
    timeline.add(_sample(world, main, world.now, fragmentation))
    progress(len(jobs), len(jobs))
    # Jobs that ran before are excluded, because they do not depend on the policy.
    measured = [job for job in world.histories if job.start is None or job.start >= start]
    hour = start + experiment.hour if experiment.hour is not None else None
    gantt = gantt_hour(world.histories, timeline.samples, hour, world.now)
    for history in world.histories:
        history.stints.clear()
    return RunResult(
        policy.name,
        seed,
        start,
        world.now,
        _metrics(world, measured, main, timeline.samples, jobs),
        by_group(measured, width_class, world.now),
        by_group(measured, limit_class, world.now),
        by_group(measured, lambda job: job.queue, world.now),
        world.histories,
        timeline.samples,
        gantt,
        Speed(world.pod_events, world.cycles, world.binds + world.evictions),
        _UNIT.get(main, 1),
        world.failures[:20],
        lower_bounds(measured, world.now),
    )


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Run garbage collections rarely: nearly all objects of a run have no cycles or live until its end."""
    thresholds = gc.get_threshold()
    gc.set_threshold(200_000, 50, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def _metrics(
    world: World,
    measured: Sequence[JobHistory],
    main: str,
    samples: Sequence[TimelineSample],
    jobs: Sequence[SimulatedJob],
) -> Metrics:
    metrics: Metrics = dict(job_metrics(measured, world.now))
    parts = ratio(world.used.total(world.now), world.capacity.total(world.now))
    metrics["jobs_not_submitted"] = len(jobs) - len(world.submitted)
    metrics["utilisation"] = parts.get(main, 0.0)
    metrics["utilisation_resource"] = main
    if main in (GPU, GPU_MILLI):
        metrics["gpu_allocation_ratio"] = parts.get(main, 0.0)
        ratios = [sample.fragmentation for sample in samples if sample.fragmentation is not None]
        metrics["fragmentation"] = mean(ratios)
        metrics["final_gpu_allocation_ratio"] = samples[-1].used.get(main, 0.0)
        metrics.update(allocation_at_loads(jobs, world.submitted, main, world.capacity.amounts.get(main, 0)))
    metrics["jain_index"], metrics["mean_share_gap"] = fairness(samples)
    metrics["saturated"] = int(saturated(measured, samples))
    metrics |= start_metrics(reservation_plan(world.scheduler.features))
    metrics.update(promise_metrics(measured, world.now))
    idle_hours = world.promises.idle_seconds / (3600 * _UNIT.get(main, 1))
    metrics["reserved_idle_gpu_hours"] = idle_hours if main != CPU else 0.0
    metrics["reserved_idle_cpu_hours"] = idle_hours if main == CPU else 0.0
    defragmentation = world.scheduler.features.get(Defragmentation)
    metrics["moves"] = defragmentation.runs.moved if defragmentation is not None else 0
    metrics["cycles"] = world.cycles
    metrics["decisions"] = world.binds + world.evictions
    return metrics


def _sample(world: World, main: str, now: int, fragmentation: WorkloadFragmentation | None) -> TimelineSample:
    offered = world.capacity.amounts
    used = {
        name: round(world.used.amounts.get(name, 0) / amount, 6)
        for name, amount in sorted(offered.items())
        if amount
    }
    running = len(world.histories) - world.waiting - world.ended
    accounts = world.state.ledger.accounts
    claims = []
    for queue, wanted in sorted(world.wanted.items()):
        account = accounts.get(AccountKey(Tree.QUEUE, queue))
        claims.append(ShareClaimant(queue, account.weight if account is not None else 1, wanted))
    fragmented = fragmentation.ratio(world.state) if fragmentation is not None else None
    fair = fill(offered.get(main, 0), claims)
    allocated = dict(sorted(world.held.items()))
    reserved = round(world.promises.idle / offered[main], 6) if offered.get(main) else 0.0
    return TimelineSample(now, world.waiting, running, used, allocated, dict(fair), fragmented, reserved)
