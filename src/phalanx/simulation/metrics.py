"""Metrics of a simulation, with the names and formulas of the field (docs/simulate.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import fsum

from phalanx.scheduling.reservations.calibration import TOLD, Score
from phalanx.scheduling.reservations.outcomes import BROKEN, KEPT, PromiseOutcomes
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.simulation.history import JobHistory, JobOutcome
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.timeline import TimelineSample

# Lower bound of run times in seconds: the slowdown of a very short job has no meaning.
TAU = 10
# Requested part of the cluster's capacity, in percent.
_LOADS = (80, 90, 100, 110, 120, 130)
# Classes of run-time limits, in seconds.
LIMITS = (("5m", 300), ("15m", 900), ("1h", 3600), ("4h", 14400), ("12h", 43200), ("1d", 86400), ("4d", 345600))
LONGER, NO_LIMIT = "longer", "none"
_OF_GROUPS = (
    "jobs", "never_started", "censored_waits", "mean_wait_seconds", "p50_wait_seconds", "p90_wait_seconds",
    "p99_wait_seconds", "max_wait_seconds", "mean_bounded_slowdown", "p50_bounded_slowdown", "p90_bounded_slowdown",
    "p99_bounded_slowdown",
)  # fmt: skip
_OF_PROMISES = ("promises_kept_ratio", "mean_lateness_seconds", "max_lateness_seconds", "mean_earliness_seconds")
_PERCENTILES = (50, 90, 99)
# A value, and whether it is only a lower bound.
Censored = tuple[float, bool]


def bounded_slowdown(wait: int, run: int) -> float:
    """Return max(1, (wait + run) / max(tau, run)) (Feitelson)."""
    return max(1.0, (wait + run) / max(TAU, run))


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the smallest value with at least `percent` % of `values` (ascending) at or below it; 0 for none."""
    if not values:
        return 0.0
    return values[max(0, -(-len(values) * percent // 100) - 1)]


def mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0


def jain(shares: Sequence[float]) -> float:
    """Return (sum x)^2 / (n sum x^2): 1 if all shares are equal, 1/n if one has everything."""
    squares = fsum(share * share for share in shares)
    return fsum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def job_slowdown(job: JobHistory, now: int) -> Censored | None:
    """Return the bounded slowdown of a job; a lower bound if it has not ended. None for a job without an end.

    The run time of an interrupted job is the time that its work needs, because its repetitions are waits too."""
    if job.end is not None and job.outcome is not JobOutcome.WITHDRAWN:
        run = min(job.run, job.work) if job.work is not None else job.run
        return bounded_slowdown(job.flow(now) - run, run), False
    if job.work is None:
        return None
    if job.outcome is JobOutcome.RUNNING:
        return bounded_slowdown(max(job.wait(now), job.flow(now) - job.work), job.work), True
    return bounded_slowdown(job.wait(now), job.work), True


def _distribution(name: str, values: Sequence[Censored]) -> tuple[dict[str, float | int], set[str]]:
    """Return the mean, percentiles and maximum, and the names of those that are only lower bounds."""
    ordered = sorted(value for value, _ in values)
    lowest = min((value for value, censored in values if censored), default=None)
    metrics: dict[str, float | int] = {f"mean_{name}": mean(ordered)}
    metrics |= {f"p{percent}_{name}": percentile(ordered, percent) for percent in _PERCENTILES}
    metrics[f"max_{name}"] = ordered[-1] if ordered else 0.0
    if lowest is None:
        return metrics, set()
    always = (f"mean_{name}", f"max_{name}")
    return metrics, {key for key, value in metrics.items() if key in always or value >= lowest}


def job_metrics(jobs: Sequence[JobHistory], now: int) -> dict[str, float | int]:
    """Return the metrics of jobs. A job that waits at the end counts with its wait so far (`lower_bounds`)."""
    return _measure(jobs, now)[0]


def lower_bounds(jobs: Sequence[JobHistory], now: int) -> list[str]:
    """Return the names of the metrics that are only lower bounds, because jobs have not started or not ended."""
    return sorted(_measure(jobs, now)[1])


def _waits(jobs: Sequence[JobHistory], now: int) -> tuple[dict[str, float | int], set[str]]:
    """Return the counts and the waits of jobs, and the names of those that are only lower bounds."""
    waits = [(float(job.wait(now)), job.wait_is_censored) for job in jobs]
    metrics, bounds = _distribution("wait_seconds", waits)
    counts = {"censored_waits": sum(censored for _, censored in waits)}
    return counts | metrics, bounds


def _slowdowns(jobs: Sequence[JobHistory], now: int) -> tuple[dict[str, float | int], set[str]]:
    values = [value for job in jobs if (value := job_slowdown(job, now)) is not None]
    return _distribution("bounded_slowdown", values)


def _measure(jobs: Sequence[JobHistory], now: int) -> tuple[dict[str, float | int], set[str]]:
    # Jobs without an end have no flow and do not extend the makespan.
    finite = [job for job in jobs if job.end is not None or job.work is not None]
    unfinished = any(job.end is None or job.outcome is JobOutcome.WITHDRAWN for job in finite)
    outcomes = Counter(job.outcome for job in jobs)
    ran, useful = sum(job.ran for job in jobs), sum(job.useful for job in jobs)
    wait_metrics, wait_bounds = _waits(jobs, now)
    slowdown_metrics, slowdown_bounds = _slowdowns(jobs, now)
    first = min((job.submit for job in jobs), default=now)
    metrics: dict[str, float | int] = {
        "never_started": sum(job.never_started for job in jobs),
        "jobs": len(jobs),
        "jobs_done": outcomes[JobOutcome.DONE],
        "jobs_killed_at_limit": outcomes[JobOutcome.KILLED],
        "jobs_withdrawn": outcomes[JobOutcome.WITHDRAWN],
        "jobs_running": outcomes[JobOutcome.RUNNING],
        "jobs_waiting": outcomes[JobOutcome.WAITING],
        **wait_metrics,
        "mean_flow_seconds": mean([float(job.flow(now)) for job in finite]),
        **slowdown_metrics,
        "makespan_seconds": max((job.end if job.end is not None else now for job in finite), default=now) - first,
        "evictions": sum(job.evicted for job in jobs),
        "evictions_per_1000_gangs": 1000 * sum(job.evicted for job in jobs) / len(jobs) if jobs else 0.0,
        "restarts": sum(job.restarts for job in jobs),
        "pods_lost_with_nodes": sum(job.lost for job in jobs),
        "pods_failed": sum(job.failures for job in jobs),
        "goodput": useful / ran if ran else 1.0,
        "wasted_pod_hours": (ran - useful) / 3600,
    }
    bounds = wait_bounds | slowdown_bounds
    return metrics, bounds | ({"mean_flow_seconds", "makespan_seconds"} if unfinished else set())


def by_group(
    jobs: Sequence[JobHistory], group: Callable[[JobHistory], str], now: int
) -> dict[str, dict[str, float | int]]:
    """Return waits, slowdowns and the number of jobs that never started by group, in order of the groups' first
    jobs."""
    groups: dict[str, list[JobHistory]] = {}
    for job in jobs:
        groups.setdefault(group(job), []).append(job)
    group_metrics: dict[str, dict[str, float | int]] = {}
    for name, members in groups.items():
        counts = {"jobs": len(members), "never_started": sum(job.never_started for job in members)}
        metrics = counts | _waits(members, now)[0] | _slowdowns(members, now)[0]
        group_metrics[name] = {key: metrics[key] for key in _OF_GROUPS}
    return group_metrics


def width_class(job: JobHistory) -> str:
    """Return the width class of a job: 1, 2, 3-4, 5-8, ... (powers of two)."""
    top = 1
    while top < job.width:
        top *= 2
    low = top // 2 + 1
    return str(top) if low >= top else f"{low}-{top}"


def limit_class(job: JobHistory) -> str:
    """Return the class of a job's run-time limit; classes grow by a factor of about four."""
    if not job.limit:
        return NO_LIMIT
    return next((name for name, bound in LIMITS if job.limit <= bound), LONGER)


def promise_metrics(jobs: Sequence[JobHistory], now: int) -> dict[str, float | int | None]:
    """Return the deviations of starts from their first promised start, including those with a named cause. A job
    that waits after its promised start counts with its delay so far. None if no start was promised."""
    deviations = [lateness for job in jobs if (lateness := job.lateness_at(now)) is not None]
    if not deviations:
        return dict.fromkeys(_OF_PROMISES)
    late = [float(max(0, value)) for value in deviations]
    return {
        "promises_kept_ratio": sum(not value for value in late) / len(late),
        "mean_lateness_seconds": mean(late),
        "max_lateness_seconds": max(late),
        "mean_earliness_seconds": mean([float(max(0, -value)) for value in deviations]),
    }


def ratio(used: Mapping[str, int], offered: Mapping[str, int]) -> dict[str, float]:
    """Return used / offered by resource, for the offered resources; both are amount seconds."""
    return {name: used.get(name, 0) / amount for name, amount in sorted(offered.items()) if amount}


def allocation_at_loads(
    jobs: Sequence[SimulatedJob], histories: Sequence[JobHistory], resource: str, offered: int
) -> dict[str, float]:
    """Return the allocated part of the capacity when arrived jobs request 80 to 130 % of it, for `resource`.

    The key for 100 % is `allocation_at_load_100`. Empty if a job of the workload ends."""
    if not offered or any(job.run_time is not None for job in jobs):
        return {}
    ratios: dict[str, float] = {}
    requested = allocated = 0
    loads = list(_LOADS)
    for job, history in zip(sorted(jobs, key=lambda candidate: candidate.submit), histories, strict=False):
        amount = job.pods * dict(job.pod_class.requests).get(resource, 0)
        while loads and (requested + amount) * 100 > loads[0] * offered:
            ratios[f"allocation_at_load_{loads.pop(0)}"] = allocated / offered
        requested += amount
        allocated += amount if history.start is not None else 0
    if loads and requested * 100 >= (loads[0] - 1) * offered:
        ratios[f"allocation_at_load_{loads[0]}"] = allocated / offered
    return ratios


def fairness(samples: Sequence[TimelineSample]) -> tuple[float, float]:
    """Return (Jain's index, mean gap) of queues with a fair share.

    The index is over the ratios of allocated amount to fair share. The gap is the mean over time and queues of
    their difference, as a part of the fair share."""
    allocated: dict[str, int] = {}
    fair: dict[str, int] = {}
    gaps: dict[str, int] = {}
    for sample, following in pairwise(samples):
        length = following.time - sample.time
        for queue, share in sample.fair.items():
            amount = sample.held.get(queue, 0)
            allocated[queue] = allocated.get(queue, 0) + amount * length
            fair[queue] = fair.get(queue, 0) + share * length
            gaps[queue] = gaps.get(queue, 0) + abs(amount - share) * length
    shared = [queue for queue in sorted(fair) if fair[queue]]
    return jain([allocated[queue] / fair[queue] for queue in shared]), mean([gaps[q] / fair[q] for q in shared])


def start_metrics(plan: ReservationPlan | None) -> dict[str, float | int | None]:
    """Return the accuracy of promised starts over a whole run; None for a value with too little data."""
    outcomes = plan.starts.outcomes if plan is not None else PromiseOutcomes()
    score = plan.starts.calibration.total if plan is not None else Score()
    metrics: dict[str, float | int | None] = {
        "promises": sum(outcomes.counts.values()),
        "broken_promises": outcomes.counts[BROKEN],
        "slipped_promises": sum(outcomes.counts.values()) - outcomes.counts[BROKEN] - outcomes.counts[KEPT],
    }
    for percent, part in zip(TOLD, score.coverage, strict=True):
        metrics[f"coverage_p{percent}"] = part if score.starts else None
    metrics["pinball_loss"] = score.pinball_loss if score.starts else None
    return metrics


def saturated(jobs: Sequence[JobHistory], samples: Sequence[TimelineSample]) -> bool:
    """Return whether more jobs arrived than the cluster can run: the queue at the last tenth of the arrivals is
    longer (by half, and by ten jobs) than at the middle tenth. Then waits depend on the simulated time."""
    if len(jobs) < 20:
        return False
    submits = sorted(job.submit for job in jobs)
    count = len(submits)

    def waiting(start: int, end: int) -> float:
        return mean([float(sample.waiting) for sample in samples if submits[start] <= sample.time <= submits[end]])

    middle, last = waiting(count * 45 // 100, count * 55 // 100), waiting(count * 9 // 10, count - 1)
    return last > 1.5 * middle and last > middle + 10
