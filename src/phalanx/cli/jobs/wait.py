"""Wait of a command for jobs to reach a state, with an exit code for the result."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from phalanx.cli.invocation import Invocation
    from phalanx.kube.changes import Change
    from phalanx.kube.client import KubeClient
    from phalanx.reports.jobs.entries import JobEntry
    from phalanx.reports.jobs.job_report import FoundJob

REACHED, ENDED_OTHERWISE, TIMED_OUT = 0, 1, 124
_PERIOD = 0.5
# Seconds until the watch shows the deletion that a poll has seen.
_LAST_STATE = 2.0


def outcome(job: JobEntry | None, state: str) -> int | None:
    """Return the exit code of a wait for one job: REACHED, ENDED_OTHERWISE, or None while the job can still reach
    `state`.

    `state` is a gang state in lower case, finished (ended with any result) or deleted. `job` is None if it no
    longer exists.
    """
    from phalanx.views.gang_state import GangState

    if job is None:
        return REACHED if state == "deleted" else ENDED_OTHERWISE
    match state:
        case "running":
            # A completed job has run.
            if job.state in (GangState.RUNNING, GangState.COMPLETED):
                return REACHED
        case "completed":
            if job.state is GangState.COMPLETED:
                return REACHED
        case "failed":
            if job.state in (GangState.FAILED, GangState.CANCELLED):
                return REACHED
        case "finished":
            if job.state.over:
                return REACHED
        case "suspended":
            if job.state is GangState.SUSPENDED:
                return REACHED
        case "deleted":
            return None
    return ENDED_OTHERWISE if job.state.over else None


def progress(job: JobEntry) -> str:
    """Return the state and pod counts of a job as text; a line is printed when they change."""
    text = f"{job.state}, {job.running} of {job.total} run"
    if job.succeeded or job.failed:
        text += f", {job.succeeded} succeeded, {job.failed} failed"
    if job.retries:
        text += f", {job.retries} retries" if job.retries > 1 else ", 1 retry"
    if job.reason:
        text += f"; {job.reason}" + (f": {job.message}" if job.message else "")
    return text


def wait_for_all(
    invocation: Invocation,
    targets: Sequence[tuple[str, str, str]],
    state: str,
    timeout: float | None,
    *,
    quiet: bool = False,
) -> int:
    """Wait until all jobs reach a state and return the worst exit code. Targets are (kind, namespace or "",
    name)."""

    async def work(client: KubeClient) -> int:
        try:
            async with asyncio.timeout(timeout):
                waits = [
                    _wait(client, kind, namespace or client.namespace, name, state, quiet, alone=len(targets) == 1)
                    for kind, namespace, name in targets
                ]
                return max(await asyncio.gather(*waits))
        except TimeoutError:
            click.echo(f"not {state} after {timeout:g} s", err=True)
            return TIMED_OUT

    return invocation.run(work)


async def _wait(
    client: KubeClient, kind: str, namespace: str, name: str, state: str, quiet: bool, *, alone: bool
) -> int:
    from phalanx.cli.jobs.target import find_job
    from phalanx.reports.jobs.job_report import JobReader

    reader, start, last = JobReader(client), time.monotonic(), ""
    try:
        job = await find_job(reader, kind, name, namespace)
    except click.ClickException:
        if state == "deleted":
            return REACHED
        raise
    # The typed name can be a PodGroup or a subgroup, so the found job is followed by its own name and uid.
    kind, own_name, uid = job.entry.kind, job.entry.name, job.entry.uid
    async with _followed(client, job) as last_state:
        while True:
            current = await reader.job(kind, namespace, own_name, time.time())
            # A later job with the same name is another job.
            entry = current.entry if current is not None and current.entry.uid == uid else None
            if entry is None and (document := await last_state()) is not None:
                ended = reader.entry_of(job, document, time.time())
                if outcome(ended, state) == REACHED:
                    entry = ended  # deleted since, as a job with a TTL of 0 is
            line = progress(entry) if entry is not None else "deleted"
            if line != last and not quiet:
                click.echo(f"{time.monotonic() - start:7.1f} s  {'' if alone else f'{name}: '}{line}")
            last = line
            code = outcome(entry, state)
            if code is not None:
                if code == ENDED_OTHERWISE:
                    result = f"is {entry.state}, not {state}" if entry is not None else f"was deleted, not {state}"
                    click.echo(f"{name} {result}", err=True)
                return code
            await asyncio.sleep(_PERIOD)


@contextlib.asynccontextmanager
async def _followed(
    client: KubeClient, job: FoundJob
) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any] | None]]]:
    """Watch the job's own object; yield a function that returns its last state after its deletion.

    Between two polls a job can end and be deleted. The function returns None where the object cannot be watched.
    """
    from phalanx.kube.changes import Delete, Upsert
    from phalanx.kube.reflector import Reflector

    documents: deque[dict[str, Any]] = deque(maxlen=1)
    deleted = asyncio.Event()

    def keep(change: Change[dict[str, Any]]) -> None:
        if isinstance(change, Upsert) and change.uid == job.entry.uid:
            documents.append(change.object)
        elif isinstance(change, Delete) and change.uid == job.entry.uid:
            if change.last is not None:
                documents.append(change.last)
            deleted.set()

    async def last_state() -> dict[str, Any] | None:
        if job.resource is None:
            return None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_STATE):
                await deleted.wait()
        return documents[-1] if documents else None

    if job.resource is None:
        yield last_state
        return
    selector = f"metadata.name={job.document['metadata']['name']}"
    reflector = Reflector(
        client,
        job.resource,
        json.loads,
        keep,
        namespace=job.entry.namespace,
        field_selector=selector,
        optional=True,
    )
    watching = asyncio.create_task(reflector.run())
    try:
        yield last_state
    finally:
        watching.cancel()
        await asyncio.wait([watching])
