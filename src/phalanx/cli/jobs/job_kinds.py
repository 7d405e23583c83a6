"""Kinds of jobs as values of --kind: kind, plural or short name, of every kind that owns gangs."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.reports.jobs.job_report import FoundJob

#: Kinds that the help lists first; gang: only its pods declare it.
KINDS = ("vcjob", "job", "jobset", "podgroup", "gang")


def parse_kinds(texts: Collection[str]) -> set[str]:
    """Return the kinds that --kind selects by their kind, plural or short name."""
    if not texts:
        return set()
    # The kinds of jobs are those of the dialects, which only this option reads.
    from phalanx.reports.jobs.kinds import WORDS
    from phalanx.reports.owner_kinds import job_words

    words = {**job_words(), **WORDS, "podgroup": "podgroup", "podgroups": "podgroup", "pods": "pod"}
    return {words.get(text.lower(), text.lower()) for text in texts}


def refuse_unknown_kinds(kinds: Collection[str], listed: Collection[str] = ()) -> None:
    """Raise click.UsageError if one of `kinds` is neither among the kinds `listed` nor a kind of jobs."""
    if unlisted := sorted(set(kinds) - set(listed)):
        from phalanx.cli.listing.known_names import refuse_unknown_words
        from phalanx.reports.owner_kinds import job_words

        known = (*KINDS, "pod", *job_words().values(), *listed)
        refuse_unknown_words("--kind", unlisted, dict(zip(known, known, strict=True)))


def known_kinds(texts: Collection[str]) -> set[str]:
    """Return the kinds that --kind selects. Raises click.UsageError for an unknown one."""
    kinds = parse_kinds(texts)
    refuse_unknown_kinds(kinds)
    return kinds


def has_kind(job: FoundJob, kinds: Collection[str]) -> bool:
    """Return whether a job is of one of `kinds`; of any kind if there are none."""
    from phalanx.reports.jobs.job_names import kinds_of

    return not kinds or not kinds_of(job).isdisjoint(kinds)
