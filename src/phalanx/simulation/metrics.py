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
    "jobs", "mean_wait_seconds", "p50_wait_seconds", "p90_wait_seconds", "p99_wait_seconds", "max_wait_seconds",
    "mean_bounded_slowdown", "p50_bounded_slowdown", "p90_bounded_slowdown", "p99_bounded_slowdown",
)  # fmt: skip


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


def job_metrics(jobs: Sequence[JobHistory], now: int) -> dict[str, float | int]:
    """Return the metrics of jobs: run times of ended jobs, waits of started jobs."""
    started = [job for job in jobs if job.start is not None]
    ended = [job for job in started if job.end is not None and job.outcome is not JobOutcome.WITHDRAWN]
    waits = sorted(float(job.wait(now)) for job in started)
    slowdowns = sorted(bounded_slowdown(job.wait(now), job.run) for job in ended)
    flows = [float(job.wait(now) + job.run) for job in ended]
    outcomes = Counter(job.outcome for job in jobs)
    ran, useful = sum(job.ran for job in jobs), sum(job.useful for job in jobs)
    return {
        "jobs": len(jobs),
        "jobs_done": outcomes[JobOutcome.DONE],
        "jobs_killed_at_limit": outcomes[JobOutcome.KILLED],
        "jobs_withdrawn": outcomes[JobOutcome.WITHDRAWN],
        "jobs_running": outcomes[JobOutcome.RUNNING],
        "jobs_waiting": outcomes[JobOutcome.WAITING],
        "mean_wait_seconds": mean(waits),
        "p50_wait_seconds": percentile(waits, 50),
        "p90_wait_seconds": percentile(waits, 90),
        "p99_wait_seconds": percentile(waits, 99),
        "max_wait_seconds": waits[-1] if waits else 0.0,
        "mean_flow_seconds": mean(flows),
        "mean_bounded_slowdown": mean(slowdowns),
        "p50_bounded_slowdown": percentile(slowdowns, 50),
        "p90_bounded_slowdown": percentile(slowdowns, 90),
        "p99_bounded_slowdown": percentile(slowdowns, 99),
        "max_bounded_slowdown": slowdowns[-1] if slowdowns else 0.0,
        "makespan_seconds": max((job.end for job in ended if job.end is not None), default=now)
        - min((job.submit for job in jobs), default=now),
        "evictions": sum(job.evicted for job in jobs),
        "evictions_per_1000_gangs": 1000 * sum(job.evicted for job in jobs) / len(jobs) if jobs else 0.0,
        "restarts": sum(job.restarts for job in jobs),
        "pods_lost_with_nodes": sum(job.lost for job in jobs),
        "goodput": useful / ran if ran else 1.0,
        "wasted_pod_hours": (ran - useful) / 3600,
    }


def by_group(
    jobs: Sequence[JobHistory], group: Callable[[JobHistory], str], now: int
) -> dict[str, dict[str, float | int]]:
    """Return waits and slowdowns by group, in order of the groups' first jobs."""
    groups: dict[str, list[JobHistory]] = {}
    for job in jobs:
        groups.setdefault(group(job), []).append(job)
    group_metrics = {name: job_metrics(members, now) for name, members in groups.items()}
    return {name: {key: metrics[key] for key in _OF_GROUPS} for name, metrics in group_metrics.items()}


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


def promise_metrics(jobs: Sequence[JobHistory]) -> dict[str, float | int]:
    """Return the deviations of starts from their first promised start, including those with a named cause."""
    deviations = [lateness for job in jobs if (lateness := job.lateness) is not None]
    late = [float(max(0, value)) for value in deviations]
    return {
        "promises_kept_ratio": sum(not value for value in late) / len(late) if late else 1.0,
        "mean_lateness_seconds": mean(late),
        "max_lateness_seconds": max(late, default=0.0),
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
