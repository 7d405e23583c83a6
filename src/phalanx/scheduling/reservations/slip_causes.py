"""Causes of lost room of a reserved window."""

from __future__ import annotations

from collections.abc import Container, Sequence

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.reservations.pod_ends import begun_late, overrun
from phalanx.scheduling.reservations.reservation import Reservation, SlipCause


def cause_on(
    state: ClusterState,
    rows: Sequence[int],
    reservation: Reservation,
    now: int,
    start_delay: int,
    shrunk: Container[int] = (),
) -> tuple[SlipCause, str]:
    """Return the cause of the lost room on the rows of a reservation, and the pod or node responsible for it.

    `shrunk` are the rows that offer less than before.
    """
    if not all(state.nodes.alive[row] for row in rows):
        return SlipCause.NODE_LOST, ""
    if closed := state.nodes.maintenance.closed_by(rows, reservation.start, reservation.window.end):
        return SlipCause.MAINTENANCE, closed
    for row in rows:
        for record in sorted(state.pods.on(row), key=lambda pod_record: pod_record.pod.key):
            if overrun(record, now) >= 0:
                return SlipCause.OVERRUN, f"pod {record.pod.key}"
    for row in rows:
        for record in sorted(state.pods.on(row), key=lambda pod_record: pod_record.pod.key):
            if begun_late(record, now, start_delay):
                return SlipCause.STARTED_LATE, f"pod {record.pod.key}"
    for row in rows:
        if row in shrunk:
            return SlipCause.NODE_SHRUNK, f"node {state.nodes.names[row]}"
    for row in rows:
        new = [
            pod_record
            for pod_record in state.pods.on(row)
            if max(pod_record.pod.bound, pod_record.pod.started) >= reservation.made
        ]
        if new:
            latest = max(
                new, key=lambda pod_record: (pod_record.pod.bound, pod_record.pod.started, pod_record.pod.key)
            )
            return SlipCause.DISPLACED, f"pod {latest.pod.key}"
    return SlipCause.UNKNOWN, ""
