"""Shown names of jobs and gangs from API documents, and lookup by a shown name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from phalanx.dialects.gangs.job_owner import job_of_group, submitted_job
from phalanx.kube.core_resources import PODS
from phalanx.model.gang import Gang, GangKey, shown_name
from phalanx.model.gang_names import (
    PODGROUP,
    AmbiguousGangError,
    GangNameFacts,
    facts_of,
    kind_word,
    normal_word,
    shown_names,
    suffix_of_group,
)
from phalanx.reports.jobs.kinds import GANG
from phalanx.reports.jobs.read_documents import controller_of, mapping, text

if TYPE_CHECKING:
    from phalanx.reports.jobs.job_report import FoundJob

_POD = "pod"


def name_facts(found: FoundJob) -> GangNameFacts:
    """Return the job, PodGroup and part that determine the shown name of a job, a PodGroup, or pods without
    either."""
    job, submitted = found.entry, found.job
    if job.kind != GANG:
        submitted = submitted_job(mapping(found.document.get("metadata")))
    if submitted is not None:
        suffix = suffix_of_group(job.name, submitted.name, "")
        return GangNameFacts(submitted.kind, submitted.name, suffix=suffix, uid=submitted.uid)
    if job.kind != GANG:
        return GangNameFacts(job.kind, job.name, uid=job.uid)
    if found.resource == PODS:
        return GangNameFacts(_POD, job.name, uid=job.uid)
    key = GangKey(job.namespace, job.name)
    if found.resource is not None:
        return facts_of(key, Gang(key, owner=job_of_group(mapping(found.document.get("metadata")))))
    owner = controller_of(found.document)
    if text(owner.get("name")) == job.name:
        # The row of one controller's pods has the controller's name.
        group = text(owner.get("apiVersion")).rpartition("/")[0]
        return GangNameFacts(kind_word(group, text(owner.get("kind"))), job.name, uid=text(owner.get("uid")))
    return GangNameFacts(PODGROUP, job.name)


def kinds_of(found: FoundJob) -> frozenset[str]:
    """Return the words by which --kind selects a job: `gang` for gangs without a known job, and the kind of its
    name."""
    return frozenset({found.entry.kind, name_facts(found).kind})


def with_shown_names(jobs: Sequence[FoundJob]) -> list[FoundJob]:
    """Return the jobs with their shown names, which are unique in each namespace."""
    facts = [name_facts(job) for job in jobs]
    keys = [GangKey(job.entry.namespace, str(number)) for number, job in enumerate(jobs)]
    names = shown_names(dict(zip(keys, facts, strict=True)))
    return [
        msgspec.structs.replace(
            job, entry=msgspec.structs.replace(job.entry, shown=names[key]), target=_target(fact, names[key])
        )
        for job, fact, key in zip(jobs, facts, keys, strict=True)
    ]


def _target(facts: GangNameFacts, shown: str) -> str:
    return shown if shown.startswith(f"{facts.kind}/") else f"{facts.kind}/{shown}"


def find_named(
    jobs: Iterable[tuple[FoundJob, frozenset[str]]], namespace: str, name: str, kind: str
) -> FoundJob | None:
    """Return the job that a name means; None if there is none.

    `jobs` include the names of their PodGroups and of their pods' gangs. `kind` is "" for any. Raises
    AmbiguousGangError.
    """
    word = normal_word(kind) if kind else ""
    matches = []
    for job, gangs in jobs:
        facts = name_facts(job)
        shown = name in (job.entry.shown, job.target, job.entry.name, facts.name, facts.short)
        of_gangs = name in gangs or name in map(shown_name, gangs)
        if (word in ("", facts.kind) and shown) or (word in ("", PODGROUP) and (shown or of_gangs)):
            matches.append((facts.kind, job))
    exact = [match for match in matches if name in (match[1].entry.shown, match[1].target) or match[0] == word]
    matches = exact or matches
    if len({match for match, _ in matches}) > 1:
        raise AmbiguousGangError(namespace, name, {job.target for _, job in matches})
    return matches[0][1] if matches else None
