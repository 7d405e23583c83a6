"""Manifests of submitted jobs: reading, and defaults for absent fields."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from phalanx.orders.errors import OrderError

Json = dict[str, Any]

VOLCANO_JOB = "batch.volcano.sh"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
#: Path of the pod template, by API group and kind.
TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
}
# Path of the spec with a queue and a scheduler, by API group and kind.
_JOB_SPECS: dict[tuple[str, str], tuple[str, ...]] = {
    (VOLCANO_JOB, "Job"): ("spec",),
    (VOLCANO_JOB, "CronJob"): ("spec", "jobTemplate", "spec"),
    ("flow.volcano.sh", "JobTemplate"): ("spec",),
}


def read_manifests(file: str) -> list[Json]:
    """Return the objects of a YAML or JSON file (`-`: stdin), with lists expanded. Raises OrderError."""
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise OrderError(f"cannot read {file}: {getattr(error, 'strerror', None) or error}") from error
    return parse_manifests(text, file)


def parse_manifests(text: str, origin: str) -> list[Json]:
    """Return the objects of a YAML or JSON text, with lists expanded; `origin` begins messages. Raises
    OrderError."""
    import yaml

    from phalanx.model.text.yaml_text import decode_yaml_all

    try:
        documents = list(decode_yaml_all(text))
    except yaml.YAMLError as error:
        raise OrderError(f"{origin}: invalid YAML: {error}") from error
    objects = [
        entry for number, document in enumerate(documents, 1) for entry in _objects(origin, number, document)
    ]
    if not objects:
        raise OrderError(f"{origin}: no objects found")
    return objects


def _objects(file: str, number: int, document: Any) -> Iterator[Json]:
    if document is None:
        return
    location = f"{file}: document {number}"
    if not isinstance(document, dict):
        raise OrderError(f"{location} is not an object; write apiVersion, kind, metadata and spec")
    if isinstance(document.get("items"), list) and str(document.get("kind", "")).endswith("List"):
        for entry in document["items"]:
            yield from _objects(file, number, entry)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise OrderError(f"{location} has no {field}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise OrderError(f"{location} ({document['kind']}) has no metadata.name")
    yield document


def group_of(document: Json) -> str:
    return str(document["apiVersion"]).rpartition("/")[0]


def label(document: Json) -> str:
    """Return the name of an object in kubectl's notation: `job.batch.volcano.sh/train`."""
    group, kind = group_of(document), document["kind"].lower()
    name = document["metadata"].get("name") or f"{document['metadata'].get('generateName')}…"
    return f"{f'{kind}.{group}' if group else kind}/{name}"


def fill_in(document: Json, *, queue: str, scheduler_name: str, priority_class: str) -> None:
    """Set queue, scheduler and priority class of a submitted object where they are absent; "" sets nothing."""
    key = (group_of(document), document["kind"])
    if key in _JOB_SPECS:
        spec = at(document, _JOB_SPECS[key])
        _default(spec, "queue", queue)
        _default(spec, "schedulerName", scheduler_name)
        _default(spec, "priorityClassName", priority_class)
    elif key == ("", "Pod") or key in TEMPLATES:
        template = at(document, TEMPLATES.get(key, ()))
        spec = at(template, ("spec",))
        _default(spec, "schedulerName", scheduler_name)
        _default(spec, "priorityClassName", priority_class)
        if queue:
            _default(at(template, ("metadata", "annotations")), QUEUE_ANNOTATION, queue)
    elif document["kind"] == "PodGroup" and key[0] in ("scheduling.volcano.sh", "scheduling.incubator.k8s.io"):
        spec = at(document, ("spec",))
        _default(spec, "queue", queue)
        _default(spec, "priorityClassName", priority_class)


def at(document: Json, path: tuple[str, ...]) -> Json:
    """Return the JSON object at a path of keys; missing objects are created."""
    node = document
    for key in path:
        if not isinstance(node.get(key), dict):
            node[key] = {}
        node = node[key]
    return node


def _default(fields: Json, key: str, value: str) -> None:
    if value and not fields.get(key):
        fields[key] = value
