"""Checks of submitted objects against the cluster before the first of them is created."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from phalanx.orders import known_names
from phalanx.orders.errors import OrderError
from phalanx.orders.submission.manifests import QUEUE_ANNOTATION, VOLCANO_JOB, Json, group_of, label

if TYPE_CHECKING:
    from phalanx.kube.client import KubeClient


# Default of spec.schedulerName in the API.
_KUBE_SCHEDULER = "default-scheduler"


async def refuse_unknown_names(client: KubeClient, documents: list[Json], namespaces: Iterable[str]) -> None:
    """Raise OrderError for a namespace, PriorityClass or queue that neither exists nor is submitted.

    Only a webhook would reject such jobs, and the cluster can run without one: these jobs would wait forever.
    """
    from phalanx.jobs.suspended import QUEUE_LABEL
    from phalanx.reports.jobs.kinds import QUEUES

    submitted = {(document["kind"], document["metadata"].get("name")) for document in documents}

    def missing(kind: str, names: Iterable[str]) -> list[str]:
        return [name for name in dict.fromkeys(names) if (kind, name) not in submitted]

    for namespace in missing("Namespace", namespaces):
        await known_names.refuse_unknown_namespace(client, namespace)
    classes = (name for document in documents for name in _values(document, "priorityClassName"))
    await known_names.refuse_unknown_classes(client, missing("PriorityClass", classes))
    jobs = [document for document in documents if (group_of(document), document["kind"]) == (VOLCANO_JOB, "Job")]
    queues = (
        name
        for document in documents
        for name in (*_values(document, QUEUE_ANNOTATION), *_values(document, QUEUE_LABEL), *_queues_of(document))
    )
    names = missing("Queue", (*map(_queue_of, jobs), *queues))
    objects = await known_names.read_objects(client, QUEUES.path()) if names else None
    if objects is not None:
        known_names.refuse_missing("queue", names, objects)
        _refuse_closed_queues((job for job in jobs if _queue_of(job) in names), objects)


def unserved_scheduler_names(documents: Iterable[Json], served: Collection[str]) -> list[str]:
    """Return the schedulerNames in the documents that neither a scheduler in `served` nor kube-scheduler serves."""
    stated = (name for document in documents for name in _values(document, "schedulerName"))
    return [name for name in dict.fromkeys(stated) if name not in served and name != _KUBE_SCHEDULER]


def _values(document: Json, key: str) -> Iterator[str]:
    """Yield the texts under `key` anywhere in a document."""
    nodes: list[Any] = [document]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if isinstance(name := node.get(key), str) and name:
                yield name
            nodes.extend(node.values())
        elif isinstance(node, list):
            nodes.extend(node)


def _queue_of(job: Json) -> str:
    return (job.get("spec") or {}).get("queue") or "default"


def _queues_of(document: Json) -> list[str]:
    """Return the queue that the spec of a PodGroup names."""
    spec = document.get("spec")
    queue = spec.get("queue") if document["kind"] == "PodGroup" and isinstance(spec, dict) else None
    return [queue] if isinstance(queue, str) and queue else []


def _refuse_closed_queues(jobs: Iterable[Json], queues: list[Json]) -> None:
    """Raise OrderError for a Volcano Job whose queue is closed or has children."""
    from phalanx.admission.context import QueueCatalog
    from phalanx.admission.queue_state import refusals_of_queue

    catalog = QueueCatalog(queues)
    for job in jobs:
        refusals = refusals_of_queue(catalog, _queue_of(job), "job")
        if refusals:
            raise OrderError(f"{label(job)}: {' '.join(refusals)}")
