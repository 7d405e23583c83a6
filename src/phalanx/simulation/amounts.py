"""Amounts of the simulated world over time: what its nodes offer, what pods hold, what jobs request."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.model.node import Node
from phalanx.model.resources import PODS
from phalanx.simulation.history import Integral
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.job_runs import JobRun, PodRun


class WorldAmounts:
    """Used and offered amounts as integrals over time, and by queue what is held and wanted of `main_resource`."""

    def __init__(self, main_resource: str) -> None:
        self.used, self.capacity = Integral(), Integral()
        self.held: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        self._main = main_resource

    def hold(self, now: int, run: JobRun, pods: Sequence[PodRun], factor: int) -> None:
        """Add pods of a job that have nodes from `now` on (`factor` 1), or no longer have them (-1)."""
        job, count = run.job, len(pods) * factor
        if run.present:
            for live in pods:
                self.used.add(now, (*live.pod.pod_class.requests, (PODS, 1)), factor)
        else:
            self.used.add(now, (*job.pod_class.requests, (PODS, 1)), count)
        self.held[job.queue] = self.held.get(job.queue, 0) + self._main_amount(job) * count

    def want(self, job: SimulatedJob, factor: int) -> None:
        """Add a job that has been submitted (`factor` 1) or has ended (-1)."""
        self.wanted[job.queue] = self.wanted.get(job.queue, 0) + self._main_amount(job) * job.pods * factor

    def resize(self, now: int, before: Node | None, after: Node | None) -> None:
        """Replace a node, or add or remove one."""
        for node, factor in ((before, -1), (after, 1)):
            if node is not None:
                self.capacity.add(now, node.allocatable, factor)

    def _main_amount(self, job: SimulatedJob) -> int:
        return next((amount for name, amount in job.pod_class.requests if name == self._main), 0)
