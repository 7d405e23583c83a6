"""Advance reservations that simulated pods use, by the rules of the intake."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.dialects.intake import Intake
from phalanx.model.gang import Gang, GangKey
from phalanx.model.pod import Pod
from phalanx.simulation.job import SimulatedJob


def reservation_resolver(intake: Intake) -> Callable[[SimulatedJob, Pod], Pod]:
    """Return a function that adds to a pod the advance reservations that its job can use."""

    def resolve(job: SimulatedJob, pod: Pod) -> Pod:
        gang = Gang(GangKey(pod.namespace, pod.gang), queue=job.queue) if pod.gang else None
        return intake.reservations.with_use(pod, gang, (job.reservation,) if job.reservation else ())

    return resolve
