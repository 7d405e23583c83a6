"""Admission rules for CronJob (batch.volcano.sh): its schedule, its name, and its job template."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from phalanx.admission import jobs
from phalanx.admission.context import AdmissionContext
from phalanx.admission.fields import Json, PatchBuilder, mapping, name_of, text
from phalanx.admission.names import qualified_name_faults
from phalanx.jobs.cron_schedule import find_zone, is_cron_schedule

# The name of a job is that of its CronJob plus the minute of the run.
MOST_CHARACTERS = 52
_ZONE_PART = re.compile(r"[A-Za-z._0-9+-]{1,14}", re.ASCII)


def defaults(document: Json, context: AdmissionContext) -> PatchBuilder:
    """Return no defaults for a CronJob: its jobs get them at their creation."""
    return PatchBuilder(document)


def validate(document: Json, old: Json | None, context: AdmissionContext) -> list[str]:
    """Return the reasons to deny the creation of a CronJob, or (with `old`) its change.

    Its job is validated too, except for rules about a queue's state; upstream leaves that to the first run.
    """
    if old is not None and jobs.same(document.get("spec"), old.get("spec")):
        return []
    spec = mapping(document.get("spec"))
    refusals = own_refusals(document)
    template = spec.get("jobTemplate")
    if old is None or not jobs.same(template, mapping(old.get("spec")).get("jobTemplate")):
        refusals += [f"spec.jobTemplate: {refusal}" for refusal in _job(document, mapping(template))]
    return ["; ".join(refusals)] if refusals else []


def own_refusals(document: Json) -> list[str]:
    """Return the refusals for the CronJob's own fields, without those of its job."""
    return [*_schedule(mapping(document.get("spec"))), *_name(name_of(document))]


def _schedule(spec: Json) -> Iterator[str]:
    schedule, zone = text(spec.get("schedule")), spec.get("timeZone")
    if not schedule:
        yield "schedule is required, but got empty"
    elif "TZ" in schedule:
        yield "schedule should not contain TZ or CRON_TZ, TZ should only be set in the timeZone field"
    elif not is_cron_schedule(schedule):
        yield "schedule is not a valid cron expression"
    if zone is None:
        return
    if zone == "" or not isinstance(zone, str):
        yield "timeZone must be nil or non-empty string, got empty string"
    elif any(not _ZONE_PART.fullmatch(part) or part in (".", "..") or part[0] == "-" for part in zone.split("/")):
        yield "unknown timeZone"
    elif zone.casefold() == "local":
        yield "timeZone can't be Local, and must be defined in https://www.iana.org/time-zones"
    elif find_zone(zone) is None:
        yield "invalid timeZone"


def _name(name: str) -> Iterator[str]:
    if len(name) > MOST_CHARACTERS:
        yield (
            f"cronJob name must be no more than {MOST_CHARACTERS} characters to accommodate job name suffix "
            "(max 63 total)"
        )
    elif faults := qualified_name_faults(name):
        yield f'invalid cronJob name "{name}": {"; ".join(faults)}'


def _job(document: Json, template: Json) -> list[str]:
    job: dict[str, Any] = {
        "metadata": {"name": name_of(document)[:MOST_CHARACTERS] or "job"},
        "spec": mapping(template.get("spec")),
    }
    nowhere = AdmissionContext()
    return jobs.validate(jobs.defaults(job, nowhere).document, None, nowhere)
