"""Report of a simulation: summary.json, jobs.csv and report.html in one folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

from phalanx.simulation.errors import InputError
from phalanx.simulation.inputs import Inputs
from phalanx.simulation.report.comparison import compare
from phalanx.simulation.report.page import page
from phalanx.simulation.report.text import speed_lines, table_lines, warning_lines
from phalanx.simulation.runs import RunResult

_COLUMNS = (
    "policy", "seed", "job", "queue", "user", "width", "pods", "priority", "submit", "start", "end", "wait_seconds",
    "run_seconds", "limit_seconds", "outcome", "evicted_pods", "restarts", "lost_pods", "node", "promised",
    "slip", "why",
)  # fmt: skip


def write_report(inputs: Inputs, results: Sequence[tuple[RunResult, float]], folder: Path) -> list[str]:
    """Write the report. Return the lines for the terminal, with the speed. Raises InputError if writing fails."""
    runs = [result for result, _ in results]
    summary = summary_of(inputs, runs)
    texts = {
        "summary.json": json.dumps(summary, indent=2, ensure_ascii=False) + "\n",
        "jobs.csv": jobs_table(runs),
        "report.html": page(summary, runs, inputs.policies),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(f"--report {folder}: cannot write the report: {error}") from error
    return [
        *table_lines(summary),
        *warning_lines(runs),
        "",
        *speed_lines(results),
        f"report: {folder / 'report.html'}",
    ]


def summary_of(inputs: Inputs, runs: Sequence[RunResult]) -> dict[str, object]:
    return {
        "inputs": [{"role": file.role, "file": file.name, "sha256": file.sha256} for file in inputs.files],
        "versions": _versions(),
        "until_seconds": inputs.experiment.until,
        "seeds": list(inputs.seeds),
        "policies": [policy.name for policy in inputs.policies],
        "runs": [
            {
                "policy": run.policy,
                "seed": run.seed,
                "metrics": run.metrics,
                "by_width": run.by_width,
                "by_limit": run.by_limit,
                "by_queue": run.by_queue,
                "start": run.start,
                "end": run.end,
                "failures": run.failures,
            }
            for run in runs
        ],
        "comparison": compare(runs),
    }


def _versions() -> dict[str, str]:
    versions = {"python": python_version(), "numpy": version("numpy")}
    with suppress(PackageNotFoundError):
        versions["phalanx"] = version("phalanx-scheduler")
    return versions


def jobs_table(runs: Sequence[RunResult]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for run in runs:
        for job in run.jobs:
            writer.writerow(
                (
                    run.policy, run.seed, job.name, job.queue, job.user, job.width, job.pods, job.priority,
                    job.submit, job.start, job.end, job.wait(run.end), job.run if job.end is not None else None,
                    job.limit or None, job.outcome.value, job.evicted, job.restarts, job.lost, job.node,
                    job.promised, job.slip, job.why,
                )
            )  # fmt: skip
    return out.getvalue()
