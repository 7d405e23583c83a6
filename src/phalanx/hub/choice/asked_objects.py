"""Objects of a gang for forecasts in member clusters: the kind of gangs that are alike, and the pods that represent
a job."""

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
    """Return a key for the kind of a gang: gangs of one kind differ only by name for schedulers and need the same
    data."""
    name = record.gang.name
    parts = []
    for document in documents:
        captured_document = captured(document["apiVersion"], document["kind"], document)
        metadata = captured_document.get("metadata") or {}
        marks = {**(metadata.get("labels") or {}), **(metadata.get("annotations") or {})}
        plain = {
            key: str(value).replace(name, "*")
            for key, value in marks.items()
            if not key.startswith("phalanx.dev/") and not str(value).replace(name, "").isdigit()
        }
        content = {key: value for key, value in captured_document.items() if key != "metadata"}
        parts.append(msgspec.json.encode([metadata.get("namespace"), plain, content], order="deterministic"))
    refused = [attempt.cluster for attempt in record.status.attempts if attempt.outcome == "Refused"]
    digest = hashlib.blake2b(b"\0".join(sorted(parts)), digest_size=16)
    constraints = [gang.clusters, refused, record.gang.api_version, record.gang.kind, needs]
    digest.update(msgspec.json.encode(constraints))
    return digest.hexdigest()


def declared(kind: JobKind, job: Json) -> tuple[tuple[Json, ...], str]:
    """Return (objects that represent a job in a forecast, ""), or ((), reason) for a too large job."""
    try:
        return tuple(job_question(kind, job)), ""
    except TooManyPodsError as error:
        return (), str(error)
