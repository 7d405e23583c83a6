"""Jobs of the hub as they are created, suspended, in a member cluster, and what is read back of them."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from phalanx.dialects.dispatched import WHEN_LOST
from phalanx.hub.copies import copy_labels, copy_metadata
from phalanx.hub.jobs.kinds import JOB, JobKind, Path, at, job_end, wants_suspension
from phalanx.hub.jobs.status import has_news
from phalanx.hub.names import EPOCH, GROUP_KINDS, ORIGIN_UID, RESULT_FINALIZER
from phalanx.hub.objects import StoredObject
from phalanx.hub.observed import CopyView, LostPolicy
from phalanx.jobs.suspended import pod_sets
from phalanx.model.text.decoding import parse_whole

Json = dict[str, Any]

_FOREGROUND = "foregroundDeletion"
#: What an API server has written into a Job and its template; another one writes its own.
_GENERATED = frozenset(
    {"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"}
)
_MOST_PODS = 10_000


class TooManyPodsError(Exception):
    """The job declares more pods than a forecast is made for."""


def job_copy(kind: JobKind, job: Json, origin: str, dispatch_uid: str, epoch: int, policy: LostPolicy) -> Json:
    """The copy of a job: suspended, for its own controller, and its pods known as the hub's.

    Its scheduler starts pods of this mark only while the hub's lease is renewed, as it does copies of pods."""
    metadata = copy_metadata(job, origin, dispatch_uid, epoch, policy) | {"finalizers": [RESULT_FINALIZER]}
    made: Json = {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "spec": copy.deepcopy(job.get("spec") or {}),
    }
    for path in (kind.managed_by, *kind.removed):
        _drop(made, path)
    _put(made, kind.job.suspend, True)
    for template in templates(kind, made):
        marked = _metadata_of(template)
        marked["labels"] = {**(marked.get("labels") or {}), **copy_labels(origin, dispatch_uid)}
        notes = {EPOCH: str(epoch), WHEN_LOST: policy.value, ORIGIN_UID: job["metadata"]["uid"]}
        marked["annotations"] = {**(marked.get("annotations") or {}), **notes}
    if kind is JOB:
        _drop_generated(made)
    return made


def _drop_generated(job: Json) -> None:
    """The selector, unless the user wrote it, and the labels that go with it."""
    spec, own = job["spec"], _GENERATED
    if spec.get("manualSelector") is True:
        return
    spec.pop("selector", None)
    spec.pop("manualSelector", None)
    for metadata in (job["metadata"], _metadata_of(spec.setdefault("template", {}))):
        metadata["labels"] = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in own}


def templates(kind: JobKind, job: Json) -> Iterator[Json]:
    """The pod templates of a job, to be changed in place."""
    for each in pod_sets(kind.job, job):
        yield each.template
    for path in kind.templates:
        if isinstance(found := at(job, path), dict):
            yield found


def is_copy(job: StoredObject) -> bool:
    """Whether the hub has made it. A Job that a controller makes for a copy may have the copy's labels: an API
    server gives one that has none those of its pods."""
    owners = job.document["metadata"].get("ownerReferences") or ()
    return bool(job.annotation(ORIGIN_UID)) and not owners


def job_view(kind: JobKind, job: Json, origin: Json | None, told: Json | None = None) -> CopyView:
    """A copy as it was read in its cluster, beside the job at the hub, where that is there (`told` as in
    `has_news`)."""
    metadata, end = job["metadata"], job_end(kind, job)
    annotations = metadata.get("annotations") or {}
    finalizers = metadata.get("finalizers") or ()
    deleting = metadata.get("deletionTimestamp") is not None
    hold = origin is not None and wants_suspension(kind, origin)
    gated = wants_suspension(kind, job)
    return CopyView(
        metadata["name"],
        metadata["uid"],
        str(annotations.get(ORIGIN_UID) or ""),
        parse_whole(str(annotations.get(EPOCH) or ""), 0) or 0,
        gated,
        ended=end.ended,
        # In the foreground it stays until its pods have gone.
        over=end.ended or (deleting and _FOREGROUND not in finalizers),
        deleting=deleting,
        held=RESULT_FINALIZER in finalizers,
        # That it waits for its grant is no news.
        news=origin is not None and (hold or not gated or end.ended) and has_news(kind, job, origin, told),
        failed=end.failed,
        hold=hold,
        # It may have pods, or have had some before it was suspended: it is never taken back as one that waits.
        bound=True,
        version=str(metadata.get("resourceVersion") or ""),
    )


def job_question(kind: JobKind, job: Json) -> list[Json]:
    """The PodGroup and pods that stand for a job when a cluster is asked when it would start.

    Raises TooManyPodsError."""
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    group = GROUP_KINDS[0]
    # No pod that is there has such a name.
    suffix = str(job["metadata"].get("uid") or "").replace("-", "")[:10].lower() or "pod"
    found: list[Json] = []
    least = 0
    for each in pod_sets(kind.job, job):
        if len(found) + each.count > _MOST_PODS:
            raise TooManyPodsError(f"more than {_MOST_PODS} pods; no forecast is made")
        least += each.count if each.counted else 0
        for _ in range(each.count if each.counted else 0):
            said = each.template.get("metadata") or {}
            labels = {**(said.get("labels") or {}), group.label: name}
            metadata = {"name": f"{name}-{suffix}-{len(found)}", "namespace": namespace, "labels": labels}
            metadata["annotations"] = dict(said.get("annotations") or {})
            found.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(each.spec)})
    together = kind is not JOB or at(job, ("spec", "completionMode")) == "Indexed"
    head = {
        "apiVersion": group.resource.api_version,
        "kind": group.resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": max(1, least if together else 1)},
    }
    return [head, *found]


def suspension(kind: JobKind, value: bool) -> Json:
    """The part of a merge patch that suspends a job or resumes it."""
    patch: Json = {}
    _put(patch, kind.job.suspend, value)
    return patch


def _metadata_of(template: Json) -> Json:
    metadata = template.get("metadata")
    if not isinstance(metadata, dict):
        metadata = template["metadata"] = {}
    return metadata


def _put(document: Json, path: Path, value: object) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value


def _drop(document: Json, path: Path) -> None:
    parent = at(document, path[:-1])
    if isinstance(parent, dict):
        parent.pop(path[-1], None)
