"""Copies of the hub's jobs for member clusters, created suspended, and the state of these copies."""

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
#: Labels that an API server writes into a Job and its template; each server writes its own.
_GENERATED = frozenset(
    {"controller-uid", "batch.kubernetes.io/controller-uid", "job-name", "batch.kubernetes.io/job-name"}
)
_MOST_PODS = 10_000


class TooManyPodsError(Exception):
    """Error for a job that declares too many pods for a forecast."""


def job_copy(kind: JobKind, job: Json, origin: str, dispatch_uid: str, epoch: int, policy: LostPolicy) -> Json:
    """Return the suspended copy of a job, for its own controller and with the hub's annotations on its pod
    templates.

    The member's scheduler starts marked pods only while the hub's lease is renewed, as for copies of pods.
    """
    metadata = copy_metadata(job, origin, dispatch_uid, epoch, policy) | {"finalizers": [RESULT_FINALIZER]}
    job_copy: Json = {
        "apiVersion": kind.resource.api_version,
        "kind": kind.name,
        "metadata": metadata,
        "spec": copy.deepcopy(job.get("spec") or {}),
    }
    for path in (kind.managed_by, *kind.removed):
        _drop(job_copy, path)
    _put(job_copy, kind.job.suspend, True)
    for template in templates(kind, job_copy):
        metadata_of_template = _metadata_of(template)
        metadata_of_template["labels"] = {
            **(metadata_of_template.get("labels") or {}),
            **copy_labels(origin, dispatch_uid),
        }
        annotations = {EPOCH: str(epoch), WHEN_LOST: policy.value, ORIGIN_UID: job["metadata"]["uid"]}
        metadata_of_template["annotations"] = {**(metadata_of_template.get("annotations") or {}), **annotations}
    if kind is JOB:
        _drop_generated(job_copy)
    return job_copy


def _drop_generated(job: Json) -> None:
    """Remove the generated selector and its labels from a copied job; keep a selector that the user wrote."""
    spec, own = job["spec"], _GENERATED
    if spec.get("manualSelector") is True:
        return
    spec.pop("selector", None)
    spec.pop("manualSelector", None)
    for metadata in (job["metadata"], _metadata_of(spec.setdefault("template", {}))):
        metadata["labels"] = {key: value for key, value in (metadata.get("labels") or {}).items() if key not in own}


def templates(kind: JobKind, job: Json) -> Iterator[Json]:
    """Yield the pod templates of a copied job, which callers change in place."""
    for pod_set in pod_sets(kind.job, job):
        yield pod_set.template
    for path in kind.templates:
        if isinstance(template := at(job, path), dict):
            yield template


def is_copy(job: StoredObject) -> bool:
    """Return whether the hub created a job in a member cluster.

    A Job that a controller creates for a copy can have the copy's labels: an API server gives a Job without labels
    those of its pods.
    """
    owners = job.document["metadata"].get("ownerReferences") or ()
    return bool(job.annotation(ORIGIN_UID)) and not owners


def job_view(kind: JobKind, job: Json, origin: Json | None, last_written: Json | None = None) -> CopyView:
    """Return the state of a job's copy, compared with the job at the hub; `last_written` as in `has_news`."""
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
        # With foreground deletion the job exists until its pods are deleted.
        over=end.ended or (deleting and _FOREGROUND not in finalizers),
        deleting=deleting,
        held=RESULT_FINALIZER in finalizers,
        # Waiting for the grant is not mirrored.
        news=origin is not None and (hold or not gated or end.ended) and has_news(kind, job, origin, last_written),
        failed=end.failed,
        hold=hold,
        # The job possibly has pods, or had some before its suspension: it is never recalled as a waiting one.
        bound=True,
        version=str(metadata.get("resourceVersion") or ""),
    )


def job_question(kind: JobKind, job: Json) -> list[Json]:
    """Return the PodGroup and pods that represent a job in a forecast of its start.

    Raises TooManyPodsError.
    """
    name, namespace = job["metadata"]["name"], job["metadata"]["namespace"]
    group = GROUP_KINDS[0]
    # No existing pod has such a name.
    suffix = str(job["metadata"].get("uid") or "").replace("-", "")[:10].lower() or "pod"
    pods: list[Json] = []
    min_member = 0
    for pod_set in pod_sets(kind.job, job):
        if len(pods) + pod_set.count > _MOST_PODS:
            raise TooManyPodsError(f"more than {_MOST_PODS} pods; no forecast is made")
        min_member += pod_set.count if pod_set.counted else 0
        for _ in range(pod_set.count if pod_set.counted else 0):
            template_metadata = pod_set.template.get("metadata") or {}
            labels = {**(template_metadata.get("labels") or {}), group.label: name}
            metadata = {"name": f"{name}-{suffix}-{len(pods)}", "namespace": namespace, "labels": labels}
            metadata["annotations"] = dict(template_metadata.get("annotations") or {})
            pods.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": dict(pod_set.spec)})
    together = kind is not JOB or at(job, ("spec", "completionMode")) == "Indexed"
    head = {
        "apiVersion": group.resource.api_version,
        "kind": group.resource.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": max(1, min_member if together else 1)},
    }
    return [head, *pods]


def suspension(kind: JobKind, value: bool) -> Json:
    """Return the part of a merge patch that suspends or resumes a job."""
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
