"""Choice of the reader for a workload file."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.dialects.intake import Intake
from phalanx.simulation.cluster import SimulatedCluster
from phalanx.simulation.documents import read_documents
from phalanx.simulation.errors import InputError
from phalanx.simulation.job import SimulatedJob
from phalanx.simulation.tables import columns_of
from phalanx.simulation.workloads import acme, openb
from phalanx.simulation.workloads.changes import EPOCH_SECONDS, EPOCH_TIMES, InputChange
from phalanx.simulation.workloads.described import DescribedWorkload
from phalanx.simulation.workloads.replayed import replayed
from phalanx.simulation.workloads.swf import SwfLog, read_swf, swf_changes, swf_jobs
from phalanx.simulation.workloads.workload import Workload
from phalanx.simulation.world import World


class LogWorkload(msgspec.Struct, frozen=True):
    """Jobs of a batch system's log: one pod per job if the cluster is one pool of processors, else gangs of pods
    with one processor each."""

    log: SwfLog

    @property
    def name(self) -> str:
        return self.log.name

    @property
    def start(self) -> int:
        return self.log.start or 0

    def jobs(self, seed: int, cluster: SimulatedCluster) -> list[SimulatedJob]:
        return swf_jobs(self.log, pooled=bool(cluster.processors), processors=cluster.processors)

    def changes(self, cluster: SimulatedCluster) -> list[InputChange]:
        return swf_changes(self.log, cluster.processors)

    def schedule(self, world: World, intake: Intake, seed: int) -> None:
        """Add no event: a log has only jobs."""


class TraceWorkload(msgspec.Struct, frozen=True):
    """Jobs of a table, unchanged."""

    name: str
    recorded: tuple[SimulatedJob, ...]
    start: int = 0
    changed: tuple[InputChange, ...] = ()

    def jobs(self, seed: int, cluster: SimulatedCluster) -> list[SimulatedJob]:
        return list(self.recorded)

    def changes(self, cluster: SimulatedCluster) -> list[InputChange]:
        return list(self.changed)

    def schedule(self, world: World, intake: Intake, seed: int) -> None:
        """Add no event: a trace has only jobs."""


def read_workloads(text: str, name: str, open_file: Callable[[str], str]) -> list[Workload]:
    """Read the workloads of a file by its name: `.swf` is a log, `.csv` a table of pods (openb) or jobs (Acme), any
    other name YAML or JSON. `open_file` returns the text of a file that an object names. Raises InputError."""
    if name.endswith((".swf", ".csv")):
        return [_recorded(text, name)]
    workloads: list[Workload] = [
        replayed(entry, open_file, _recorded) if entry.kind == "Trace" else DescribedWorkload(entry)
        for entry in read_documents(text, name)
    ]
    if not workloads:
        raise InputError(f"{name}: no object in the file; write one of kind Workload")
    return workloads


def _recorded(text: str, name: str) -> Workload:
    return LogWorkload(read_swf(text, name)) if name.endswith(".swf") else _table(text, name)


def _table(text: str, name: str) -> TraceWorkload:
    names = columns_of(text)
    changes: list[InputChange] = []
    if "gpu_milli" in names:
        jobs = openb.openb_jobs(text, name, changes)
    elif "node_num" in names:
        jobs = acme.acme_jobs(text, name, changes)
    else:
        raise InputError(
            f"{name}: line 1: neither a list of pods ({', '.join(openb.COLUMNS)}) nor one of jobs"
            f" ({', '.join(acme.COLUMNS)})"
        )
    first = min((job.submit for job in jobs), default=0)
    if first < EPOCH_SECONDS:
        return TraceWorkload(name, tuple(jobs), 0, tuple(changes))
    shifted = [msgspec.structs.replace(job, submit=job.submit - first) for job in jobs]
    note = InputChange(name, 2, shifted[0].name, EPOCH_TIMES, before=str(first), after="0")
    return TraceWorkload(name, tuple(shifted), first, (note, *changes))
