"""Job lists like those of Acme (Seren, Kalos), Helios and Philly as CSV: one row per job of several equal pods."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from phalanx.model.pod import PodClass
from phalanx.model.resources import CPU
from phalanx.model.text.decoding import quoted
from phalanx.simulation.errors import InputError
from phalanx.simulation.gpus import GPU
from phalanx.simulation.job import SimulatedJob, pod_class
from phalanx.simulation.tables import Row, table, whole
from phalanx.simulation.workloads.changes import InputChange

COLUMNS = ("job_id", "user", "node_num", "gpu_num", "cpu_num", "submit_time", "duration")


def acme_jobs(text: str, name: str, changes: list[InputChange] | None = None) -> list[SimulatedJob]:
    """Return one gang per job, with a pod for each of its nodes; the first submission is at 0.

    The queue is the column `queue` or `vc`. Jobs that never ran are skipped. Skipped and changed lines are added to
    `changes`. Raises InputError."""
    notes = changes if changes is not None else []
    rows = table(text, name, COLUMNS)
    classes: dict[tuple[int, int], PodClass] = {}
    jobs = []
    for line, row in rows:
        run = whole(row, "duration", name, line, default=0)
        job = f"job-{row['job_id']}"
        if not run:
            notes.append(InputChange(name, line, job, "no run time", skipped=True))
            continue
        nodes = whole(row, "node_num", name, line, default=0)
        pods = max(1, nodes)
        if not nodes:
            notes.append(
                InputChange(name, line, job, "no number of nodes: one pod", before=row["node_num"], after="1")
            )
        gpus, cpus = whole(row, "gpu_num", name, line, default=0), whole(row, "cpu_num", name, line, default=0)
        # If the parts of a job are not equal, all pods get the size of the largest.
        size = (-(-cpus // pods), -(-gpus // pods))
        for what, amount, each in (("CPUs", cpus, size[0]), ("GPUs", gpus, size[1])):
            if amount % pods:
                reason = f"{what} not divisible by the number of pods: rounded up"
                notes.append(InputChange(name, line, job, reason, before=str(amount), after=str(each * pods)))
        if size not in classes:
            classes[size] = pod_class({CPU: size[0] * 1000, GPU: size[1]})
        jobs.append(
            SimulatedJob(
                name=job,
                submit=_time(row, name, line),
                run_time=run,
                pod_class=classes[size],
                pods=pods,
                minimum=pods,
                width=max(gpus, pods),
                queue=row.get("queue") or row.get("vc") or "default",
                user=row["user"],
            )
        )
    if not jobs:
        raise InputError(f"{name}: no job has a duration above 0")
    first = min(job.submit for job in jobs)
    return sorted((_earlier(job, first) for job in jobs), key=lambda job: job.submit)


def _earlier(job: SimulatedJob, seconds: int) -> SimulatedJob:
    return msgspec.structs.replace(job, submit=job.submit - seconds)


def _time(row: Row, name: str, line: int) -> int:
    text = row["submit_time"].strip()
    if text.replace(".", "", 1).isdecimal():
        return int(float(text))
    try:
        moment = datetime.fromisoformat(text)
        # A time without a zone counts as UTC, so that results do not depend on the machine.
        return int((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp())
    except ValueError:
        raise InputError(
            f"{name}: line {line}: submit_time is {quoted(text)}; write seconds, or 2023-03-01 12:00:00+08:00"
        ) from None
