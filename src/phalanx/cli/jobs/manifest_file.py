"""Files of manifests: what is in them, and what is filled in where the person who submits them asks for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

Json = dict[str, Any]

VOLCANO_JOB = "batch.volcano.sh"
QUEUE_ANNOTATION = "scheduling.volcano.sh/queue-name"
# Where pods are made from, by API group and kind.
_TEMPLATES: dict[tuple[str, str], tuple[str, ...]] = {
    ("batch", "Job"): ("spec", "template"),
    ("batch", "CronJob"): ("spec", "jobTemplate", "spec", "template"),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
}
# Kinds that have fields of their own for a queue and a scheduler.
_JOB_SPECS: dict[tuple[str, str], tuple[str, ...]] = {
    (VOLCANO_JOB, "Job"): ("spec",),
    (VOLCANO_JOB, "CronJob"): ("spec", "jobTemplate", "spec"),
    ("flow.volcano.sh", "JobTemplate"): ("spec",),
}


def read_manifests(file: str) -> list[Json]:
    """Every object of a YAML or JSON file, `-` for stdin; lists are taken apart. Raises click.ClickException."""
    import yaml

    from phalanx.model.text.yaml_text import decode_yaml_all

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        documents = list(decode_yaml_all(text))
    except (OSError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{file}: {getattr(error, 'strerror', None) or error}") from error
    except yaml.YAMLError as error:
        raise click.ClickException(f"{file}: it is no YAML: {error}") from error
    found = [entry for number, document in enumerate(documents, 1) for entry in _objects(file, number, document)]
    if not found:
        raise click.ClickException(f"{file}: there is no object in it")
    return found


def _objects(file: str, number: int, document: Any) -> Iterator[Json]:
    if document is None:
        return
    where = f"{file}: document {number}"
    if not isinstance(document, dict):
        raise click.ClickException(f"{where} is no object; write apiVersion, kind, metadata and spec")
    if isinstance(document.get("items"), list) and str(document.get("kind", "")).endswith("List"):
        for entry in document["items"]:
            yield from _objects(file, number, entry)
        return
    for field in ("apiVersion", "kind"):
        if not isinstance(document.get(field), str) or not document[field]:
            raise click.ClickException(f"{where} states no {field}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict) or not (metadata.get("name") or metadata.get("generateName")):
        raise click.ClickException(f"{where} ({document['kind']}) states no metadata.name")
    yield document


def group_of(document: Json) -> str:
    return str(document["apiVersion"]).rpartition("/")[0]


def fill_in(document: Json, *, queue: str, scheduler_name: str, priority_class: str) -> None:
    """Sets a queue, a scheduler and a priority class where the object states none; "" leaves a field alone."""
    key = (group_of(document), document["kind"])
    if key in _JOB_SPECS:
        spec = _at(document, _JOB_SPECS[key])
        _default(spec, "queue", queue)
        _default(spec, "schedulerName", scheduler_name)
        _default(spec, "priorityClassName", priority_class)
    elif key == ("", "Pod") or key in _TEMPLATES:
        template = _at(document, _TEMPLATES.get(key, ()))
        spec = _at(template, ("spec",))
        _default(spec, "schedulerName", scheduler_name)
        _default(spec, "priorityClassName", priority_class)
        if queue:
            _default(_at(template, ("metadata", "annotations")), QUEUE_ANNOTATION, queue)
    elif document["kind"] == "PodGroup" and key[0] in ("scheduling.volcano.sh", "scheduling.incubator.k8s.io"):
        spec = _at(document, ("spec",))
        _default(spec, "queue", queue)
        _default(spec, "priorityClassName", priority_class)


def _at(document: Json, path: tuple[str, ...]) -> Json:
    """The object at a path, made where there is none."""
    place = document
    for key in path:
        if not isinstance(place.get(key), dict):
            place[key] = {}
        place = place[key]
    return place


def _default(place: Json, key: str, value: str) -> None:
    if value and not place.get(key):
        place[key] = value
