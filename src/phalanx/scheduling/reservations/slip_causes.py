"""Causes of lost room of a reserved window."""

from __future__ import annotations

from collections.abc import Container, Sequence

from phalanx.cluster.node_table import NO_ROW
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.promise_records import SlipCause, StoredReservation
from phalanx.scheduling.reservations.pod_ends import begun_late, latest_end, overrun
from phalanx.scheduling.reservations.reservation import Reservation


def cause_on(
    state: ClusterState,
    rows: Sequence[int],
    reservation: Reservation,
    now: int,
    start_delay: int,
    shrunk: Container[int] = (),
    retimed: Container[int] = (),
) -> tuple[SlipCause, str]:
    """Return the cause of the lost room on the rows of a reservation, and the pod or node responsible for it.

    `shrunk` are the rows that offer less than before, `retimed` those with a changed end of a pod.
    """
    if not all(state.nodes.alive[row] for row in rows):
        return SlipCause.NODE_LOST, ""
    if closed := state.nodes.maintenance.closed_by(rows, reservation.start, reservation.window.end):
        return SlipCause.MAINTENANCE, closed
    for row in rows:
        for record in sorted(state.pods.on(row), key=lambda pod_record: pod_record.pod.key):
            # A terminating pod can have a longer grace period than the plan has assumed.
            if overrun(record, now) >= 0 or record.pod.leaves > max(reservation.start, now):
                return SlipCause.OVERRUN, f"pod {record.pod.key}"
    for row in rows:
        for record in sorted(state.pods.on(row), key=lambda pod_record: pod_record.pod.key):
            if begun_late(record, now, start_delay):
                return SlipCause.STARTED_LATE, f"pod {record.pod.key}"
    for row in rows:
        if row in shrunk:
            return SlipCause.NODE_SHRUNK, f"node {state.nodes.names[row]}"
    for row in rows:
        if row in retimed and (last := _last_pod(state, row, reservation, now, start_delay)) is not None:
            return SlipCause.LIMIT_CHANGED, f"pod {last.pod.key}"
    for row in rows:
        new = [record for record in state.pods.on(row) if _arrival(record, now) >= reservation.made]
        if new:
            latest = max(new, key=lambda record: (_arrival(record, now), record.pod.key))
            return SlipCause.DISPLACED, f"pod {latest.pod.key}"
    for row in rows:
        for record in sorted(state.pods.on(row), key=lambda pod_record: pod_record.pod.key):
            if record.pod.usage != record.pod_class.spec.requests:
                return SlipCause.DISPLACED, f"pod {record.pod.key}"
    return SlipCause.UNKNOWN, ""


def _arrival(record: PodRecord, now: int) -> int:
    """Return when a pod came to its node; `now` until its kubelet has reported that."""
    return max(record.pod.bound, record.pod.started) or now


def _last_pod(
    state: ClusterState, row: int, reservation: Reservation, now: int, start_delay: int
) -> PodRecord | None:
    """Return the pod that leaves a row last, if it stays beyond the start of the reservation."""
    ends = [(latest_end(record, now, start_delay), record.pod.key, record) for record in state.pods.on(row)]
    end, _, last = max(ends, key=lambda entry: entry[:2], default=(0, "", None))
    return last if end > reservation.start else None


def cause_since(state: ClusterState, promise: StoredReservation) -> SlipCause:
    """Return why the stored nodes of a promise do not serve its unit any more."""
    lost = any(state.nodes.row(name) == NO_ROW for share in promise.shares for name in share.nodes)
    return SlipCause.NODE_LOST if lost else SlipCause.LIMIT_CHANGED
