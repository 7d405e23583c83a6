"""The objects that a cluster is asked about: which gangs they make alike, and what stands for a job."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from phalanx.hub.data_objects import DataNeeds
from phalanx.hub.dispatch import Dispatch
from phalanx.hub.jobs.copies import TooManyPodsError, job_question
from phalanx.hub.jobs.kinds import JobKind
from phalanx.hub.objects import Json
from phalanx.hub.observed import OriginGang
from phalanx.reports.capture.captured_kinds import captured


def kind_of(documents: Sequence[Json], gang: OriginGang, record: Dispatch, needs: DataNeeds) -> str:
    """Gangs of one kind are alike for every cluster: what a scheduler reads of them is the same but for names, and
    they need the same data."""
    name = record.gang.name
    parts = []
    for document in documents:
        kept = captured(document["apiVersion"], document["kind"], document)
        metadata = kept.get("metadata") or {}
        marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        plain = {
            key: str(value).replace(name, "*")
            for key, value in marks.items()
            if not key.startswith("phalanx.dev/") and not str(value).replace(name, "").isdigit()
        }
        rest = {key: value for key, value in kept.items() if key != "metadata"}
        parts.append(msgspec.json.encode([metadata.get("namespace"), plain, rest], order="deterministic"))
    refused = [attempt.cluster for attempt in record.status.attempts if attempt.outcome == "Refused"]
    digest = hashlib.blake2b(b"\0".join(sorted(parts)), digest_size=16)
    here = [gang.clusters, refused, record.gang.api_version, record.gang.kind, needs]
    digest.update(msgspec.json.encode(here))
    return digest.hexdigest()


def declared(kind: JobKind, job: Json) -> tuple[tuple[Json, ...], str]:
    """What stands for a job in a question; nothing for one that is too large, and why."""
    try:
        return tuple(job_question(kind, job)), ""
    except TooManyPodsError as error:
        return (), str(error)
