"""Expected ends of running pods: by limits, by estimates, by learned run times, or assumed."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.collecting.node_choice import ExpectedEnd
from phalanx.scheduling.reservations.pod_ends import after_overrun, latest_end
from phalanx.scheduling.reservations.timeline import FOREVER

#: A pod of unknown run time is assumed to run as long again as it has run, and at least this many seconds.
_ASSUMED_REST = 3600


def expected_end(
    record: PodRecord, now: int, start_delay: int, learned: Callable[[PodRecord], int] = lambda record: 0
) -> ExpectedEnd | None:
    """Return when a pod on a node is expected to end; None if it never ends by itself.

    `learned` returns the run time in seconds within which 90 of 100 pods like it end, 0 if it is unknown.
    """
    pod = record.pod
    if pod.placeholder:
        return None
    limit = latest_end(record, now, start_delay)
    if record.state is MemberState.TERMINATING or record.evicting:
        return ExpectedEnd(limit)
    start = pod.started or pod.bound or now
    guess = learned(record)
    run_time = pod.run_time.estimate or guess
    if run_time:
        end = start + run_time
        end = min(limit, end if end > now else after_overrun(end, now))
        return ExpectedEnd(end, True, end < limit and not pod.run_time.estimate)
    if limit != FOREVER:
        return ExpectedEnd(limit)
    if pod.endless:
        return None
    return ExpectedEnd(now + max(_ASSUMED_REST, now - start), known=False)
