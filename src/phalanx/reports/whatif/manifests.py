"""Pods of manifests, as controllers would create them and the API server would complete them."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from phalanx.dialects.times import format_time
from phalanx.jobs.plugins.plugin import JobPluginError
from phalanx.jobs.plugins.registry import plugins_of, shape
from phalanx.jobs.pod_group import desired_pod_group
from phalanx.jobs.pods import desired_pod
from phalanx.jobs.spec import read_job
from phalanx.simulation.documents import Document, FileObject
from phalanx.simulation.errors import InputError

_MOST_PODS = 100_000
_REPLICATED = {"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "StatefulSet": "apps/v1"}
_TEMPLATES = "Job, Volcano Job, Deployment, ReplicaSet or StatefulSet"


class PriorityClasses(msgspec.Struct, frozen=True):
    """Values of PriorityClasses by name; `default` is the priority of pods without a class."""

    values: dict[str, int]
    default: int = 0

    @classmethod
    def among(cls, entries: list[FileObject]) -> PriorityClasses:
        values = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
        default = 0
        for entry in entries:
            if entry.kind == "PriorityClass" and isinstance(value := entry.document.get("value", 0), int):
                values[str(entry.document["metadata"]["name"])] = value
                default = value if entry.document.get("globalDefault") is True else default
        return cls(values, default)


class Submission(msgspec.Struct):
    """Objects that a manifest file creates, its `pods` by uid, and notes for the user."""

    entries: list[FileObject]
    pods: list[str]
    notes: list[str]


def submission(
    objects: list[FileObject], classes: PriorityClasses, scheduler: str, namespace: str, now: int
) -> Submission:
    """Return the objects and pods that manifests create. Raises InputError for objects without derivable pods."""
    derived = Submission([], [], [])
    for entry in objects:
        document = _identified(entry, namespace, now)
        for made in _made(FileObject(entry.place, document), scheduler, classes):
            if made.get("kind") == "Pod":
                derived.pods.append(_complete(entry, made, derived, classes, scheduler, now))
            derived.entries.append(FileObject(entry.place, made))
        if len(derived.pods) > _MOST_PODS:
            raise InputError(f"{entry.place}: more than {_MOST_PODS} pods; use fewer")
    if not derived.pods:
        raise InputError(f"the input has no pods; use a Pod, {_TEMPLATES}")
    return derived


def _identified(entry: FileObject, namespace: str, now: int) -> dict[str, Any]:
    metadata = {
        "namespace": namespace,
        **entry.document["metadata"],
        "creationTimestamp": format_time(now),
    }
    metadata["uid"] = _uid(entry.kind, metadata)
    return {**entry.document, "metadata": metadata}


def _uid(kind: str, metadata: Mapping[str, Any]) -> str:
    """Return a uid for a new object that is equal for equal objects and valid as a part of names."""
    text = f"{kind}/{metadata['namespace']}/{metadata['name']}"
    return f"what-if-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"


def _made(entry: FileObject, scheduler: str, classes: PriorityClasses) -> Iterator[dict[str, Any]]:
    """Yield an object of a manifest, if the scheduler reads it, and the objects that its controllers create."""
    document, kind = dict(entry.document), entry.kind
    if (entry.api_version, kind) == ("batch.volcano.sh/v1alpha1", "Job"):
        yield from _volcano_job(entry, scheduler, classes)
    elif (entry.api_version, kind) == ("batch/v1", "Job"):
        yield document
        yield from _job(document)
    elif _REPLICATED.get(kind) == entry.api_version:
        yield document
        yield from _replicas(document)
    elif isinstance(spec := document.get("spec"), Mapping) and "template" in spec:
        raise InputError(f"{entry.place}: pods of this kind cannot be derived; use a Pod, {_TEMPLATES}")
    else:
        yield document


def _volcano_job(entry: FileObject, scheduler: str, classes: PriorityClasses) -> Iterator[dict[str, Any]]:
    job, faults = read_job(entry.document)
    if faults:
        raise InputError(f"{entry.place}: {faults[0]}")
    yield {**desired_pod_group(job, priorities=classes.values), "status": {"phase": "Pending"}} | {
        "metadata": {
            **desired_pod_group(job)["metadata"],
            "creationTimestamp": entry.document["metadata"]["creationTimestamp"],
        }
    }
    try:
        plugins = plugins_of(job)
        for task in job.spec.named_tasks():
            for index in range(task.replicas):
                pod = desired_pod(job, task, index, version=0, retry_count=0, scheduler_name=scheduler)
                yield shape(plugins, job, task, index, pod)
    except JobPluginError as error:
        raise InputError(f"{entry.place}: {error}") from error


def _job(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = document.get("spec") or {}
    parallelism = _count(spec, "parallelism", 1)
    completions = spec.get("completions")
    count = min(parallelism, completions) if isinstance(completions, int) else parallelism
    name, indexed = document["metadata"]["name"], spec.get("completionMode") == "Indexed"
    if spec.get("suspend") is True:
        count = 0
    for number in range(count):
        labels = {"batch.kubernetes.io/job-name": name, "job-name": name}
        annotations = {}
        if indexed:
            key = "batch.kubernetes.io/job-completion-index"
            labels[key] = annotations[key] = str(number)
        yield _pod(document, f"{name}-{number}", spec.get("template"), labels, annotations)


def _replicas(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec, name = document.get("spec") or {}, document["metadata"]["name"]
    for number in range(_count(spec, "replicas", 1)):
        yield _pod(document, f"{name}-{number}", spec.get("template"), {}, {})


def _count(spec: Mapping[str, Any], field: str, default: int) -> int:
    value = spec.get(field, default)
    return value if isinstance(value, int) and 0 <= value <= _MOST_PODS else default


def _pod(
    owner: Document, name: str, template: object, labels: dict[str, str], annotations: dict[str, str]
) -> dict[str, Any]:
    stated: Mapping[str, Any] = template if isinstance(template, Mapping) else {}
    stated_metadata: Mapping[str, Any] = stated.get("metadata") or {}
    metadata = owner["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": {**(stated_metadata.get("labels") or {}), **labels},
            "annotations": {**(stated_metadata.get("annotations") or {}), **annotations},
            "ownerReferences": [
                {
                    "apiVersion": owner["apiVersion"],
                    "kind": owner["kind"],
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                    "controller": True,
                }
            ],
        },
        "spec": copy.deepcopy(dict(stated.get("spec") or {})),
    }


def _complete(
    entry: FileObject,
    pod: dict[str, Any],
    derived: Submission,
    classes: PriorityClasses,
    scheduler: str,
    now: int,
) -> str:
    """Set the API server's defaults in a pod and return its uid."""
    metadata, spec = pod["metadata"], pod.setdefault("spec", {})
    if not isinstance(spec, dict):
        raise InputError(f"{entry.place}: spec is not an object; use the spec of a pod")
    metadata["creationTimestamp"] = format_time(now)
    uid = metadata["uid"] = _uid("Pod", metadata)
    pod.pop("status", None)
    if spec.get("priority") is None:
        name = spec.get("priorityClassName")
        if name and name not in classes.values:
            raise InputError(f"{entry.place}: unknown PriorityClass {name}; the API server would refuse its pods")
        spec["priority"] = classes.values[name] if name else classes.default
    stated = spec.get("schedulerName")
    if stated != scheduler:
        name = f"{entry.kind} {entry.document['metadata']['name']}"
        note = f"{name} is for the scheduler {stated or 'default-scheduler'}; the answer is as if for {scheduler}"
        if note not in derived.notes:
            derived.notes.append(note)
        spec["schedulerName"] = scheduler
    return uid
