"""Which job is meant: `NAME` or `KIND/NAME`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from phalanx.reports.jobs.job_report import FoundJob, JobReader


def parse_job(text: str) -> tuple[str, str]:
    """(kind or "", name). Raises click.UsageError."""
    from phalanx.reports.jobs.kinds import WORDS

    word, slash, name = text.rpartition("/")
    kind = WORDS.get(word.lower(), "")
    if not name or (slash and not kind):
        raise click.UsageError(
            f"{text!r}: expected NAME or KIND/NAME with one of vcjob, job, jobset, podgroup, such as vcjob/train"
        )
    return kind, name


async def find_job(reader: JobReader, kind: str, name: str, namespace: str) -> FoundJob:
    """Raises click.ClickException where there is none, or several."""
    from phalanx.reports.jobs.job_report import AmbiguousName

    try:
        found = await reader.job(kind, namespace, name, time.time())
    except AmbiguousName as error:
        raise click.ClickException(str(error)) from error
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
    raise click.ClickException(text)
