"""Pod templates and scheduler names in objects of any kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from phalanx.admission.fields import mapping
from phalanx.dialects.gangs.declaration import QUEUE_ANNOTATION
from phalanx.dialects.reader import Document
from phalanx.dialects.workloads.table import BUILT_IN_RULES
from phalanx.reports.migration.conversions import queue_name
from phalanx.reports.migration.foreign import RENAMED_KEYS, SCHEDULER_NAMES
from phalanx.reports.migration.readers import Path
from phalanx.reports.owner_kinds import job_kinds

# Field of SparkApplication (sparkoperator.k8s.io); the operator writes its value into pods.
BATCH_SCHEDULER = "batchScheduler"
NAME_FIELDS = ("schedulerName", BATCH_SCHEDULER)
# Labels identify its pods.
SPARK_APPLICATION = ("sparkoperator.k8s.io", "SparkApplication")
_NOT_WRITTEN = frozenset(("apiVersion", "kind", "metadata", "status"))
# Fields of objects that create pods in several steps: their `template` is not a pod template.
_STEPS = ("template", "tasks", "jobTemplate")
# API groups of Kubernetes' own workload kinds: their pods are examined like pods of any owner.
NATIVE_GROUPS = frozenset(("", "apps", "batch"))
_PATCHED = (("spec", "template"), ("spec", "jobTemplate", "spec", "template"))


def pod_templates(document: Document) -> list[Path]:
    """Return the paths of pod templates in an object: mappings with `spec` and usually `metadata`."""
    return [path for key in _written(document) for path in _templates(document[key], (key,))]


def scheduler_names(document: Document) -> list[Path]:
    """Return the paths of scheduler names in an object, in templates and elsewhere."""
    return [path for key in _written(document) for path in _named(document[key], (key,))]


def in_template(path: Path, templates: list[Path]) -> bool:
    return any(path[: len(place)] == place for place in templates)


def is_grouped(document: Document) -> bool:
    """Return whether Phalanx treats the pods of such an owner as a gang."""
    group, kind = str(document.get("apiVersion") or "").rpartition("/")[0], str(document.get("kind"))
    if group in NATIVE_GROUPS:
        return True
    return (group, kind) in grouped_kinds()


def grouped_kinds() -> set[tuple[str, str]]:
    """Return (group, kind) of the owners whose pods Phalanx treats as gangs."""
    owners = {(rule.owner.group, rule.owner.kind) for rule in BUILT_IN_RULES if rule.owner is not None}
    submitted = ((group, kind) for group, _, kind in job_kinds())
    return owners.union(*(rule.controllers for rule in BUILT_IN_RULES), (SPARK_APPLICATION,), submitted)


def patch_of(document: Document, place: Path, scheduler_name: str, renamed: bool) -> dict[str, Any] | None:
    """Return the patch that makes Phalanx schedule a workload's future pods; None if no patch is needed or
    possible.

    `renamed` tells that its template names another scheduler.
    """
    if document.get("kind") == "Job" or place not in _PATCHED:
        return None
    made: dict[str, Any] = {}
    if renamed:
        made["spec"] = {"schedulerName": scheduler_name}
    # KAI reads the pods first, then their owner.
    stated: dict[str, Any] = {}
    for holder in (document, value_at(document, place)):
        metadata = mapping(holder.get("metadata"))
        stated |= {**mapping(metadata.get("labels")), **mapping(metadata.get("annotations"))}
    annotations = {
        ours: queue_name(stated[theirs]) if ours == QUEUE_ANNOTATION else stated[theirs]
        for theirs, ours in RENAMED_KEYS.items()
        if isinstance(stated.get(theirs), str)
    }
    if annotations:
        made["metadata"] = {"annotations": annotations}
    if not made:
        return None
    for step in reversed(place):
        made = {str(step): made}
    return made


def value_at(document: Document, path: Path) -> Any:
    value: Any = document
    for step in path:
        value = value[step]
    return value


def _written(document: Document) -> Iterator[str]:
    return (key for key in document if isinstance(key, str) and key not in _NOT_WRITTEN)


def _templates(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping):
        if _is_template(value, path):
            yield path
            return
        for key, content in value.items():
            if isinstance(key, str):
                yield from _templates(content, (*path, key))
    elif isinstance(value, list):
        for place, content in enumerate(value):
            yield from _templates(content, (*path, place))


def _is_template(value: Mapping[str, Any], path: Path) -> bool:
    spec = value.get("spec")
    if not isinstance(spec, Mapping) or any(step in spec for step in _STEPS):
        return False
    named = path[-1] == "template" and isinstance(spec.get("schedulerName"), str)
    return named or isinstance(spec.get("containers"), list)


def _named(value: object, path: Path) -> Iterator[Path]:
    if isinstance(value, Mapping):
        for key, content in value.items():
            if not isinstance(key, str):
                continue
            if key in NAME_FIELDS and isinstance(content, str) and content:
                # Other operators use the field for something else than a scheduler name.
                if key != BATCH_SCHEDULER or content in SCHEDULER_NAMES:
                    yield (*path, key)
            else:
                yield from _named(content, (*path, key))
    elif isinstance(value, list):
        for place, content in enumerate(value):
            yield from _named(content, (*path, place))
