"""Effect of a policy on a metric: better, worse, equal or unclear, compared with another policy."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from phalanx.simulation.report.metric_words import Better, MetricWords

# A difference below this part of the value is none.
_NEGLIGIBLE = 0.005


class Effect(enum.StrEnum):
    """Effect of a change of the policy."""

    BETTER = "better"
    WORSE = "worse"
    EQUAL = "equal"
    UNCLEAR = "unclear"


def effect(metric: MetricWords, comparison: Mapping[str, Any], base: str, policy: str) -> Effect | None:
    """Return the effect of `policy` compared with `base`; None for a metric without a better direction.

    It is unclear if the interval over the seeds contains 0, or if the better value is a lower bound because more
    jobs have not started."""
    entries = comparison.get(metric.key, {})
    before, after = entries.get(base), entries.get(policy)
    if metric.better is Better.NEITHER or before is None or after is None:
        return None
    difference = after["mean"] - before["mean"]
    if abs(difference) <= _NEGLIGIBLE * max(abs(before["mean"]), abs(after["mean"])):
        return Effect.EQUAL
    spread = after.get("difference")
    if spread is not None and spread["low"] is not None and spread["low"] <= 0 <= spread["high"]:
        return Effect.UNCLEAR
    improved = (difference < 0) is (metric.better is Better.LESS)
    winner, loser = (policy, base) if improved else (base, policy)
    if entries[winner].get("lower_bound") and _censored(comparison, winner) > _censored(comparison, loser):
        return Effect.UNCLEAR
    return Effect.BETTER if improved else Effect.WORSE


def _censored(comparison: Mapping[str, Any], policy: str) -> float:
    return float(comparison["censored_waits"][policy]["mean"])
