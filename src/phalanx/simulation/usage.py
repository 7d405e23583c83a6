"""Usage and demand of a simulated cluster over time."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.model.node import Node
from phalanx.model.resources import PODS
from phalanx.simulation.history import Integral
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.live_jobs import JobRun, PodRun


class ClusterUsage:
    """Amounts of a simulated cluster. `held` is the allocated amount of `main_resource` by queue, `wanted` the
    requests of all its jobs that have not ended."""

    def __init__(self, main_resource: str) -> None:
        self.used, self.capacity = Integral(), Integral()
        self.held: dict[str, int] = {}
        self.wanted: dict[str, int] = {}
        self._main = main_resource

    def add_pods(self, now: int, run: JobRun, pods: Sequence[PodRun], factor: int) -> None:
        """Add the usage of pods that are bound now, or subtract it with factor -1."""
        job, count = run.job, len(pods) * factor
        if run.present:
            for live in pods:
                self.used.add(now, (*live.pod.pod_class.requests, (PODS, 1)), factor)
        else:
            self.used.add(now, (*job.pod_class.requests, (PODS, 1)), count)
        self.held[job.queue] = self.held.get(job.queue, 0) + self._main_amount(job) * count

    def add_demand(self, job: SimulatedJob, factor: int) -> None:
        """Add the demand of a job, or subtract it with factor -1."""
        self.wanted[job.queue] = self.wanted.get(job.queue, 0) + self._main_amount(job) * job.pods * factor

    def resize(self, now: int, before: Node | None, after: Node | None) -> None:
        """Replace the capacity of a node; None stands for no node."""
        for node, factor in ((before, -1), (after, 1)):
            if node is not None:
                self.capacity.add(now, node.allocatable, factor)

    def _main_amount(self, job: SimulatedJob) -> int:
        return next((amount for name, amount in job.pod_class.requests if name == self._main), 0)
