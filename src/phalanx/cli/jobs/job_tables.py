"""Tables and details of jobs on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from phalanx.cli.columns import columns, fields
from phalanx.cli.listing.ages import age
from phalanx.model.gang_names import GANG, PODGROUP
from phalanx.reports.jobs.entries import JobDescription, JobEntry, PodEntry
from phalanx.views.gang_state import CODES, GangState

# Phases of PodGroups and native jobs that are neither a state of a gang nor a phase of a Volcano Job.
_GROUP_PHASES = ("New", "Suspended", "Inqueue", "Unknown", "PreScheduling", "Scheduling", "Scheduled", "Finished")


def selected_states(words: Iterable[str]) -> set[str]:
    """Return the states, codes and phases that --state selects, in lower case. Raises click.UsageError."""
    from phalanx.cli.listing.known_names import refuse_unknown_words
    from phalanx.jobs.spec import JobPhase

    known = dict.fromkeys(str(word) for word in (*CODES, *CODES.values(), *JobPhase, *_GROUP_PHASES) if word)
    spellings = {word.lower() for word in words}
    refuse_unknown_words("--state", sorted(spellings), {word.lower(): word for word in known if word.isalpha()})
    return spellings


def job_table(jobs: Sequence[JobEntry], now: float, *, wide: bool, namespaces: bool) -> list[str]:
    header = ["NAME", "KIND", "QUEUE", "STATUS", "MIN", "RUN/READY/ALL", "RETRIES", "AGE", "REASON"]
    if wide:
        header[6:6] = ["PENDING", "SUCCEEDED", "FAILED"]
        header[-1:] = ["PHASE", "SCHEDULER", "GROUP", "OWNER", "REASON"]
    rows = []
    for job in jobs:
        row = [
            job.shown or job.name,
            job.kind,
            job.queue,
            job.state,
            str(job.minimum),
            f"{job.running}/{job.ready}/{job.total}",
            f"{job.retries}/{job.retry_limit}" if job.retry_limit is not None else "",
            age(job.created, now),
            _reason(job, wide),
        ]
        if wide:
            row[6:6] = [str(job.pending), str(job.succeeded), str(job.failed)]
            row[-1:] = [job.phase, job.scheduler, job.group, job.owner, _reason(job, wide)]
        rows.append([job.namespace, *row] if namespaces else row)
    return columns(
        ["NAMESPACE", *header] if namespaces else header, [[cell or "-" for cell in row] for row in rows]
    )


def _reason(job: JobEntry, wide: bool) -> str:
    return f"{job.reason}: {job.message}" if wide and job.message else job.reason


def description(details: JobDescription, now: float) -> list[str]:
    job = details.job
    retries = f"{job.retries} of {job.retry_limit}" if job.retry_limit is not None else ""
    status = job.state + (f" ({job.reason})" if job.reason else "")
    counts = [
        f"{count} {word}"
        for count, word in (
            (job.pending, "pending"),
            (job.running, "running"),
            (job.ready, "ready"),
            (job.succeeded, "succeeded"),
            (job.failed, "failed"),
            (job.terminating, "terminating"),
            (job.unknown, "unknown"),
        )
        if count
    ]
    pairs = [
        ("Name", job.name),
        ("Namespace", job.namespace),
        ("Kind", job.kind),
        ("Owner", job.owner),
        ("Queue", job.queue),
        ("Scheduler", job.scheduler),
        ("Status", f"{status}\n{job.message}" if job.message else status),
        ("Phase", job.phase if job.phase != job.state else ""),
        ("Pods", f"{job.total} desired, {job.minimum} minimum; {', '.join(counts) or 'none yet'}"),
        ("Retries", retries),
        ("Age", age(job.created, now)),
        ("Ended", f"{age(job.finished, now)} ago" if job.finished else ""),
        ("Plugins", ", ".join(" ".join((name, *words)) for name, words in details.plugins.items())),
        ("Policies", "\n".join(details.policies)),
    ]
    if details.run_time is not None:
        pairs += [tuple(line.split(": ", 1)) for line in details.run_time.lines()]  # type: ignore[misc]
    lines = fields([(name, text) for name, text in pairs if text])
    if details.tasks:
        header = ["TASK", "REPLICAS", "MIN", "PENDING", "RUNNING", "SUCCEEDED", "FAILED"]
        rows = [
            [
                task.name,
                *map(str, (task.replicas, task.minimum, task.pending, task.running, task.succeeded, task.failed)),
            ]
            for task in details.tasks
        ]
        lines += ["", *columns(header, rows)]
    if details.pods:
        lines += ["", *pod_table(details.pods, now)]
    if details.conditions:
        rows = [
            [entry.about, entry.type, entry.status, entry.reason, age(entry.since, now), entry.message]
            for entry in details.conditions
        ]
        lines += ["", *columns(["CONDITION OF", "TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"], _dashes(rows))]
    if details.events:
        rows = [
            [event.type, event.reason, event.about, _times(event.count, age(event.seen, now)), event.message]
            for event in details.events
        ]
        lines += ["", *columns(["EVENT", "REASON", "OBJECT", "AGE", "MESSAGE"], _dashes(rows))]
    return [*lines, *next_steps(job)]


def pod_table(pods: Iterable[PodEntry], now: float) -> list[str]:
    rows = [
        [
            pod.name,
            pod.task,
            "Terminating" if pod.terminating else pod.phase,
            "yes" if pod.ready else "no",
            str(pod.restarts),
            "" if pod.exit_code is None else str(pod.exit_code),
            pod.node,
            age(pod.created, now),
            pod.reason,
        ]
        for pod in pods
    ]
    return columns(["POD", "TASK", "STATUS", "READY", "RESTARTS", "EXIT", "NODE", "AGE", "REASON"], _dashes(rows))


def next_steps(job: JobEntry) -> list[str]:
    """Return the next useful command for a job, as output lines."""
    target = f"{job.target} -n {job.namespace}"
    if job.reason == "NoController" or job.over:
        return ["", f"Logs:   phalanx job logs {target}"] if job.over else []
    if job.state is GangState.SUSPENDED:
        return ["", f"To resume:   phalanx job resume {target}"]
    if job.running < job.minimum and job.group:
        kind = job.kind if job.kind != GANG else PODGROUP
        return ["", f"To see the reason:   phalanx why {kind}/{job.name} -n {job.namespace}"]
    return []


def _times(count: int, when: str) -> str:
    return f"{when} (x{count})" if count > 1 else when


def _dashes(rows: Iterable[list[str]]) -> list[list[str]]:
    return [[cell or "-" for cell in row] for row in rows]
