"""Jobs and pods of the simulated world while they live."""

from __future__ import annotations

from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod
from phalanx.simulation.history import JobHistory, Stint
from phalanx.simulation.job import SimulatedJob


class PodRun:
    """One pod while it lives.

    `length` is the time for which it holds its node, `saved` the work that an earlier life of it has saved, both in
    seconds. `deleted`: it is terminating.
    """

    __slots__ = ("bound", "deleted", "length", "pod", "saved", "started", "stint")

    def __init__(self, pod: Pod, length: int | None, saved: int = 0) -> None:
        self.pod = pod
        self.length = length
        self.deleted = pod.terminating  # before anything was simulated
        self.bound: int | None = None
        self.started: int | None = None
        self.stint: Stint | None = None
        self.saved = saved


class JobRun:
    """One job while it lives.

    `pods` are by uid; `with_nodes` of them have nodes, and `remaining` are still to end. `kept` are pods that have
    ended and still exist. `key` is set for a gang. Pods of a job that was `present` at the beginning may differ;
    `lost` is the number of its pods that no controller replaces.
    """

    __slots__ = ("history", "job", "kept", "key", "lost", "made", "pods", "present", "remaining", "with_nodes")

    def __init__(self, job: SimulatedJob, history: JobHistory, key: GangKey | None, present: bool = False) -> None:
        self.job = job
        self.history = history
        self.key = key
        self.present = present
        self.lost = 0
        self.pods: dict[str, PodRun] = {}
        self.kept: list[str] = []
        self.made = 0
        self.with_nodes = 0
        self.remaining = job.pods
