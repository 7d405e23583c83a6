"""Jobs of a workload, before the simulation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from phalanx.model.pod import PodClass
from phalanx.model.resources import Requests, requests_of
from phalanx.model.run_time import NO_RUN_TIME, RunTime
from phalanx.simulation.workloads.distributions import Distribution

NAMESPACE = "simulation"


class SimulatedJob(msgspec.Struct, frozen=True):
    """One gang, or a single pod if `pods` is 1.

    `submit` is in seconds since the workload's beginning. Each pod runs for `run_time` seconds (None: until the end
    of the simulation), or until the limit in `limits` is reached. `minimum` is the quorum, `width` the size of the
    job in tables (the processors of a batch system's job are one pod here). Work is saved every
    `checkpoint` seconds of running; with 0 a disrupted job restarts from the beginning. A job that has not started
    after `patience` seconds is withdrawn (None: never). A pod of the running job fails at intervals drawn from
    `failures` (None: never), at most `most_failures` times. The pods use the advance `reservation` ("": none).
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
    failures: Distribution | None = None
    most_failures: int = 0
    reservation: str = ""

    @property
    def ends_after(self) -> int | None:
        """Seconds for which a pod occupies its node: until its work is done, or its limit kills it."""
        if self.run_time is None or (self.limits.limit and self.limits.limit < self.run_time):
            return self.limits.limit or None
        return self.run_time

    @property
    def killed(self) -> bool:
        """Whether its limit ends it before its work is done."""
        return bool(self.limits.limit) and (self.run_time is None or self.limits.limit < self.run_time)


def distinct_jobs(jobs: Sequence[SimulatedJob]) -> list[SimulatedJob]:
    """Return the jobs with distinct names: files can contain equal ones, and pods are identified by names."""
    seen: Counter[str] = Counter()
    distinct = []
    for job in jobs:
        seen[job.name] += 1
        number = seen[job.name]
        distinct.append(job if number == 1 else msgspec.structs.replace(job, name=f"{job.name}.{number}"))
    return distinct


def pod_class(requests: dict[str, int], limit: int = 0, grace: int = 0, **fields: object) -> PodClass:
    """Return a class of pods with these requests; `limit` is in seconds from their start, 0 for none."""
    amounts: Requests = requests_of(requests)
    return PodClass(
        requests=amounts,
        scored_cpu=requests.get("cpu", 100),
        scored_memory=requests.get("memory", 200 * 2**20),
        run_limit=limit + grace if limit else 0,
        **fields,  # type: ignore[arg-type]
    )
