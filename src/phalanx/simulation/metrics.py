"""What a simulation is judged by; names and formulas are the field's own (docs/simulate.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from math import fsum

from phalanx.scheduling.reservations.calibration import TOLD, Score
from phalanx.scheduling.reservations.outcomes import KEPT, NO_CAUSE, PromiseOutcomes
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.simulation.history import JobHistory, JobOutcome
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.timeline import TimelineSample

# Runs shorter than this (seconds) count as this long: a slowdown of something that takes no time says nothing.
TAU = 10
# Percent of what the cluster offers that has been asked for so far.
_LOADS = (80, 90, 100, 110, 120, 130)
# Classes of limits, in seconds.
LIMITS = (("5m", 300), ("15m", 900), ("1h", 3600), ("4h", 14400), ("12h", 43200), ("1d", 86400), ("4d", 345600))
LONGER, NO_LIMIT = "longer", "none"
_OF_GROUPS = (
    "jobs", "mean_wait_seconds", "p50_wait_seconds", "p90_wait_seconds", "p99_wait_seconds", "max_wait_seconds",
    "mean_bounded_slowdown", "p50_bounded_slowdown", "p90_bounded_slowdown", "p99_bounded_slowdown",
)  # fmt: skip


def bounded_slowdown(wait: int, run: int) -> float:
    """max(1, (wait + run) / max(tau, run)) (Feitelson)."""
    return max(1.0, (wait + run) / max(TAU, run))


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of a hundred do not exceed; `values` ascending, 0 for none."""
    if not values:
        return 0.0
    return values[max(0, -(-len(values) * percent // 100) - 1)]


def mean(values: Sequence[float]) -> float:
    return fsum(values) / len(values) if values else 0.0


def jain(shares: Sequence[float]) -> float:
    """(sum x)^2 / (n sum x^2): 1 where all are alike, 1/n where one has everything."""
    squares = fsum(share * share for share in shares)
    return fsum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def job_metrics(jobs: Sequence[JobHistory], now: int) -> dict[str, float | int]:
    """About those that have ended where a run time is needed, and about those that have started for waits."""
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
    """Waits and slowdowns of each group, groups in order of their names as they come."""
    groups: dict[str, list[JobHistory]] = {}
    for job in jobs:
        groups.setdefault(group(job), []).append(job)
    found = {name: job_metrics(members, now) for name, members in groups.items()}
    return {name: {key: metrics[key] for key in _OF_GROUPS} for name, metrics in found.items()}


def width_class(job: JobHistory) -> str:
    """1, 2, 3-4, 5-8, ... : powers of two."""
    top = 1
    while top < job.width:
        top *= 2
    low = top // 2 + 1
    return str(top) if low >= top else f"{low}-{top}"


def limit_class(job: JobHistory) -> str:
    """How long it may run at most, in classes that grow by about four."""
    if not job.limit:
        return NO_LIMIT
    return next((name for name, most in LIMITS if job.limit <= most), LONGER)


def promise_metrics(jobs: Sequence[JobHistory]) -> dict[str, float | int]:
    """How far those starts that were promised came from the first promise, those with a named cause included."""
    found = [each for job in jobs if (each := job.lateness) is not None]
    late = [float(max(0, each)) for each in found]
    return {
        "promises_kept_ratio": sum(not each for each in late) / len(late) if late else 1.0,
        "mean_lateness_seconds": mean(late),
        "max_lateness_seconds": max(late, default=0.0),
        "mean_earliness_seconds": mean([float(max(0, -each)) for each in found]),
    }


def ratio(used: Mapping[str, int], offered: Mapping[str, int]) -> dict[str, float]:
    """By resource, of those that are offered; amount seconds of both."""
    return {name: used.get(name, 0) / amount for name, amount in sorted(offered.items()) if amount}


def allocation_at_loads(
    jobs: Sequence[SimulatedJob], histories: Sequence[JobHistory], resource: str, offered: int
) -> dict[str, float]:
    """`allocation_at_load_100` is the part of what is offered that was held when jobs had come that ask for all of
    it; only of workloads in which nobody ever ends."""
    if not offered or any(job.run_time is not None for job in jobs):
        return {}
    found: dict[str, float] = {}
    asked = held = 0
    loads = list(_LOADS)
    for job, history in zip(sorted(jobs, key=lambda each: each.submit), histories, strict=False):
        amount = job.pods * dict(job.pod_class.requests).get(resource, 0)
        while loads and (asked + amount) * 100 > loads[0] * offered:
            found[f"allocation_at_load_{loads.pop(0)}"] = held / offered
        asked += amount
        held += amount if history.start is not None else 0
    if loads and asked * 100 >= (loads[0] - 1) * offered:
        found[f"allocation_at_load_{loads[0]}"] = held / offered
    return found


def fairness(samples: Sequence[TimelineSample]) -> tuple[float, float]:
    """(Jain's index over the queues' ratios of what they held to their fair shares, the mean over time and queues
    of how far they were apart as a part of the fair share), of queues that had a fair share at all."""
    held: dict[str, int] = {}
    fair: dict[str, int] = {}
    gaps: dict[str, int] = {}
    for sample, following in pairwise(samples):
        length = following.time - sample.time
        for queue, share in sample.fair.items():
            mine = sample.held.get(queue, 0)
            held[queue] = held.get(queue, 0) + mine * length
            fair[queue] = fair.get(queue, 0) + share * length
            gaps[queue] = gaps.get(queue, 0) + abs(mine - share) * length
    shared = [queue for queue in sorted(fair) if fair[queue]]
    return jain([held[queue] / fair[queue] for queue in shared]), mean([gaps[q] / fair[q] for q in shared])


def start_metrics(plan: ReservationPlan | None) -> dict[str, float | int | None]:
    """How promised starts came true: over all of a run; None where there was too little to say."""
    outcomes = plan.starts.outcomes if plan is not None else PromiseOutcomes()
    score = plan.starts.calibration.total if plan is not None else Score()
    found: dict[str, float | int | None] = {
        "promises": sum(outcomes.counts.values()),
        "broken_promises": outcomes.counts[NO_CAUSE],
        "slipped_promises": sum(outcomes.counts.values()) - outcomes.counts[NO_CAUSE] - outcomes.counts[KEPT],
    }
    for percent, part in zip(TOLD, score.coverage, strict=True):
        found[f"coverage_p{percent}"] = part if score.starts else None
    found["pinball_loss"] = score.pinball_loss if score.starts else None
    return found


def saturated(jobs: Sequence[JobHistory], samples: Sequence[TimelineSample]) -> bool:
    """Whether more came than could be served: the last tenth of the arrivals found a longer queue (by a half, and
    by ten jobs) than the middle tenth, so that waits tell how long was looked at rather than how well it went."""
    if len(jobs) < 20:
        return False
    submits = sorted(job.submit for job in jobs)
    count = len(submits)

    def waiting(start: int, end: int) -> float:
        return mean([float(each.waiting) for each in samples if submits[start] <= each.time <= submits[end]])

    middle, last = waiting(count * 45 // 100, count * 55 // 100), waiting(count * 9 // 10, count - 1)
    return last > 1.5 * middle and last > middle + 10
