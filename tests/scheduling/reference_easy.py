"""EASY backfilling as in its papers, in plain Python over one pool of processors: the reference for ours.

Lifka 1995; Mu'alem and Feitelson 2001; shortest-job backfill: Tsafrir, Etsion and Feitelson 2007.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple


class RigidJob(NamedTuple):
    """Submitted at `submit`, runs for `run` seconds on `width` processors and is killed after `limit`."""

    submit: int
    number: int
    run: int
    width: int
    limit: int


def easy_starts(jobs: list[RigidJob], processors: int, *, shortest_first: bool = False) -> dict[int, int]:
    """Return the start of each job by number."""
    coming = sorted(jobs, key=lambda job: (job.submit, job.number), reverse=True)
    queue: list[RigidJob] = []
    ends: list[tuple[int, int]] = []
    running: dict[int, tuple[int, int]] = {}
    starts: dict[int, int] = {}
    free = processors
    while coming or ends:
        now = min([coming[-1].submit] if coming else [ends[0][0]], [ends[0][0]] if ends else [coming[-1].submit])[0]
        while ends and ends[0][0] == now:
            free += running.pop(heapq.heappop(ends)[1])[1]
        while coming and coming[-1].submit == now:
            queue.append(coming.pop())

        def start(job: RigidJob, now: int = now) -> None:
            nonlocal free
            free -= job.width
            running[job.number] = (now + job.limit, job.width)
            starts[job.number] = now
            heapq.heappush(ends, (now + job.run, job.number))

        while queue and queue[0].width <= free:
            start(queue.pop(0))
        if not queue:
            continue
        head, there = queue[0], free
        shadow = now
        for end, width in sorted(running.values()):
            there, shadow = there + width, end
            if there >= head.width:
                break
        extra = free + sum(width for end, width in running.values() if end <= shadow) - head.width
        others = queue[1:]
        if shortest_first:
            others.sort(key=lambda job: (job.limit, job.submit, job.number))
        for job in others:
            in_time = now + job.limit <= shadow
            if job.width <= free and (in_time or job.width <= extra):
                extra -= 0 if in_time else job.width
                start(job)
                queue.remove(job)
    return starts
