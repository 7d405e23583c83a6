"""Comparison of policies: means over seeds with intervals, and paired differences to the first policy."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum, sqrt

from phalanx.simulation.runs import RunResult

# Two-sided 95 % of Student's t by degrees of freedom; beyond them the last one is close enough.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def interval(values: Sequence[float]) -> dict[str, float | None]:
    """Return the mean and its 95 % confidence interval (None for one value, which has no deviation)."""
    mean = fsum(values) / len(values)
    if len(values) < 2:
        return {"mean": mean, "low": None, "high": None}
    deviation = sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
    half = _T95[min(len(values) - 1, len(_T95)) - 1] * deviation / sqrt(len(values))
    return {"mean": mean, "low": mean - half, "high": mean + half}


def compare(runs: Sequence[RunResult], baseline: str) -> dict[str, object]:
    """Return by metric and policy: mean and interval over the seeds, whether it is only a lower bound, and the
    difference to the baseline, paired by seed."""
    policies = list(dict.fromkeys(run.policy for run in runs))
    values: dict[str, dict[str, dict[int, float]]] = {}
    for run in runs:
        for name, value in run.metrics.items():
            if isinstance(value, int | float):
                values.setdefault(name, {}).setdefault(run.policy, {})[run.seed] = float(value)
    comparison: dict[str, object] = {}
    for name, by_policy in values.items():
        base = by_policy.get(baseline, {})
        entry: dict[str, object] = {}
        for policy in policies:
            by_seed = by_policy.get(policy)
            if not by_seed:
                continue
            statistics: dict[str, object] = dict(interval(list(by_seed.values())))
            if any(name in run.lower_bounds for run in runs if run.policy == policy):
                statistics["lower_bound"] = True
            paired = [value - base[seed] for seed, value in by_seed.items() if seed in base]
            if policy != baseline and paired:
                statistics["difference"] = interval(paired)
            entry[policy] = statistics
        comparison[name] = entry
    return comparison
