"""Jobs as a workload states them, before anything has happened to them."""

from __future__ import annotations

import msgspec

from phalanx.model.pod import PodClass
from phalanx.model.resources import Requests, requests_of
from phalanx.model.run_time import NO_RUN_TIME, RunTime

NAMESPACE = "simulation"


class SimulatedJob(msgspec.Struct, frozen=True):
    """One gang; a pod on its own where `pods` is 1.

    `submit` is in seconds since the workload's beginning. Each pod runs for `run_time` seconds (None: as long as
    is simulated), or until the limit in `limits` is reached. `minimum` is the quorum, `width` what the job counts
    as in tables (the processors of a batch system's job are one pod here). The work done is saved every
    `checkpoint` seconds of running; 0 where a job that is disturbed begins anew. Who has not started after
    `patience` seconds is withdrawn (None: never).
    """

    name: str
    submit: int
    run_time: int | None
    pod_class: PodClass
    pods: int = 1
    minimum: int = 1
    width: int = 1
    limits: RunTime = NO_RUN_TIME
    queue: str = "default"
    user: str = ""
    namespace: str = NAMESPACE
    priority: int = 0
    preemptable: bool = True
    grace: int = 0
    checkpoint: int = 0
    patience: int | None = None

    @property
    def ends_after(self) -> int | None:
        """For how many seconds a pod of it holds its node: it is done, or killed at its limit."""
        if self.run_time is None or (self.limits.limit and self.limits.limit < self.run_time):
            return self.limits.limit or None
        return self.run_time

    @property
    def killed(self) -> bool:
        """Whether its limit ends it before it is done."""
        return bool(self.limits.limit) and (self.run_time is None or self.limits.limit < self.run_time)


def pod_class(requests: dict[str, int], limit: int = 0, grace: int = 0, **fields: object) -> PodClass:
    """A class of pods that ask for these amounts; `limit` in seconds from their start, 0 for none."""
    asked: Requests = requests_of(requests)
    return PodClass(
        requests=asked,
        scored_cpu=requests.get("cpu", 100),
        scored_memory=requests.get("memory", 200 * 2**20),
        run_limit=limit + grace if limit else 0,
        **fields,  # type: ignore[arg-type]
    )
