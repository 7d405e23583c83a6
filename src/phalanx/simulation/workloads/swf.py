"""Logs of batch systems in the Standard Workload Format (version 2.2 of the Parallel Workloads Archive)."""

from __future__ import annotations

from collections.abc import Sequence, Set

import msgspec

from phalanx.model.resources import CPU
from phalanx.model.run_time import RunTime
from phalanx.model.text.decoding import quoted
from phalanx.simulation.errors import InputError
from phalanx.simulation.job import SimulatedJob, pod_class
from phalanx.simulation.workloads.changes import EPOCH_SECONDS, EPOCH_TIMES, InputChange

_FIELDS = 18
# Fields that are read: submit time, run time, widths and requested time.
_READ = (2, 4, 5, 8, 9)
# Status of a line that repeats a part of a job, which has a line of its own.
_PARTIAL = (2, 3, 4)
_SOURCE = "field 9 of the log (requested time)"


class SwfLog(msgspec.Struct, frozen=True):
    """A log as written: `rows` are (line number, its 18 numbers), `header` has the fields of its comments.

    `fractions` are (line number, job, field, text) of numbers whose fraction was cut off."""

    name: str
    header: dict[str, str]
    rows: list[tuple[int, list[int]]]
    fractions: list[tuple[int, int, int, str]] = []

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
                        f"{self.name}: header {key} is {quoted(text)}; write a number of processors, "
                        "or give --processors"
                    )
                return count
        raise InputError(f"{self.name}: no header MaxProcs; add the line '; MaxProcs: N', or give --processors N")

    @property
    def header_start(self) -> int:
        """UnixStartTime of the header in seconds since the epoch, 0 if unknown."""
        text = self.header.get("UnixStartTime", "")
        return int(text) if text.isdecimal() else 0

    @property
    def offset(self) -> int:
        """Submit time that is the beginning of the log: 0, unless its times are seconds since the epoch."""
        first = min(row[1] for _, row in self.rows)
        if first < EPOCH_SECONDS:
            return 0
        return self.header_start if 0 < self.header_start <= first else first

    @property
    def start(self) -> int | None:
        """Beginning of the log in seconds since the epoch, None if unknown."""
        return self.offset or self.header_start or None


def read_swf(text: str, name: str) -> SwfLog:
    """Parse a log. Raises InputError that names the file and the line."""
    header: dict[str, str] = {}
    rows: list[tuple[int, list[int]]] = []
    fractions: list[tuple[int, int, int, str]] = []
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
            row = [int(float(word)) for word in words[:_FIELDS]]
        except (ValueError, OverflowError):
            field = next(index for index, word in enumerate(words[:_FIELDS], 1) if not _is_number(word))
            raise InputError(
                f"{name}: line {number}: field {field} is {quoted(words[field - 1])}; write "
                "a number, -1 where unknown"
            ) from None
        rows.append((number, row))
        if "." in line:
            # Only these fields are read.
            fractions += [
                (number, row[0], field, words[field - 1])
                for field in _READ
                if float(words[field - 1]) != row[field - 1]
            ]
    if not rows:
        raise InputError(f"{name}: no job; a log has one line of {_FIELDS} numbers a job")
    return SwfLog(name, header, rows, fractions)


def swf_jobs(log: SwfLog, *, pooled: bool, processors: int = 0) -> list[SimulatedJob]:
    """Return the jobs of a log in its order, without the skipped lines (`swf_changes`).

    `pooled`: the machine is one pool of `processors` processors. A job is then one pod that requests a number of
    them, at most all, and their place does not matter. Otherwise a
    job is a gang of pods with one processor each.
    """
    jobs, offset, whole = [], log.offset, _whole_jobs(log)
    for number, row in log.rows:
        submit, run, requested = row[1], row[3], row[8]
        if _skip_reason(row, whole):
            continue
        if submit < 0:
            raise InputError(
                f"{log.name}: line {number}: field 2 (submit time) is {submit}; write seconds, at least 0"
            )
        width = min(_width(row), processors) if processors else _width(row)
        limits = RunTime(limit=requested, limit_source=_SOURCE) if requested > 0 else RunTime()
        cpus = width if pooled else 1
        pods = 1 if pooled else width
        jobs.append(
            SimulatedJob(
                name=f"job-{row[0]}",
                submit=submit - offset,
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


def swf_changes(log: SwfLog, processors: int = 0) -> list[InputChange]:
    """Return the lines that are skipped or changed, in their order. `processors` is the size of a machine that is
    one pool, 0 for a cluster of nodes."""
    changes, whole = [], _whole_jobs(log)
    if log.offset:
        line, row = log.rows[0]
        changes.append(
            InputChange(
                log.name, line, f"job-{row[0]}", EPOCH_TIMES,
                before=str(log.offset), after="0",
            )
        )  # fmt: skip
    for line, row in log.rows:
        job = f"job-{row[0]}"
        if reason := _skip_reason(row, whole):
            changes.append(InputChange(log.name, line, job, reason, skipped=True))
            continue
        width = _width(row)
        if row[7] <= 0:
            changes.append(InputChange(log.name, line, job, "no requested width: allocated width used",
                                       before=str(row[7]), after=str(width)))  # fmt: skip
        if processors and width > processors:
            changes.append(InputChange(log.name, line, job, "wider than the machine: reduced to its size",
                                       before=str(width), after=str(processors)))  # fmt: skip
    changes += [
        InputChange(log.name, line, f"job-{job}", f"fraction of field {field} cut off",
                    before=text, after=str(int(float(text))))
        for line, job, field, text in log.fractions
    ]  # fmt: skip
    return sorted(changes, key=lambda change: change.line)


def _width(row: Sequence[int]) -> int:
    return row[7] if row[7] > 0 else row[4]


def _whole_jobs(log: SwfLog) -> set[int]:
    """Return the numbers of the jobs with a line that is no partial record."""
    return {row[0] for _, row in log.rows if row[10] not in _PARTIAL}


def _skip_reason(row: Sequence[int], whole: Set[int]) -> str:
    """Return the reason why a line is not simulated, "" if it is. `whole` are the jobs with a line of their own."""
    if row[10] in _PARTIAL and row[0] in whole:
        return "partial record of a job (status 2 to 4)"
    if row[3] <= 0:
        return "no run time"
    return "no width" if _width(row) <= 0 else ""


def _is_number(word: str) -> bool:
    try:
        int(float(word))
    except (ValueError, OverflowError):
        return False
    return True
