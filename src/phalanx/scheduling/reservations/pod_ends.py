"""When what occupies a node has left it, at the latest."""

from __future__ import annotations

import math

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.reservations.timeline import FOREVER

#: What is past its end is expected to be there for so many seconds more, at first for a minute (Tsafrir, Etsion and
#: Feitelson, "Backfilling using system-generated predictions", 2007: the steps by which a prediction grows).
_OVERRUN = tuple(60 * minutes for minutes in (1, 6, 21, 51, 111, 231, 531, 1131, 2331, 5331, 11331))


def latest_end(record: PodRecord, now: float, start_delay: int = 0) -> int:
    """Seconds since the epoch; FOREVER where no end is known. Of a pod that is past its end, a moment soon.

    `start_delay` is how long a pod takes from its binding to its start (its clock begins there).
    """
    pod = record.pod
    if record.state is MemberState.TERMINATING or record.evicting:
        end = float(pod.leaves) if pod.leaves else now + pod.grace
    elif record.state in (MemberState.PENDING, MemberState.OTHER_SCHEDULER):
        # Room is held for it; when it begins, nobody knows.
        return FOREVER
    else:
        start = pod.started or max((pod.bound or now) + start_delay, now)
        known = pod.run_time.latest_end(start, pod.grace)
        if known is None:
            return FOREVER
        end = known
    return math.ceil(end) if end > now else after_overrun(end, now)


def overdue(record: PodRecord, now: float) -> bool:
    """Whether the pod should have left already."""
    pod = record.pod
    if record.state is MemberState.TERMINATING:
        return bool(pod.leaves) and pod.leaves <= now
    end = pod.run_time.latest_end(pod.started, pod.grace) if pod.started else None
    return end is not None and end <= now


def begun_late(record: PodRecord, now: float, start_delay: int) -> bool:
    """Whether its clock began, or will begin, later than was planned with: it was bound long before."""
    pod = record.pod
    return bool(pod.node) and bool(pod.bound) and (pod.started or now) > pod.bound + start_delay


def after_overrun(end: float, now: float) -> int:
    """When a pod is expected to have left that should have by `end`, which has passed."""
    late = now - end
    step = next((step for step in _OVERRUN if step > late), late + _OVERRUN[-1])
    return math.ceil(end + step)
