"""Output of `phalanx history` and `phalanx report`: tables, rows of CSV and Parquet files, and documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from phalanx.cli.columns import columns
from phalanx.cli.explanation.moments import moment_text, span
from phalanx.model.resources import CPU, MEMORY

if TYPE_CHECKING:
    from phalanx.accounting.exports import Cell, Rows
    from phalanx.accounting.questions import ReportLine, RunEntry

FORMATS = ("table", "json", "yaml", "csv", "parquet")
_GIB = 2**30


def hours(resource: str, sum_of_seconds: int) -> float:
    """Convert resource-seconds to core-hours (CPU), GiB-hours (bytes) or device-hours."""
    unit = 1000 if resource == CPU else _GIB if _is_bytes(resource) else 1
    return sum_of_seconds / unit / 3600


def run_table(entries: Sequence[RunEntry], *, namespaces: bool) -> list[str]:
    header = ["GANG", "QUEUE", "USER", "STATE", "SUBMIT", "WAIT", "RUN", "EVICTIONS", "HOURS"]
    rows = [
        [
            entry.name,
            entry.queue,
            entry.user,
            entry.state,
            moment_text(entry.submitted),
            span(entry.wait),
            ("~" if entry.estimated else "") + span(entry.run),
            str(entry.evictions),
            _brief(entry.used),
        ]
        for entry in entries
    ]
    if namespaces:
        header = ["NAMESPACE", *header]
        rows = [[entry.namespace, *row] for entry, row in zip(entries, rows, strict=True)]
    return columns(header, rows)


def run_document(entry: RunEntry) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(entry)
    for name in ("submitted", "admitted", "started", "ended"):
        document[name] = moment_text(document[name]) or None
    document["waitSeconds"], document["runSeconds"] = document.pop("wait"), document.pop("run")
    document["hours"] = {resource: hours(resource, amount) for resource, amount in entry.used.items()}
    return document


def run_rows(entries: Sequence[RunEntry]) -> tuple[list[str], Rows, list[str]]:
    """Return the header, the rows, and the names of the columns with exact sums for `phalanx history`."""
    resources = _ordered({resource for entry in entries for resource in entry.used})
    sums = [f"{resource}_{kind}" for resource in resources for kind in ("seconds", "evicted_seconds")]
    fixed = "namespace gang kind uid queue user state reason submitted admitted started ended wait_seconds"
    header = [*fixed.split(), "run_seconds", "members", "evictions", "estimated", *sums]
    rows = [
        [
            *(entry.namespace, entry.name, entry.kind, entry.uid, entry.queue, entry.user, entry.state),
            *(entry.reason, moment_text(entry.submitted), *map(_moment, (entry.admitted, entry.started))),
            *(_moment(entry.ended), entry.wait, entry.run, entry.members, entry.evictions, entry.estimated),
            *(held.get(resource, 0) for resource in resources for held in (entry.used, entry.evicted)),
        ]
        for entry in entries
    ]
    return header, rows, sums


def report_table(by: Sequence[str], lines: Sequence[ReportLine]) -> list[str]:
    resources = _ordered({resource for line in lines for resource in line.resources})
    header = [*(name.upper() for name in by), "STARTED", "ENDED", "WAIT-P50", "WAIT-P90"]
    header += [*(f"{_heading(resource)}-HOURS" for resource in resources), "EVICTED", "FAILED"]
    rows = []
    for line in lines:
        used = {name: entry.used for name, entry in line.resources.items()}
        evicted = {name: entry.evicted for name, entry in line.resources.items() if entry.evicted}
        failed = {name: entry.failed for name, entry in line.resources.items() if entry.failed}
        rows.append(
            [
                *line.group,
                str(line.started),
                str(line.ended),
                *(span(wait) if wait is not None else "" for wait in (line.wait_p50, line.wait_p90)),
                *(f"{hours(resource, used.get(resource, 0)):.2f}" for resource in resources),
                _brief(evicted),
                _brief(failed),
            ]
        )
    return columns(header, rows)


def report_document(by: Sequence[str], since: int, until: int, lines: Sequence[ReportLine]) -> dict[str, Any]:
    return {
        "from": moment_text(since),
        "to": moment_text(until),
        "by": list(by),
        "lines": [
            {
                **dict(zip(by, line.group, strict=True)),
                "started": line.started,
                "ended": line.ended,
                "states": dict(sorted(line.states.items())),
                "waitSeconds": {"p50": line.wait_p50, "p90": line.wait_p90},
                "resources": {
                    name: {
                        "hours": hours(name, entry.used),
                        "seconds": entry.used,
                        "evictedSeconds": entry.evicted,
                        "failedSeconds": entry.failed,
                    }
                    for name, entry in sorted(line.resources.items())
                },
            }
            for line in lines
        ],
    }


def report_rows(by: Sequence[str], lines: Sequence[ReportLine]) -> tuple[list[str], Rows, list[str]]:
    resources = _ordered({resource for line in lines for resource in line.resources})
    kinds = ("seconds", "evicted_seconds", "failed_seconds")
    sums = [f"{resource}_{kind}" for resource in resources for kind in kinds]
    header = [*by, "started", "ended", "wait_p50_seconds", "wait_p90_seconds"]
    header += [*(f"{resource}_hours" for resource in resources), *sums]
    rows: list[list[Cell]] = []
    for line in lines:
        held = [line.resources.get(resource) for resource in resources]
        exact = [(entry.used, entry.evicted, entry.failed) if entry is not None else (0, 0, 0) for entry in held]
        used = [hours(resource, part[0]) for resource, part in zip(resources, exact, strict=True)]
        counts = (line.started, line.ended, line.wait_p50, line.wait_p90)
        rows.append([*line.group, *counts, *used, *(number for part in exact for number in part)])
    return header, rows, sums


def write_rows(output: str, file: str | None, rows: tuple[list[str], Rows, list[str]]) -> None:
    """Write CSV to stdout or `file`, or Parquet to `file`. Raises click.ClickException."""
    from phalanx.accounting.exports import as_csv, write_parquet

    header, cells, sums = rows
    try:
        if output == "parquet":
            assert file is not None
            write_parquet(Path(file), header, cells, sums)
        elif file is not None:
            Path(file).write_text(as_csv(header, cells), "utf-8", newline="")
        else:
            click.echo(as_csv(header, cells), nl=False)
    except ImportError as error:
        raise click.ClickException("-o parquet needs pyarrow: pip install 'phalanx-scheduler[parquet]'") from error
    except OSError as error:
        raise click.ClickException(f"cannot write {file}: {error.strerror or error}") from error


def check_file(output: str, file: str | None) -> None:
    """Raise click.UsageError if `file` does not match the output format."""
    if output == "parquet" and file is None:
        raise click.UsageError("-o parquet needs an output file; set --file FILE")
    if file is not None and output not in ("csv", "parquet"):
        raise click.UsageError("--file works with -o csv and -o parquet only")


def _brief(sums: Mapping[str, int]) -> str:
    """Format usage in hours as `cpu=12.50,gpu=4.00`, with resource names without domain."""
    return ",".join(f"{_short(name)}={hours(name, sums[name]):.2f}" for name in _ordered(sums) if sums[name])


def _ordered(resources: Iterable[str]) -> list[str]:
    first = (CPU, MEMORY)
    return sorted(resources, key=lambda name: (first.index(name) if name in first else len(first), name))


def _heading(resource: str) -> str:
    return f"{_short(resource).upper()}{'-GIB' if _is_bytes(resource) else ''}"


def _short(resource: str) -> str:
    return resource.rpartition("/")[2]


def _is_bytes(resource: str) -> bool:
    return resource in (MEMORY, "ephemeral-storage") or resource.startswith("hugepages-")


def _moment(seconds: int | None) -> str | None:
    return moment_text(seconds) or None
