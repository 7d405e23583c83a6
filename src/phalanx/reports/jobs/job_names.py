"""Shown names of jobs and gangs that are read as documents, and the one that a user means by a name."""

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
    """Return the facts that decide the shown name of a job, a PodGroup, or pods without either."""
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
        # The row of pods that one controller makes has the name of the controller.
        group = text(owner.get("apiVersion")).rpartition("/")[0]
        return GangNameFacts(kind_word(group, text(owner.get("kind"))), job.name, uid=text(owner.get("uid")))
    return GangNameFacts(PODGROUP, job.name)


def with_shown_names(jobs: Sequence[FoundJob]) -> list[FoundJob]:
    """Return the jobs with their shown names, which are unique in each namespace."""
    facts = [name_facts(each) for each in jobs]
    keys = [GangKey(each.entry.namespace, str(number)) for number, each in enumerate(jobs)]
    names = shown_names(dict(zip(keys, facts, strict=True)))
    return [
        msgspec.structs.replace(
            found, entry=msgspec.structs.replace(found.entry, shown=names[key]), target=_target(each, names[key])
        )
        for found, each, key in zip(jobs, facts, keys, strict=True)
    ]


def _target(facts: GangNameFacts, shown: str) -> str:
    return shown if shown.startswith(f"{facts.kind}/") else f"{facts.kind}/{shown}"


def find_named(
    jobs: Iterable[tuple[FoundJob, frozenset[str]]], namespace: str, name: str, kind: str
) -> FoundJob | None:
    """Return the job that a user means by a name; None where there is none. `jobs` come with the names of their
    PodGroups and of the gangs of their pods. `kind` is "" for any. Raises AmbiguousGangError."""
    word = normal_word(kind) if kind else ""
    found = []
    for job, gangs in jobs:
        facts = name_facts(job)
        shown = name in (job.entry.shown, job.target, job.entry.name, facts.name, facts.short)
        of_gangs = name in gangs or name in map(shown_name, gangs)
        if (word in ("", facts.kind) and shown) or (word in ("", PODGROUP) and (shown or of_gangs)):
            found.append((facts.kind, job))
    exact = [each for each in found if name in (each[1].entry.shown, each[1].target) or each[0] == word]
    found = exact or found
    if len({each for each, _ in found}) > 1:
        raise AmbiguousGangError(namespace, name, {job.target for _, job in found})
    return found[0][1] if found else None
