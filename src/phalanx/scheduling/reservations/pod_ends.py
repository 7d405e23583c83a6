"""Latest times at which pods leave their nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import IntArray
from phalanx.cluster.state import ClusterState
from phalanx.model.pod import MemberState
from phalanx.scheduling.reservations.timeline import FOREVER

#: An overdue pod is expected to stay this many seconds more, at first one minute (Tsafrir, Etsion and Feitelson,
#: "Backfilling using system-generated predictions", 2007: the steps by which a prediction grows).
_OVERRUN = tuple(60 * minutes for minutes in (1, 6, 21, 51, 111, 231, 531, 1131, 2331, 5331, 11331))

# Of more changed rows than this part, all count as changed.
_COMPARED_PART = 4


def latest_end(record: PodRecord, now: int, start_delay: int = 0, assumed: int = 0) -> int:
    """Return the latest end of a pod in seconds since the epoch; FOREVER if unknown. An overdue pod ends soon.

    `start_delay` is the time from a pod's binding to its start, when its clock begins. `assumed` is the time of the
    binding while the API has not confirmed it (0: now): its expected end does not move on with every second, nor
    does that of an evicted pod whose termination the API does not show.
    """
    pod = record.pod
    if record.state is MemberState.TERMINATING or record.evicting:
        end = pod.leaves or (record.evicted_at or now) + pod.grace
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
        end = pod.leaves or (record.evicted_at + pod.grace if record.evicted_at else None)
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


def _never(record: PodRecord) -> int:
    return FOREVER


class PodEnds:
    """Latest ends of the pods on each row, as of the last reading of the row."""

    def __init__(self, state: ClusterState, start_delay: int = 0) -> None:
        self._state = state
        self._start_delay = start_delay
        #: Time of the plan in seconds since the epoch.
        self.now = 0
        #: Returns the latest end of a pod for another reason than its run-time limit; FOREVER for none.
        self.leaves_by: Callable[[PodRecord], int] = _never
        # Row -> ends int64[P] and amounts int64[P, R] of its pods with a known end.
        self.by_row: dict[int, tuple[IntArray, IntArray]] = {}
        # int64[N]: pods without a known end on each row, without DaemonSet and static pods.
        self.endless: IntArray = np.zeros(0, dtype=np.int64)
        # Moment -> row -> number of pods that end then.
        self.moments: dict[int, dict[int, int]] = {}
        # Row -> uid -> time from which a pod is known whose binding the API has not confirmed.
        self._assumed: dict[int, dict[str, int]] = {}
        # Number of changes of ends, and the rows whose pods have other ends than known.
        self.version = 0
        self.changed: set[int] = set()
        self._cursor = -1

    def follow(self) -> int:
        """Return `version` after comparing the ends of pods that could have changed with the known ones.

        The confirmation of a binding changes the times of a pod, but seldom its end.
        """
        log = self._state.pods.retimed
        if self._cursor != log.end:
            extent = self._state.nodes.extent
            rows = log.since(self._cursor, max(64, extent // _COMPARED_PART))
            self._cursor = log.end
            changed = [row for row in {*rows} if self._differs(row)] if rows is not None else range(extent)
            self.changed.update(changed)
            self.version += bool(changed)
        return self.version

    def end_of(self, record: PodRecord) -> int:
        """Return the latest end of a pod, also by the end of its advance reservation; FOREVER if unknown."""
        assumed = self.assumed(record) if self._assumed else 0
        end = latest_end(record, self.now, self._start_delay, assumed)
        return end if record.pod_class.spec.reservation is None else min(end, self.leaves_by(record))

    def assumed(self, record: PodRecord) -> int:
        """Return the time from which a pod is known whose binding the API has not confirmed; 0 for none."""
        return self._assumed.get(record.row, {}).get(record.pod.uid, 0)

    def pop_changed(self) -> set[int]:
        """Return the rows whose pods have got other ends since the last call."""
        changed, self.changed = self.changed, set()
        return changed

    def _differs(self, row: int) -> bool:
        if not 0 <= row < len(self.endless):
            return True
        pods = [(self.end_of(record), record.pod.fixture) for record in self._state.pods.on(row)]
        known = self.by_row[row][0].tolist() if row in self.by_row else []
        endless = sum(end == FOREVER and not fixture for end, fixture in pods)
        return endless != self.endless[row] or [end for end, _ in pods if end < FOREVER] != known

    def read(self, rows: Iterable[int] | None, now: int) -> None:
        """Read the ends of the pods on some rows; None for all."""
        if len(self.endless) < self._state.nodes.capacity:
            former, self.endless = self.endless, np.zeros(self._state.nodes.capacity, dtype=np.int64)
            self.endless[: len(former)] = former
        for row in range(self._state.nodes.extent) if rows is None else rows:
            self._read_row(row, now)

    def _read_row(self, row: int, now: int) -> None:
        former = self.by_row.pop(row, None)
        moments = self.moments
        for end in former[0].tolist() if former is not None else ():
            by_row = moments[end]
            by_row[row] -= 1
            if not by_row[row]:
                del by_row[row]
                if not by_row:
                    del moments[end]
        ends, usages, endless = [], [], 0
        earlier = self._assumed.pop(row, {})
        for record in self._state.pods.on(row):
            if record.state is MemberState.ASSUMED:
                uid = record.pod.uid
                self._assumed.setdefault(row, {})[uid] = earlier.get(uid, now)
            end = self.end_of(record)
            if end == FOREVER:
                endless += not record.pod.fixture
            else:
                ends.append(end)
                usages.append(record.footprint.usage)
                by_row = moments.setdefault(end, {})
                by_row[row] = by_row.get(row, 0) + 1
        self.endless[row] = endless
        if ends:
            amounts = np.concatenate(usages).reshape(len(usages), -1)
            self.by_row[row] = (np.array(ends, dtype=np.int64), amounts)
