"""The pod list of the openb trace (Alibaba, 2023): single pods, many of which request a part of one GPU."""

from __future__ import annotations

from phalanx.model.devices.cards import CardShare, DeviceNeed, Family
from phalanx.model.pod import PodClass
from phalanx.model.resources import CPU, MEMORY
from phalanx.model.selectors import NodeSelectorTerm, Requirement
from phalanx.simulation.errors import InputError
from phalanx.simulation.gpus import GPU_MILLI, GPU_MODEL, WHOLE_CARD
from phalanx.simulation.job import SimulatedJob, pod_class
from phalanx.simulation.tables import Row, table, whole
from phalanx.simulation.workloads.changes import InputChange

COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "creation_time", "deletion_time",
    "scheduled_time",
)  # fmt: skip
_MIB = 2**20


def openb_jobs(text: str, name: str, changes: list[InputChange] | None = None) -> list[SimulatedJob]:
    """Return one job per pod, in order of creation. Its run time is that of the trace, from its scheduling, or from
    its creation if the scheduling time is missing. Changed lines are added to `changes`. Raises InputError."""
    notes = changes if changes is not None else []
    classes: dict[tuple[str, ...], PodClass] = {}
    jobs = []
    for line, row in table(text, name, COLUMNS):
        demand = (row["cpu_milli"], row["memory_mib"], row["num_gpu"], row["gpu_milli"], row["gpu_spec"])
        if demand not in classes:
            classes[demand] = _pod_class(row, name, line)
        created = whole(row, "creation_time", name, line)
        scheduled = whole(row, "scheduled_time", name, line, default=created)
        deleted = whole(row, "deletion_time", name, line)
        if deleted < created:
            raise InputError(f"{name}: line {line}: deletion_time is {deleted}; write at least the creation_time")
        begun = max(created, min(scheduled, deleted))
        pod = row["name"]
        if begun != scheduled:
            reason = "scheduled_time outside the pod's life: nearest time used"
            notes.append(InputChange(name, line, pod, reason, before=str(scheduled), after=str(begun)))
        if deleted == begun:
            reason = "no run time: one second"
            notes.append(InputChange(name, line, pod, reason, before="0", after="1"))
        # A pod that was deleted in the second of its start counts as one second.
        jobs.append(SimulatedJob(row["name"], created, max(1, deleted - begun), classes[demand]))
    return sorted(jobs, key=lambda job: job.submit)


def _pod_class(row: Row, name: str, line: int) -> PodClass:
    count, milli = whole(row, "num_gpu", name, line), whole(row, "gpu_milli", name, line)
    if count and not 1 <= milli <= WHOLE_CARD:
        raise InputError(f"{name}: line {line}: gpu_milli is {milli}; write 1 to {WHOLE_CARD} for each GPU")
    amounts = {
        CPU: whole(row, "cpu_milli", name, line),
        MEMORY: whole(row, "memory_mib", name, line) * _MIB,
        GPU_MILLI: count * milli,
    }
    models = tuple(sorted(filter(None, row["gpu_spec"].split("|"))))
    affinity = None
    if models and count:
        affinity = (NodeSelectorTerm((Requirement(GPU_MODEL, "In", models),)),)
    devices = DeviceNeed(Family.KOORDINATOR, (CardShare(count, milli),)) if count else None
    return pod_class(amounts, affinity=affinity, devices=devices)
