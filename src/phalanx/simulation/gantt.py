"""Pods by node in one hour of a simulation, for a Gantt chart."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from phalanx.simulation.history import JobHistory
from phalanx.simulation.timeline import TimelineSample

HOUR = 3600
# A chart with more nodes or bars is unreadable.
_MOST_NODES = 24
_MOST_BARS = 1500


class GanttBar(msgspec.Struct, frozen=True):
    """`pods` of a job on a node, from `begin` to `end` (seconds since the epoch)."""

    node: str
    job: str
    queue: str
    begin: int
    end: int
    pods: int


class GanttHour(msgspec.Struct, frozen=True):
    """Bars of the hour from `begin` on, in order of nodes and times; `nodes` counts all nodes with pods, also those
    beyond the shown ones."""

    begin: int
    bars: list[GanttBar]
    nodes: int


def gantt_hour(
    jobs: Sequence[JobHistory], samples: Sequence[TimelineSample], begin: int | None, now: int
) -> GanttHour:
    """Return the hour that begins at `begin`; None selects the hour around the longest queue, or around the most
    running jobs if no job ever waits."""
    if begin is None:
        busiest = max(samples, key=lambda sample: (sample.waiting, sample.running), default=None)
        begin = busiest.time - HOUR // 2 if busiest is not None else now
    begin = max(begin, samples[0].time) if samples else begin
    end = begin + HOUR
    bars = [
        GanttBar(node, job.name, job.queue, stint.begin, stint_end, pods)
        for job in jobs
        for stint in job.stints
        for stint_end in [stint.end if stint.end is not None else now]
        if stint.begin < end and stint_end > begin
        for node, pods in stint.nodes.items()
    ]
    bars.sort(key=lambda bar: (_natural(bar.node), bar.begin, bar.job))
    nodes = list(dict.fromkeys(bar.node for bar in bars))
    shown = set(nodes[:_MOST_NODES])
    return GanttHour(begin, [bar for bar in bars if bar.node in shown][:_MOST_BARS], len(nodes))


def _natural(name: str) -> tuple[str | int, ...]:
    """Return a sort key that puts gpu-2 before gpu-10."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))
