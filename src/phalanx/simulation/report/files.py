"""Report of a simulation: summary.json, jobs.csv, report.html and the changed lines of its input in one folder."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version

import msgspec

from phalanx.simulation.errors import InputError
from phalanx.simulation.inputs import Inputs
from phalanx.simulation.report.comparison import compare
from phalanx.simulation.report.never_started import never_started_of
from phalanx.simulation.report.page import page
from phalanx.simulation.report.text import change_lines, speed_lines, table_lines, warning_lines
from phalanx.simulation.runs import RunResult
from phalanx.simulation.workloads.changes import InputChange, count_changes

_CHANGES = "input-changes.csv"

_COLUMNS = (
    "policy", "seed", "job", "queue", "user", "width", "pods", "priority", "submit", "start", "end", "wait_seconds",
    "wait_is_lower_bound", "run_seconds", "limit_seconds", "outcome", "evicted_pods", "restarts", "lost_pods",
    "failed_pods", "node", "promised", "slip", "why",
)  # fmt: skip


def write_report(inputs: Inputs, results: Sequence[tuple[RunResult, float]], folder: Path) -> list[str]:
    """Write the report. Return the lines for the terminal, with the speed. Raises InputError if writing fails."""
    runs = [result for result, _ in results]
    changes = changes_of(inputs)
    summary = summary_of(inputs, runs, changes)
    texts = {
        "summary.json": json.dumps(summary, indent=2, ensure_ascii=False) + "\n",
        "jobs.csv": jobs_table(runs),
        "report.html": page(summary, runs, inputs.policies, changes),
    }
    if changes:
        texts[_CHANGES] = changes_table(changes)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8", newline="\n")
        if not changes:
            # That of an earlier run in the same folder.
            (folder / _CHANGES).unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"--report {folder}: cannot write the report: {error.strerror or error}") from error
    return [
        *table_lines(summary, runs),
        *change_lines(summary),
        *([f"these lines: {folder / _CHANGES}"] if changes else []),
        *warning_lines(runs),
        "",
        *speed_lines(results),
        f"report: {folder / 'report.html'}",
    ]


def changes_of(inputs: Inputs) -> list[InputChange]:
    """Return the lines of the workload files that are not simulated as written."""
    experiment = inputs.experiment
    changes = [change for workload in experiment.workloads for change in workload.changes(experiment.cluster)]
    # Without the folder, so that reports do not depend on the machine.
    return [msgspec.structs.replace(change, file=Path(change.file).name) for change in changes]


def summary_of(inputs: Inputs, runs: Sequence[RunResult], changes: Sequence[InputChange]) -> dict[str, object]:
    """Return the content of summary.json; the jobs that never started come first."""
    policies = [policy.name for policy in inputs.policies]
    return {
        "never_started": never_started_of(runs, policies),
        "inputs": [{"role": file.role, "file": file.name, "sha256": file.sha256} for file in inputs.files],
        "versions": _versions(),
        "until_seconds": inputs.experiment.until,
        "seeds": list(inputs.seeds),
        "policies": policies,
        "input_changes": [msgspec.to_builtins(count) for count in count_changes(changes)],
        "runs": [
            {
                "policy": run.policy,
                "seed": run.seed,
                "metrics": run.metrics,
                "lower_bounds": run.lower_bounds,
                "by_width": run.by_width,
                "by_limit": run.by_limit,
                "by_queue": run.by_queue,
                "start": run.start,
                "end": run.end,
                "failures": run.failures,
            }
            for run in runs
        ],
        "comparison": compare(runs, policies[0]),
    }


def changes_table(changes: Sequence[InputChange]) -> str:
    """Return the skipped and changed lines as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("file", "line", "job", "action", "reason", "before", "after"))
    for change in changes:
        action = "skipped" if change.skipped else "changed"
        writer.writerow((change.file, change.line, change.job, action, change.reason, change.before, change.after))
    return out.getvalue()


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
                    job.submit, job.start, job.end, job.wait(run.end),
                    "yes" if job.wait_is_censored else "no", job.run if job.end is not None else None,
                    job.limit or None, job.outcome.value, job.evicted, job.restarts, job.lost, job.failures,
                    job.node, job.promised, job.slip, job.why,
                )
            )  # fmt: skip
    return out.getvalue()
