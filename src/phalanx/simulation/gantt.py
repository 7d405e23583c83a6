"""Who was on which node in one hour of a simulation."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from phalanx.simulation.history import JobHistory
from phalanx.simulation.timeline import TimelineSample

HOUR = 3600
# More nodes, or more bars, and nobody can read the chart.
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
    """The hour from `begin` on, in order of nodes and times; `nodes` is how many had something, more than are shown
    perhaps."""

    begin: int
    bars: list[GanttBar]
    nodes: int


def gantt_hour(
    jobs: Sequence[JobHistory], samples: Sequence[TimelineSample], begin: int | None, now: int
) -> GanttHour:
    """Of the hour that begins at `begin`; None for the one around the longest queue (where nobody ever waits, the
    most jobs at once)."""
    if begin is None:
        fullest = max(samples, key=lambda each: (each.waiting, each.running), default=None)
        begin = fullest.time - HOUR // 2 if fullest is not None else now
    begin = max(begin, samples[0].time) if samples else begin
    end = begin + HOUR
    bars = [
        GanttBar(node, job.name, job.queue, stint.begin, left, pods)
        for job in jobs
        for stint in job.stints
        for left in [stint.end if stint.end is not None else now]
        if stint.begin < end and left > begin
        for node, pods in stint.nodes.items()
    ]
    bars.sort(key=lambda bar: (_natural(bar.node), bar.begin, bar.job))
    nodes = list(dict.fromkeys(bar.node for bar in bars))
    shown = set(nodes[:_MOST_NODES])
    return GanttHour(begin, [bar for bar in bars if bar.node in shown][:_MOST_BARS], len(nodes))


def _natural(name: str) -> tuple[str | int, ...]:
    """gpu-2 before gpu-10."""
    return tuple(int(part) if part.isdecimal() else part for part in re.split(r"(\d+)", name))
