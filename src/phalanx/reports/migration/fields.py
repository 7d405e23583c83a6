"""Migration findings about single fields of objects that Phalanx reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from phalanx.dialects.devices.shared_cards import UNSUPPORTED
from phalanx.dialects.reader import Document
from phalanx.jobs.spec import BATCH
from phalanx.model.text.decoding import quoted
from phalanx.reports.capture.captured_kinds import ANNOTATIONS
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict
from phalanx.reports.migration.foreign import (
    DEFAULT_SCHEDULER,
    FOREIGN_KEYS,
    SCHEDULER_NAMES,
    said_of_foreign_field,
    said_of_key,
    said_of_policy,
    said_of_value,
    system_of,
)
from phalanx.reports.migration.operators import SPARK, Operator
from phalanx.reports.migration.readers import Path, Read, Readers, leaves, spelled
from phalanx.reports.migration.schemas import refused_value
from phalanx.reports.migration.templates import BATCH_SCHEDULER, value_at

NOBODY = "Phalanx ignores it; remove it, or keep the component that acts on it"
_PLACES = ("labels", "annotations")
# Fields that carry no scheduling settings.
_HEAD = frozenset(("apiVersion", "kind", "metadata", "status"))


class FieldExaminer:
    """Examiner of single fields. `name` is the name of the new scheduler."""

    def __init__(self, name: str, readers: Readers) -> None:
        self.name = name
        self.readers = readers

    def field(self, document: Document, read: Read, path: Path, messages: list[str]) -> FieldFinding:
        """Return the migration finding about a field that a decoder reads or ignores.

        `messages` are the reader's messages about the object; one that names this field is removed from them.
        """
        field = spelled(path)
        marks = (field, str(path[-1])) if path[0] == "metadata" else (field,)
        value = value_at(document, path)
        known = said_of_value(str(path[-1]), value)
        for message in messages:
            if any(f"{mark} " in message or f"{mark}:" in message for mark in marks):
                messages.remove(message)
                return FieldFinding(field, *(known or (MigrationVerdict.CHANGE, message)))
        if known is not None:
            return FieldFinding(field, *known)
        if refused := refused_value(document, path, value):
            return FieldFinding(field, MigrationVerdict.NOT_HONOURED, refused)
        if path[:2] == ("metadata", "annotations") and path[-1] in UNSUPPORTED:
            return FieldFinding(
                field,
                MigrationVerdict.NOT_HONOURED,
                "with the plugin deviceshare in the policy a pod that requests Koordinator's GPUs stays pending: "
                f"annotation {path[-1]} is not supported yet; without the plugin it is ignored; remove it",
            )
        if self.readers.honoured(document, read, path):
            return FieldFinding(field, MigrationVerdict.WORKS, said_of_policy(field))
        if path[:2] == ("metadata", "annotations") and path[-1] in ANNOTATIONS:
            return FieldFinding(field, MigrationVerdict.WORKS, "read; no effect on this object alone")
        if path[0] != "metadata" and _is_made_by_controller(document):
            return FieldFinding(
                field, MigrationVerdict.WORKS, "written by the controller of its owner; Phalanx ignores it"
            )
        return self.unread(path)

    def unread(self, path: Path) -> FieldFinding:
        """Return the migration finding about a field that no decoder of Phalanx acts on."""
        known = said_of_key(str(path[-1])) if path[0] == "metadata" else said_of_foreign_field(spelled(path))
        verdict, message = known or (MigrationVerdict.NOT_HONOURED, NOBODY)
        return FieldFinding(spelled(path), verdict, message)

    def scheduler(self, path: Path, name: str, operator: Operator | None = None) -> FieldFinding:
        """Return the migration finding about a field that names another scheduler.

        `operator` writes the name into pods, if any.
        """
        if path[-1] == BATCH_SCHEDULER:
            operator = SPARK
        if operator is not None and name in SCHEDULER_NAMES:
            operator_advice = operator.advice_for(name, self.name)
            return FieldFinding(
                spelled(path), MigrationVerdict.CHANGE, operator_advice, served=name, kept=operator.keeps_name
            )
        if name != DEFAULT_SCHEDULER and name not in SCHEDULER_NAMES:
            words = f"write {self.name}; scheduler {name} is unknown: if it is the"
            words += f" replaced scheduler, stop it and start Phalanx with --scheduler-name {name} as well"
            return FieldFinding(spelled(path), MigrationVerdict.CHANGE, words)
        advice = f"or run `phalanx scheduler --scheduler-name {name}` after the other scheduler is stopped"
        served = name
        if name == DEFAULT_SCHEDULER:
            advice, served = f"{name} is kube-scheduler's name", ""
        return FieldFinding(spelled(path), MigrationVerdict.CHANGE, f"write {self.name}; {advice}", served=served)


def name_faults(document: Document) -> list[FieldFinding]:
    """Return a finding for an object's missing or invalid name, which the API server rejects."""
    metadata = document.get("metadata")
    stated = metadata if isinstance(metadata, Mapping) else {}
    name, prefix = stated.get("name"), stated.get("generateName")
    if isinstance(name, str) and name:
        return []
    if name is None and isinstance(prefix, str) and prefix:
        return []
    words = (
        "the object has no name; write one"
        if not name and name != 0
        else f"{quoted(name)} is not a string; write it in quotes"
    )
    return [FieldFinding("metadata.name", MigrationVerdict.NOT_HONOURED, words)]


def _is_made_by_controller(document: Document) -> bool:
    """Return whether a controller wrote the object: a PodGroup of a Job contains more resource names than any
    decoder knows."""
    metadata = document.get("metadata")
    owners = metadata.get("ownerReferences") if isinstance(metadata, Mapping) else None
    return isinstance(owners, list) and any(
        isinstance(owner, Mapping) and str(owner.get("apiVersion") or "").startswith(f"{BATCH}/")
        for owner in owners
    )


def written_paths(document: Document) -> Iterator[Path]:
    """Yield the paths of an object's fields with scheduling settings; a pod template counts as one field."""
    written = (
        path
        for key, content in document.items()
        if key not in _HEAD and content is not None
        for path in leaves(content, (str(key),))
    )
    yield from dict.fromkeys(_upto_template(path) for path in written)
    yield from marked_paths(document)


def marked_paths(document: Document) -> Iterator[Path]:
    """Yield the paths of labels and annotations that belong to another scheduler's system."""
    metadata = document.get("metadata")
    for place in _PLACES:
        stated = metadata.get(place) if isinstance(metadata, Mapping) else None
        for key in stated if isinstance(stated, Mapping) else ():
            if isinstance(key, str) and (system_of(key) or key in FOREIGN_KEYS):
                yield ("metadata", place, key)


def _upto_template(path: Path) -> Path:
    """Return a path cut at a pod template, which is examined as a pod."""
    return path[: path.index("template") + 1] if "template" in path else path
