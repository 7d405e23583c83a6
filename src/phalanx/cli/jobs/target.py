"""Parsing of job names: `NAME` or `KIND/NAME`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from phalanx.model.text.decoding import quoted

if TYPE_CHECKING:
    from phalanx.reports.jobs.job_report import FoundJob, JobReader


def parse_job(text: str) -> tuple[str, str]:
    """Parse `NAME` or `KIND/NAME` of a job to (kind or "", name). Raises click.UsageError."""
    from phalanx.reports.jobs.kinds import WORDS
    from phalanx.reports.owner_kinds import job_words

    word, slash, name = text.partition("/")
    if not slash or ("/" in name and word.lower() not in WORDS and word.lower() not in job_words()):
        # (The list name of a subgroup contains slashes.)
        word, slash, name = "", "", text
    kind = WORDS.get(word.lower(), "") or (job_words().get(word.lower(), "") if slash else "")
    if not name or (slash and not kind):
        raise click.UsageError(
            f"invalid name {quoted(text)}; write NAME or KIND/NAME of a job or podgroup, such as vcjob/train"
        )
    return kind, name


async def find_job(reader: JobReader, kind: str, name: str, namespace: str) -> FoundJob:
    """Return the job with a kind and name. Raises click.ClickException if there is none, or more than one."""
    from phalanx.orders.errors import OrderError
    from phalanx.orders.found_job import find_job as find

    try:
        return await find(reader, kind, name, namespace)
    except OrderError as error:
        raise click.ClickException(error.message) from error
