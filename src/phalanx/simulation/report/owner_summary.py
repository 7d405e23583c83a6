"""Three sentences for the owner of a cluster: which policy, the improvements, the deteriorations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from phalanx.simulation.report.effects import Effect, effect
from phalanx.simulation.report.group_comparison import by_width
from phalanx.simulation.report.metric_words import shown_value, words_of
from phalanx.simulation.runs import RunResult

# Metrics that matter to an owner, as parts of a sentence, the most important one first.
_OWNER_METRICS = {
    "never_started": "the number of jobs that never start",
    "mean_wait_seconds": "the mean wait",
    "p99_wait_seconds": "the wait of the last 1 % of the jobs",
    "mean_bounded_slowdown": "the mean bounded slowdown",
    "utilisation": "the used part of the cluster",
    "promises_kept_ratio": "the part of starts not later than promised",
    "evictions": "the number of evicted pods",
    "wasted_pod_hours": "the lost pod-hours",
    "mean_share_gap": "the distance of queues from their fair shares",
    "fragmentation": "the part of idle GPUs that no job can use",
    "makespan_seconds": "the time until the last job ends",
}
_MOST = 4
# Smallest change of a mean wait of one width that is reported: a part of it, and seconds.
_WIDTH_PART, _WIDTH_SECONDS = 0.1, 60


def owner_sentences(summary: Mapping[str, Any], runs: Sequence[RunResult]) -> tuple[str, str, str]:
    """Return the three sentences. For one policy they state its starts, the use of the cluster and its losses."""
    policies: list[str] = summary["policies"]
    if len(policies) == 1:
        return _one_policy(summary, policies[0])
    comparison, baseline = summary["comparison"], policies[0]
    ordered = sorted(policies, key=lambda policy: _rank(comparison, policy))
    best = next(
        policy for policy in ordered if policy == baseline or _is_clearly_better(comparison, baseline, policy)
    )
    other = baseline if best != baseline else next(policy for policy in ordered if policy != baseline)
    better, worse = _changes(summary, runs, other, best)
    first = _choice(summary, baseline, best, other, bool(better or worse))
    improves = (
        f"Compared with {other}, {best} improves {_listed(better)}."
        if better
        else f"Compared with {other}, {best} improves no measured value clearly."
    )
    worsens = f"It makes worse {_listed(worse)}." if worse else "It makes no measured value clearly worse."
    return first, improves, worsens


def _is_clearly_better(comparison: Mapping[str, Any], baseline: str, policy: str) -> bool:
    """Return whether a policy is worth a change: fewer jobs never start, or the mean wait is clearly shorter."""
    (never, _), (before, _) = _rank(comparison, policy), _rank(comparison, baseline)
    if never != before:
        return never < before
    return effect(words_of("mean_wait_seconds"), comparison, baseline, policy) is Effect.BETTER


def _choice(summary: Mapping[str, Any], baseline: str, best: str, other: str, differs: bool) -> str:
    if not differs:
        return f"{best} and {other} do not differ clearly for this workload."
    comparison, counts, seeds = summary["comparison"], summary["never_started"], len(summary["seeds"])
    never, all_jobs, others = counts[best]["never_started"], counts[best]["jobs"], counts[other]["never_started"]
    wait, others_wait = (_shown(comparison, "mean_wait_seconds", policy) for policy in (best, other))
    in_runs = f" in {seeds} runs" if seeds > 1 else ""
    jobs = f"{never:,} of {all_jobs:,} jobs{in_runs} never start ({other}: {others:,})"
    waits = f"the mean wait is {wait} ({other}: {others_wait})"
    relative = _relative(comparison, baseline, other, best)
    is_clear = effect(words_of("mean_wait_seconds"), relative, other, best) is Effect.BETTER
    if best == baseline and never == others and not is_clear:
        return (
            f"Keep {best} for this workload, because no difference of the mean wait is clear: {jobs}, and {waits}."
        )
    return f"{'Keep' if best == baseline else 'Use'} {best} for this workload: {jobs}, and {waits}."


def _listed(parts: Sequence[str]) -> str:
    return ", ".join(parts[:-1]) + " and " + parts[-1] if len(parts) > 1 else parts[0]


def _one_policy(summary: Mapping[str, Any], policy: str) -> tuple[str, str, str]:
    comparison, counts = summary["comparison"], summary["never_started"][policy]
    first = f"Under {policy}, {counts['never_started']:,} of {counts['jobs']:,} jobs never start"
    worst = [
        f"{entry['never_started']:,} of {entry['jobs']:,} of width {width}"
        for width, entry in sorted(counts["by_width"].items(), key=lambda item: -item[1]["never_started"])
        if entry["never_started"]
    ][:2]
    first += f" ({', '.join(worst)})" if worst else ""
    first += (
        f"; half of the jobs wait at most {_shown(comparison, 'p50_wait_seconds', policy)}, and 99 % at most"
        f" {_shown(comparison, 'p99_wait_seconds', policy)}."
    )
    second = f"The jobs use {_shown(comparison, 'utilisation', policy)} of the cluster over the whole time."
    evicted, lost, longest = (
        _shown(comparison, key, policy) for key in ("evictions", "wasted_pod_hours", "max_wait_seconds")
    )
    third = f"{evicted} pods are evicted, {lost} pod-hours are lost, and the longest wait is {longest}."
    return first, second, third


def _changes(
    summary: Mapping[str, Any], runs: Sequence[RunResult], base: str, policy: str
) -> tuple[list[str], list[str]]:
    """Return the improvements and deteriorations of `policy` in words, the most important ones first."""
    comparison = _relative(summary["comparison"], summary["policies"][0], base, policy)
    better, worse = list[str](), list[str]()
    for key, words in _OWNER_METRICS.items():
        found = effect(words_of(key), comparison, base, policy)
        if found not in (Effect.BETTER, Effect.WORSE):
            continue
        change = f"{words} ({_shown(comparison, key, base)} → {_shown(comparison, key, policy)})"
        (better if found is Effect.BETTER else worse).append(change)
    narrower, wider = _changes_by_width(summary, runs, base, policy)
    return [*better[:_MOST], *narrower[:1]], [*wider[:2], *worse[:_MOST]]


def _relative(comparison: Mapping[str, Any], baseline: str, base: str, policy: str) -> Mapping[str, Any]:
    """Return the comparison with paired differences from `base` to `policy`; the file has those to the baseline.

    If `policy` is the baseline, the difference of `base` counts reversed; otherwise `base` must be the baseline."""
    if base == baseline:
        return comparison
    turned: dict[str, Any] = {}
    for key, entries in comparison.items():
        spread = entries.get(base, {}).get("difference")
        if policy in entries and spread is not None:
            low, high = spread["low"], spread["high"]
            reverse = {"mean": -spread["mean"], "low": -high if high is not None else None,
                       "high": -low if low is not None else None}  # fmt: skip
            turned[key] = {**entries, policy: {**entries[policy], "difference": reverse}}
        else:
            turned[key] = entries
    return turned


def _changes_by_width(
    summary: Mapping[str, Any], runs: Sequence[RunResult], base: str, policy: str
) -> tuple[list[str], list[str]]:
    """Return the widths whose jobs clearly start sooner and those whose jobs clearly start later, the largest
    changes first."""
    better, worse = list[tuple[float, str]](), list[tuple[float, str]]()
    for width, of_width in by_width(runs).items():
        comparison = _relative(of_width, summary["policies"][0], base, policy)
        if any(name not in comparison["jobs"] for name in (base, policy)):
            continue
        never = {
            name: summary["never_started"][name]["by_width"][width]["never_started"] for name in (base, policy)
        }
        if never[policy] > never[base]:
            counts = f"{never[base]:,} → {never[policy]:,}"
            text = f"the number of jobs of width {width} that never start ({counts})"
            worse.append((1e18 + never[policy] - never[base], text))
        before, after = (_mean(comparison, "mean_wait_seconds", name) for name in (base, policy))
        if abs(after - before) < max(_WIDTH_SECONDS, _WIDTH_PART * before):
            continue
        spans = (
            f"{_shown(comparison, 'mean_wait_seconds', base)} → {_shown(comparison, 'mean_wait_seconds', policy)}"
        )
        text = f"the mean wait of jobs of width {width} ({spans})"
        match effect(words_of("mean_wait_seconds"), comparison, base, policy):
            case Effect.BETTER:
                better.append((before - after, text))
            case Effect.WORSE:
                worse.append((after - before, text))
    return [text for _, text in sorted(better, reverse=True)], [text for _, text in sorted(worse, reverse=True)]


def _mean(comparison: Mapping[str, Any], key: str, policy: str) -> float:
    return float(comparison[key][policy]["mean"])


def _rank(comparison: Mapping[str, Any], policy: str) -> tuple[float, float]:
    """Return the sort key of a policy: the part of jobs that never start, in tenths of a percent, then the wait."""
    jobs = _mean(comparison, "jobs", policy)
    never = _mean(comparison, "never_started", policy) / jobs if jobs else 0.0
    return round(never, 3), _mean(comparison, "mean_wait_seconds", policy)


def _shown(comparison: Mapping[str, Any], key: str, policy: str) -> str:
    """Return the mean of a metric with its unit; `≥` marks a lower bound."""
    entry = comparison[key][policy]
    bound = "≥ " if entry.get("lower_bound") else ""
    return bound + shown_value(entry["mean"], words_of(key).unit)
