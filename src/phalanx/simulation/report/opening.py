"""Five charts at the top of the page: starts, waits and slowdowns by width; queue and usage over time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from phalanx.model.resources import CPU
from phalanx.simulation.gpus import GPU, GPU_MILLI
from phalanx.simulation.report.axes import log_marks, log_time_marks, short, shown_time
from phalanx.simulation.report.charts import Points, bars, lines, spreads
from phalanx.simulation.report.never_started import width_key
from phalanx.simulation.runs import RunResult
from phalanx.simulation.timeline import TimelineSample

TIME_AXIS = "time since the beginning"
_WIDTH_AXIS = "width of the jobs"
_WORDS_OF_RESOURCES = {CPU: "CPUs", GPU: "GPUs", GPU_MILLI: "GPUs"}


def five_charts(summary: Mapping[str, Any], first: Sequence[RunResult]) -> list[str]:
    """Return the charts; all but the first one show the first seed of each policy."""
    resource = resource_words(first[0])
    waits, slowdowns = _by_width(first, "wait_seconds"), _by_width(first, "bounded_slowdown")
    return [
        _never_started(summary),
        spreads("Waits: half of the jobs to 99 % of the jobs, mark at 90 %", waits, log_time_marks(_highest(waits)),
                shown_time, "wait from submission to start", _WIDTH_AXIS),
        spreads("Bounded slowdowns: half of the jobs to 99 % of the jobs, mark at 90 %", slowdowns,
                log_marks(_highest(slowdowns)), short, "(wait + run time) / run time", _WIDTH_AXIS),
        lines("Waiting jobs", [(run.policy, points(run, lambda sample: sample.waiting)) for run in first],
              TIME_AXIS, "waiting jobs"),
        lines(f"Used part of the {resource}", [(run.policy, points(run, _used(run))) for run in first], TIME_AXIS,
              f"used {resource}", unit=" %"),
    ]  # fmt: skip


def resource_words(run: RunResult) -> str:
    """Return the most important resource of a run in words."""
    name = str(run.metrics["utilisation_resource"])
    return _WORDS_OF_RESOURCES.get(name, name)


def points(run: RunResult, value: Callable[[TimelineSample], float]) -> Points:
    """Return the points (seconds since the beginning of the simulation, value) of a chart."""
    return [(sample.time - run.start, value(sample)) for sample in run.samples]


def _used(run: RunResult) -> Callable[[TimelineSample], float]:
    main = str(run.metrics["utilisation_resource"])
    return lambda sample: 100 * sample.used.get(main, 0.0)


def _never_started(summary: Mapping[str, Any]) -> str:
    counts = summary["never_started"]
    widths = sorted({width for entry in counts.values() for width in entry["by_width"]}, key=width_key)
    series = []
    for policy in summary["policies"]:
        values = []
        for width in widths:
            entry = counts[policy]["by_width"].get(width, {"jobs": 0, "never_started": 0})
            part = 100 * entry["never_started"] / entry["jobs"] if entry["jobs"] else 0.0
            values.append((part, f"{entry['never_started']:,} of {entry['jobs']:,}"))
        series.append((policy, values))
    none = not any(entry["never_started"] for entry in counts.values())
    title = "Jobs that never started" + (": none" if none else "")
    return bars(title, widths, series, _WIDTH_AXIS, "part of the jobs")


def _by_width(runs: Sequence[RunResult], metric: str) -> list[tuple[str, list[tuple[str, float, float, float]]]]:
    widths = sorted({width for run in runs for width in run.by_width}, key=width_key)
    groups = []
    for width in widths:
        entries = [(run.policy, run.by_width[width]) for run in runs if width in run.by_width]
        group = []
        for policy, entry in entries:
            p50, p90, p99 = (float(entry[f"p{percent}_{metric}"]) for percent in (50, 90, 99))
            group.append((policy, p50, p90, p99))
        groups.append((width, group))
    return groups


def _highest(groups: Sequence[tuple[str, Sequence[tuple[str, float, float, float]]]]) -> float:
    return max((bar[3] for _, group_bars in groups for bar in group_bars), default=1.0)
