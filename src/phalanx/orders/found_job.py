"""Lookup of a job by the name that a user gave."""

from __future__ import annotations

import time

from phalanx.model.gang import shown_name
from phalanx.model.text.decoding import quoted
from phalanx.orders.errors import NotFoundError, OrderError
from phalanx.reports.jobs.job_report import AmbiguousName, FoundJob, JobReader
from phalanx.reports.jobs.kinds import GANG, RESOURCES


async def find_job(reader: JobReader, kind: str, name: str, namespace: str) -> FoundJob:
    """Return the job with a given name. Raises OrderError if there is none or more than one."""
    try:
        job = await reader.job(kind, namespace, name, time.time())
        if job is None and kind not in RESOURCES:
            # The name of a gang can be OWNER/PART if its owner names it; then the owner is looked up.
            owner, _, _ = shown_name(name).partition("/")
            job = await reader.named(namespace, name, time.time(), kind)
            if job is None and kind in ("", GANG):
                job = await reader.job("", namespace, owner, time.time())
    except AmbiguousName as error:
        raise OrderError(str(error)) from error
    if job is not None:
        return job
    kind_text = {"": "job or PodGroup", "gang": "PodGroup or pod that names a gang", "vcjob": "Volcano Job"}.get(
        kind, kind
    )
    text = f"no {kind_text} {quoted(name)} in namespace {quoted(namespace)}"
    if kind in ("", "vcjob") and not await reader.has_volcano_jobs():
        text += "; this cluster does not have Volcano Jobs, `phalanx install` brings them"
    elif reader.warnings:
        text += f"; {'; '.join(reader.warnings)}"
    raise NotFoundError(text)
