"""Wait for a job to reach a state."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from phalanx.kube.changes import Change, Delete, Upsert
from phalanx.kube.client import KubeClient
from phalanx.kube.reflector import Reflector
from phalanx.orders.errors import NotFoundError
from phalanx.orders.found_job import find_job
from phalanx.reports.jobs.entries import JobEntry
from phalanx.reports.jobs.job_report import FoundJob, JobReader
from phalanx.views.gang_state import GangState

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


async def wait_for_job(
    client: KubeClient,
    target: tuple[str, str, str],
    state: str,
    changed: Callable[[JobEntry | None], object] = lambda entry: None,
) -> tuple[int, JobEntry | None]:
    """Wait until a job reaches a state; return the result and the last entry of the job (None: deleted).

    `target` is (kind or "", namespace, name). `changed` receives the entry at the start and after each poll. Raises
    OrderError if there is no such job, or more than one.
    """
    kind, namespace, name = target
    reader = JobReader(client)
    try:
        job = await find_job(reader, kind, name, namespace)
    except NotFoundError:
        if state == "deleted":
            return REACHED, None
        raise
    # The given name can be a PodGroup or a subgroup, so the found job is followed by its own name and uid.
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
            changed(entry)
            code = outcome(entry, state)
            if code is not None:
                return code, entry
            await asyncio.sleep(_PERIOD)


@contextlib.asynccontextmanager
async def _followed(
    client: KubeClient, job: FoundJob
) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any] | None]]]:
    """Watch the job's own object; yield a function that returns its last state after its deletion.

    Between two polls a job can end and be deleted. The function returns None where the object cannot be watched.
    """
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
