"""Logs of batch systems in the Standard Workload Format (version 2.2 of the Parallel Workloads Archive)."""

from __future__ import annotations

import msgspec

from phalanx.model.resources import CPU
from phalanx.model.run_time import RunTime
from phalanx.simulation.errors import InputError
from phalanx.simulation.job import SimulatedJob, pod_class

_FIELDS = 18
_SOURCE = "field 9 of the log (requested time)"


class SwfLog(msgspec.Struct, frozen=True):
    """A log as written: `rows` are (line number, its 18 numbers), `header` has the fields of its comments."""

    name: str
    header: dict[str, str]
    rows: list[tuple[int, list[int]]]

    @property
    def processors(self) -> int:
        """Number of processors of the machine. Raises InputError if the header has none."""
        for key in ("MaxProcs", "MaxNodes"):
            if (text := self.header.get(key)) is not None:
                try:
                    count = int(text.split()[0])
                except (ValueError, IndexError):
                    count = 0
                if count < 1:
                    raise InputError(
                        f"{self.name}: header {key} is {text!r}; write a number of processors, or give --processors"
                    )
                return count
        raise InputError(f"{self.name}: no header MaxProcs; add the line '; MaxProcs: N', or give --processors N")

    @property
    def start(self) -> int | None:
        """Beginning of the log in seconds since the epoch, None if unknown."""
        text = self.header.get("UnixStartTime", "")
        return int(text) if text.isdecimal() and int(text) > 0 else None


def read_swf(text: str, name: str) -> SwfLog:
    """Parse a log. Raises InputError that names the file and the line."""
    header: dict[str, str] = {}
    rows: list[tuple[int, list[int]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(";"):
            key, colon, value = line.lstrip().lstrip(";").partition(":")
            if colon:
                header.setdefault(key.strip(), value.strip())
            continue
        words = line.split()
        if not words:
            continue
        if len(words) < _FIELDS:
            raise InputError(
                f"{name}: line {number}: {len(words)} fields; a job of the Standard Workload Format has {_FIELDS}"
                " (-1 where unknown)"
            )
        try:
            rows.append((number, [int(float(word)) for word in words[:_FIELDS]]))
        except (ValueError, OverflowError):
            field = next(index for index, word in enumerate(words[:_FIELDS], 1) if not _is_number(word))
            raise InputError(
                f"{name}: line {number}: field {field} is {words[field - 1]!r}; write a number, -1 where unknown"
            ) from None
    if not rows:
        raise InputError(f"{name}: no job; a log has one line of {_FIELDS} numbers a job")
    return SwfLog(name, header, rows)


def swf_jobs(log: SwfLog, *, pooled: bool, processors: int = 0) -> list[SimulatedJob]:
    """Return the jobs of a log in its order, without those that never ran (no run time or no size).

    `pooled`: the machine is one pool of `processors` processors. A job is then one pod that requests a number of
    them, at most all, and their place does not matter. Otherwise a
    job is a gang of pods with one processor each.
    """
    jobs = []
    for number, row in log.rows:
        submit, run, allocated, requested_width, requested = row[1], row[3], row[4], row[7], row[8]
        width = requested_width if requested_width > 0 else allocated
        if run <= 0 or width <= 0:
            continue
        if submit < 0:
            raise InputError(
                f"{log.name}: line {number}: field 2 (submit time) is {submit}; write seconds, at least 0"
            )
        width = min(width, processors) if processors else width
        limits = RunTime(limit=requested, limit_source=_SOURCE) if requested > 0 else RunTime()
        cpus = width if pooled else 1
        pods = 1 if pooled else width
        jobs.append(
            SimulatedJob(
                name=f"job-{row[0]}",
                submit=submit,
                run_time=run,
                pod_class=pod_class({CPU: cpus * 1000}, max(requested, 0)),
                pods=pods,
                minimum=pods,
                width=width,
                limits=limits,
                user=f"user-{row[11]}" if row[11] >= 0 else "",
            )
        )
    return jobs


def _is_number(word: str) -> bool:
    try:
        int(float(word))
    except (ValueError, OverflowError):
        return False
    return True
