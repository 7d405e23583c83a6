"""Objects that are in order, for tests to put out of order."""

from __future__ import annotations

import copy
from typing import Any

from phalanx.admission.context import AdmissionContext, QueueCatalog

Json = dict[str, Any]


def template(**spec: Any) -> Json:
    return {"spec": {"containers": [{"name": "main", "image": "busybox"}], **spec}}


def task(name: str = "worker", replicas: object = 1, **fields: Any) -> Json:
    return {"name": name, "replicas": replicas, "template": template(), **fields}


def job(*tasks: Json, name: str = "train", **spec: Any) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"queue": "default", "tasks": list(tasks or (task(),)), **spec},
    }


def queue(name: str, parent: str = "", state: str = "Open", allocated_pods: int = 0, **spec: Any) -> Json:
    made: Json = {"metadata": {"name": name}, "spec": {"weight": 1, **spec}, "status": {"state": state}}
    if parent:
        made["spec"]["parent"] = parent
    if allocated_pods:
        made["status"]["allocated"] = {"pods": str(allocated_pods)}
    return made


def cluster(*queues: Json, **more: Any) -> AdmissionContext:
    """A cluster with `root`, `default` and these queues."""
    return AdmissionContext(queues=QueueCatalog([queue("root"), queue("default"), *queues]), **more)


def changed(document: Json, path: str, value: Any) -> Json:
    """A copy with one field set; `path` is like `spec.tasks.0.replicas`."""
    made = copy.deepcopy(document)
    place: Any = made
    *way, last = path.split(".")
    for key in way:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[int(last) if isinstance(place, list) else last] = value
    return made
