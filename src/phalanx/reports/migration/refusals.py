"""Jobs, and what makes jobs, that the webhook and the controllers would not take, in their words."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from phalanx.admission import cron_jobs, job_flows, jobs
from phalanx.admission.context import AdmissionContext
from phalanx.admission.fields import mapping, name_of, text
from phalanx.dialects.reader import Document
from phalanx.jobs.plugins.plugin import JobPluginError
from phalanx.jobs.plugins.registry import plugins_of
from phalanx.jobs.spec import BATCH, FLOW, read_job
from phalanx.reports.migration.readers import Path

# Queues are looked for elsewhere, among all that was read.
_NOWHERE = AdmissionContext()
# What a generated name ends in, as the webhook takes it.
_SUFFIX = "x" * 5


def refusals(document: Document) -> list[str]:
    """Why nothing would come of the object; none for kinds that nobody judges."""
    group, _, _ = str(document.get("apiVersion") or "").rpartition("/")
    judge = _JUDGES.get((group, str(document.get("kind"))))
    return list(dict.fromkeys(refusal.rstrip(";") for refusal in judge(document))) if judge is not None else []


def field_at_fault(document: Document, paths: Iterable[Path], refusal: str) -> Path | None:
    """The first of the fields without which the object would not be refused so: those after which nothing new is
    wrong before the others, then those whose value is quoted. None if it is no single one."""
    before = set(refusals(document))
    found: list[tuple[bool, Path]] = []
    for path in sorted(paths, key=lambda path: f'"{_at(document, path)}"' not in refusal):
        after = set(refusals(_without(document, path)))
        if refusal not in after:
            found.append((not after <= before, path))
    return min(found, key=lambda each: each[0])[1] if found else None


def _of_job(document: Document) -> Iterator[str]:
    """A job that was begun is finished, whatever is new against it: but for its plugins, which are asked again."""
    said: list[str] = []
    if not mapping(mapping(document.get("status")).get("state")).get("phase"):
        said = jobs.validate(jobs.defaults(named(document), _NOWHERE).document, None, _NOWHERE)
    yield from said
    if not any("job plugin" in refusal for refusal in said):
        yield from _of_plugins(named(document))


def _of_plugins(document: Document) -> Iterator[str]:
    """Their arguments are looked at where pods are made."""
    try:
        job, _ = read_job(document)
        plugins_of(job)
    except msgspec.ValidationError:
        return
    except JobPluginError as error:
        yield str(error)


def _of_cron_job(document: Document) -> Iterator[str]:
    """Its own and those of its job one by one: together they would be one sentence."""
    whole = named(document)
    template = mapping(whole.get("spec")).get("jobTemplate")
    yield from cron_jobs.own_refusals(whole)
    made = {
        "metadata": {"name": name_of(whole)[: cron_jobs.MOST_CHARACTERS]},
        "spec": mapping(template).get("spec"),
    }
    for refusal in _of_job(made):
        yield f"spec.jobTemplate: {refusal}"


def _of_flow(document: Document) -> Iterator[str]:
    yield from job_flows.validate(document, None, _NOWHERE)


_JUDGES: Mapping[tuple[str, str], Callable[[Document], Iterator[str]]] = {
    (BATCH, "Job"): _of_job,
    (BATCH, "CronJob"): _of_cron_job,
    (FLOW, "JobFlow"): _of_flow,
    (FLOW, "JobTemplate"): _of_job,
}


def named(document: Document) -> dict[str, Any]:
    """A copy with a name: one that the API server generates is not there yet."""
    metadata = mapping(document.get("metadata"))
    name = name_of(document) or text(metadata.get("generateName")) + _SUFFIX
    return {**copy.deepcopy(dict(document)), "metadata": {**metadata, "name": name}}


def _at(document: Document, path: Path) -> object:
    value: Any = document
    for step in path:
        value = value[step]
    return value


def _without(document: Document, path: Path) -> dict[str, Any]:
    changed: dict[str, Any] = copy.deepcopy(dict(document))
    place: Any = changed
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return changed
