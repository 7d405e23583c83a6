"""Live pods and jobs of a simulated world."""

from __future__ import annotations

from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod
from phalanx.simulation.history import JobHistory, Stint
from phalanx.simulation.job import SimulatedJob


class PodRun:
    """One live pod. `length` is the run time until its work is done or its limit is reached, `saved` the work that
    its predecessors have saved, `start_delay` and `end_delay` the delays of its start and of its departure from the
    node, all in seconds."""

    __slots__ = ("bound", "deleted", "end_delay", "length", "pod", "saved", "start_delay", "started", "stint")

    def __init__(self, pod: Pod, length: int | None, saved: int = 0) -> None:
        self.pod = pod
        self.length = length
        self.deleted = pod.terminating  # True if it was deleted before the simulation
        self.bound: int | None = None
        self.started: int | None = None
        self.stint: Stint | None = None
        self.saved = saved
        self.start_delay = self.end_delay = 0


class JobRun:
    """One live job: its pods by uid, the number with nodes, and the number that have not ended. `kept` are ended
    pods that still exist. `key` is that of a gang. The pods of a job that was `present` at the beginning can
    differ; `lost` counts the pods that no controller recreates."""

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
