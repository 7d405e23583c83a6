"""The job that is meant by a name."""

from __future__ import annotations

import time

from phalanx.model.gang import shown_name
from phalanx.orders.errors import NotFoundError, OrderError
from phalanx.reports.jobs.job_report import AmbiguousName, FoundJob, JobReader
from phalanx.reports.jobs.kinds import GANG, RESOURCES


async def find_job(reader: JobReader, kind: str, name: str, namespace: str) -> FoundJob:
    """Raises OrderError where there is none, or several."""
    try:
        found = await reader.job(kind, namespace, name, time.time())
        if found is None and kind not in RESOURCES:
            # A gang that its owner names is found by its owner, of which it may be a part.
            owner, _, _ = shown_name(name).partition("/")
            found = await reader.named(namespace, name, time.time(), kind)
            if found is None and kind in ("", GANG):
                found = await reader.job("", namespace, owner, time.time())
    except AmbiguousName as error:
        raise OrderError(str(error)) from error
    if found is not None:
        return found
    what = {"": "job or PodGroup", "gang": "PodGroup or pod that names a gang", "vcjob": "Volcano Job"}.get(
        kind, kind
    )
    text = f"no {what} {name!r} in namespace {namespace!r}"
    if kind in ("", "vcjob") and not await reader.has_volcano_jobs():
        text += "; this cluster does not have Volcano Jobs, `phalanx install` brings them"
    elif reader.warnings:
        text += f"; {'; '.join(reader.warnings)}"
    raise NotFoundError(text)
