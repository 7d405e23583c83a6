"""Latest times at which pods leave their nodes."""

from __future__ import annotations

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.reservations.timeline import FOREVER

#: An overdue pod is expected to stay this many seconds more, at first one minute (Tsafrir, Etsion and Feitelson,
#: "Backfilling using system-generated predictions", 2007: the steps by which a prediction grows).
_OVERRUN = tuple(60 * minutes for minutes in (1, 6, 21, 51, 111, 231, 531, 1131, 2331, 5331, 11331))


def latest_end(record: PodRecord, now: int, start_delay: int = 0, assumed: int = 0) -> int:
    """Return the latest end of a pod in seconds since the epoch; FOREVER if unknown. An overdue pod ends soon.

    `start_delay` is the time from a pod's binding to its start, when its clock begins. `assumed` is the time of the
    binding while the API has not confirmed it (0: now): its expected end does not move on with every second.
    """
    pod = record.pod
    if record.state is MemberState.TERMINATING or record.evicting:
        end = pod.leaves or now + pod.grace
    elif record.state in (MemberState.PENDING, MemberState.OTHER_SCHEDULER):
        # A nominated pod occupies room from an unknown time on.
        return FOREVER
    else:
        bound = max(pod.bound + start_delay, now) if pod.bound else (assumed or now) + start_delay
        start = pod.started or bound
        known = pod.run_time.latest_end(start, pod.grace)
        if known is None:
            return FOREVER
        end = known
    return end if end > now else after_overrun(end, now)


def overrun(record: PodRecord, now: int) -> int:
    """Return the seconds since the pod should have ended; -1 if its end has not come, or is unknown."""
    pod = record.pod
    if record.state is MemberState.TERMINATING:
        end = pod.leaves or None
    else:
        end = pod.run_time.latest_end(pod.started, pod.grace) if pod.started else None
    return now - end if end is not None and end <= now else -1


def begun_late(record: PodRecord, now: int, start_delay: int) -> bool:
    """Return whether the pod starts later after its binding than planned."""
    pod = record.pod
    return bool(pod.node) and bool(pod.bound) and (pod.started or now) > pod.bound + start_delay


def after_overrun(end: int, now: int) -> int:
    """Return the expected end of a pod after its planned `end`."""
    late = now - end
    step = next((step for step in _OVERRUN if step > late), late + _OVERRUN[-1])
    return end + step
