"""Traces with changes: inflated, shuffled, or arrivals only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from phalanx.dialects.intake import Intake
from phalanx.model.run_time import RunTime
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import OWN_VERSION, FileObject
from phalanx.simulation.errors import InputError
from phalanx.simulation.gpus import GPU_MILLI
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.workloads.changes import InputChange
from phalanx.simulation.workloads.distributions import span_or_factor, stream
from phalanx.simulation.workloads.workload import Workload
from phalanx.simulation.world import World


class TraceSpec(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """Changes to a trace. `file` is a table or a log in the same folder.

    `inflate`: jobs drawn from the trace are added until all request this multiple of the cluster's GPUs (0: none).
    `shuffle`: random order, one submission per second, with added jobs last. `arrivals_only`: no job ends, and a
    job that does not start at once is withdrawn. `limit` (a duration, or a factor of the recorded run time)
    replaces the limit of the file: `{factor: 1}` is perfect foresight.
    """

    file: str
    inflate: float = 0.0
    shuffle: bool = False
    arrivals_only: bool = False
    limit: Any = None


class ReplayedTrace(msgspec.Struct, frozen=True):
    """Jobs of `source`, changed; `place` is the object that requests the change."""

    name: str
    place: str
    spec: TraceSpec
    source: Workload

    @property
    def start(self) -> int:
        return self.source.start

    def jobs(self, seed: int, cluster: SimulatedCluster) -> list[SimulatedJob]:
        recorded, draws = self.source.jobs(seed, cluster), stream(seed, self.name, "trace")
        if self.spec.limit is not None:
            recorded = [self._limited(job) for job in recorded]
        jobs = list(recorded)
        if self.spec.shuffle:
            draws.shuffle(jobs)
        if self.spec.inflate:
            target = self.spec.inflate * sum(dict(node.allocatable).get(GPU_MILLI, 0) for node in cluster.nodes)
            requested = sum(map(_milli, jobs))
            if not requested:
                raise InputError(
                    f"{self.place}: spec.inflate: no job of {self.spec.file} requests GPUs; remove the field"
                )
            for number in range(len(jobs) * 1000):
                job = draws.choice(recorded)
                requested += _milli(job)
                if requested > target:
                    break
                jobs.append(msgspec.structs.replace(job, name=f"{job.name}-{number}"))
        if self.spec.shuffle:
            jobs = [msgspec.structs.replace(job, submit=number) for number, job in enumerate(jobs)]
        if self.spec.arrivals_only:
            jobs = [msgspec.structs.replace(job, run_time=None, patience=1) for job in jobs]
        return jobs

    def changes(self, cluster: SimulatedCluster) -> list[InputChange]:
        return self.source.changes(cluster)

    def _limited(self, job: SimulatedJob) -> SimulatedJob:
        limit = span_or_factor(self.spec.limit, job.ends_after, f"{self.place}: spec.limit")
        return msgspec.structs.replace(
            job,
            run_time=job.ends_after,
            limits=RunTime(limit=limit, limit_source="limit of the trace"),
            pod_class=msgspec.structs.replace(job.pod_class, run_limit=limit + job.grace),
        )

    def schedule(self, world: World, intake: Intake, seed: int) -> None:
        """Add no event: a trace has only jobs."""


def replayed(
    entry: FileObject, open_file: Callable[[str], str], read: Callable[[str, str], Workload]
) -> ReplayedTrace:
    """Return the changed trace that a document describes. Raises InputError."""
    if entry.api_version != OWN_VERSION:
        raise InputError(f"{entry.place}: apiVersion is {entry.api_version}; write {OWN_VERSION}")
    try:
        spec = msgspec.convert(entry.document.get("spec"), TraceSpec)
    except msgspec.ValidationError as error:
        raise InputError(f"{entry.place}: spec: {error}") from error
    if not 0 <= spec.inflate <= 100:
        raise InputError(f"{entry.place}: spec.inflate is {spec.inflate}; write a number from 0 to 100: 1.3")
    if spec.limit is not None:
        span_or_factor(spec.limit, 1, f"{entry.place}: spec.limit")
    source = read(open_file(spec.file), spec.file)
    return ReplayedTrace(str(entry.document["metadata"]["name"]), entry.place, spec, source)


def _milli(job: SimulatedJob) -> int:
    return job.pods * dict(job.pod_class.requests).get(GPU_MILLI, 0)
