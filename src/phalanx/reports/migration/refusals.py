"""Jobs and job-creating objects that the webhook and the controllers would refuse, with the refusals' messages."""

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

# Missing queues are reported by `references.py`, which knows all objects.
_NOWHERE = AdmissionContext()
# Suffix of a generated name, in a form that the webhook accepts.
_SUFFIX = "x" * 5


def refusals(document: Document) -> list[str]:
    """Return the reasons to refuse an object at admission; [] for a kind without validation."""
    group, _, _ = str(document.get("apiVersion") or "").rpartition("/")
    judge = _JUDGES.get((group, str(document.get("kind"))))
    return list(dict.fromkeys(refusal.rstrip(";") for refusal in judge(document))) if judge is not None else []


def field_at_fault(document: Document, paths: Iterable[Path], refusal: str) -> Path | None:
    """Return the field that causes the refusal of an object; None if no single field does.

    It is the first field whose removal removes the refusal. Fields whose removal adds no new refusal come first,
    then fields whose value the refusal quotes.
    """
    before = set(refusals(document))
    candidates: list[tuple[bool, Path]] = []
    for path in sorted(paths, key=lambda path: f'"{_at(document, path)}"' not in refusal):
        after = set(refusals(_without(document, path)))
        if refusal not in after:
            candidates.append((not after <= before, path))
    return min(candidates, key=lambda candidate: candidate[0])[1] if candidates else None


def _of_job(document: Document) -> Iterator[str]:
    """Yield the refusals of a Job. A started Job is checked for its plugins only, because it continues anyway."""
    refusals_of_job: list[str] = []
    if not mapping(mapping(document.get("status")).get("state")).get("phase"):
        refusals_of_job = jobs.validate(jobs.defaults(named(document), _NOWHERE).document, None, _NOWHERE)
    yield from refusals_of_job
    if not any("job plugin" in refusal for refusal in refusals_of_job):
        yield from _of_plugins(named(document))


def _of_plugins(document: Document) -> Iterator[str]:
    """Yield refusals of a Job's invalid plugin arguments, which controllers check at pod creation."""
    try:
        job, _ = read_job(document)
        plugins_of(job)
    except msgspec.ValidationError:
        return
    except JobPluginError as error:
        yield str(error)


def _of_cron_job(document: Document) -> Iterator[str]:
    """Yield the refusals of a CronJob and of its job one by one; the webhook joins them into one sentence."""
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
    """Return a copy of the object with a name; a generated name does not exist yet."""
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
