"""Pods, and what makes pods: each template is judged as the pods that come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.admission.fields import mapping, text
from phalanx.dialects.reader import Document
from phalanx.reports.migration.fields import FieldExaminer, marked_paths, name_faults
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding, head_of
from phalanx.reports.migration.foreign import DEFAULT_SCHEDULER, SCHEDULER_NAMES, said_of_key, system_of
from phalanx.reports.migration.operators import Operator, OperatorJobs, maker_of, operator_of, operator_of_pod
from phalanx.reports.migration.readers import Path, spelled
from phalanx.reports.migration.refusals import named
from phalanx.reports.migration.templates import (
    NAME_FIELDS,
    in_template,
    is_grouped,
    patch_of,
    pod_templates,
    scheduler_names,
    value_at,
)

_FIXED = "the template of a Job cannot be changed: write it into what makes the next one"


class WorkloadExaminer:
    """Pods of one owner are told once."""

    def __init__(self, fields: FieldExaminer) -> None:
        self._fields = fields
        self._pods: dict[bytes, ObjectFinding] = {}
        self.operator_jobs = OperatorJobs()

    @property
    def pods(self) -> list[ObjectFinding]:
        return list(self._pods.values())

    @property
    def jobs_of_operators(self) -> list[ObjectFinding]:
        """Those that name no scheduler, and whose pods have another's name."""
        found = []
        for document, operator, name in self.operator_jobs.named():
            places = [spelled((*place, "spec", "schedulerName")) for place in pod_templates(document)]
            told = operator.told(name, self._fields.name)
            fields = tuple(FieldFinding(place, MigrationVerdict.CHANGE, told) for place in places[:1])
            head = head_of(document, SCHEDULER_NAMES.get(name, ""))
            found.append(msgspec.structs.replace(head, fields=fields))
        return found

    def add_pod(self, document: Document) -> None:
        """One that is over, or nobody's of these, is passed over."""
        paths, spec = list(marked_paths(document)), mapping(document.get("spec"))
        name = str(spec.get("schedulerName") or DEFAULT_SCHEDULER)
        system = _system(paths, name)
        if not system or mapping(document.get("status")).get("phase") in ("Succeeded", "Failed"):
            return
        operator = operator_of_pod(document)
        if name in SCHEDULER_NAMES and name != self._fields.name:
            self.operator_jobs.made(document, name)
        owners = mapping(document.get("metadata")).get("ownerReferences") or [{}]
        owner = owners[0].get("uid", "") if isinstance(owners, list) and isinstance(owners[0], Mapping) else ""
        stated = [value_at(document, path) for path in paths]
        alike = owner or str(mapping(document.get("metadata")).get("name"))
        key = msgspec.json.encode([alike, name, [spelled(path) for path in paths], stated if not owner else []])
        if key in self._pods:
            known = self._pods[key]
            self._pods[key] = msgspec.structs.replace(known, alike=known.alike + 1)
            return
        head = head_of({**document, "apiVersion": "v1", "kind": "Pod"}, system)
        self._pods[key] = msgspec.structs.replace(head, fields=self._of_pod(document, name, operator))

    def examined(self, document: Document) -> ObjectFinding | None:
        """A workload of somebody else's kind; None if it has nothing of these systems. A Deployment's ReplicaSets
        have its template."""
        if _is_deployments(document):
            return None
        templates = pod_templates(document)
        operator = operator_of(text(document.get("apiVersion")), text(document.get("kind")))
        own = [path for path in marked_paths(document) if operator is None or path[-1] not in operator.keys]
        system_of_own = _system(own, "")
        systems, fields = [system_of_own], [self._of_owner(document, path) for path in own]
        patch: dict[str, Any] | None = None
        for place in templates:
            template = value_at(document, place)
            stated = str(mapping(template.get("spec")).get("schedulerName") or DEFAULT_SCHEDULER)
            if operator is not None and stated == DEFAULT_SCHEDULER:
                # Its operator writes a name: what pods have says which.
                stated = self._fields.name
            system = _system(list(marked_paths(template)), stated) or system_of_own
            if system:
                told = self._of_template(document, place, stated, operator)
                patch = patch_of(document, place, self._fields.name, any(_names(each) for each in told))
                systems.append(system)
                fields += _fixed(told) if document.get("kind") == "Job" else told
        for path in scheduler_names(document):
            # Whatever else names one of these schedulers hands the name on to its pods.
            name = str(value_at(document, path))
            if not in_template(path, templates) and name in SCHEDULER_NAMES and name != self._fields.name:
                systems.append(SCHEDULER_NAMES[name])
                fields.append(self._fields.scheduler(path, name, operator))
        system = next((each for each in reversed(systems) if each), "")
        if operator is not None and not any(each.field.endswith(NAME_FIELDS) for each in fields):
            self.operator_jobs.add(document)
        if not system or not (templates or len(systems) > 1):
            return None
        if operator is not None and (maker := maker_of(document)):
            words = f"{maker.get('kind')} {maker.get('name')} makes it: what is said of that holds"
            fields = [FieldFinding("", MigrationVerdict.CHANGE, words)]
        if not is_grouped(document):
            kind = document.get("kind")
            words = f"nothing here reads a {kind}: its pods are placed one by one unless they name their gang"
            fields.append(FieldFinding("kind", MigrationVerdict.CHANGE, f"{words} (docs/workloads.md)"))
        fields += name_faults(document)
        return msgspec.structs.replace(head_of(document, system), fields=tuple(fields), patch=patch)

    def _of_owner(self, document: Document, path: Path) -> FieldFinding:
        """What stands on the object itself, where those who ask owners of pods look."""
        document = named(document)
        read = self._fields.readers.owner(document)
        if read is not None and self._fields.readers.honoured(document, read, path):
            return FieldFinding(spelled(path), MigrationVerdict.WORKS)
        _, place, key = path
        metadata = {"name": "-", "namespace": "-", str(place): {key: value_at(document, path)}}
        on_pod = self._of_pod({"metadata": metadata, "spec": {}}, self._fields.name)
        read_there = any((each.field, each.verdict) == (spelled(path), MigrationVerdict.WORKS) for each in on_pod)
        if read_there and said_of_key(str(key)) is None:
            words = "nothing reads it on the object itself: write it into the template of its pods"
            return FieldFinding(spelled(path), MigrationVerdict.CHANGE, words)
        return self._fields.unread(path)

    def in_templates(self, document: Document) -> list[FieldFinding]:
        """What is said within the templates of an object that a reader of ours knows and hands on."""
        found: list[FieldFinding] = []
        for place in pod_templates(document):
            stated = mapping(value_at(document, place).get("spec")).get("schedulerName")
            # Where it names nobody the object says who it is.
            name = stated if isinstance(stated, str) and stated else self._fields.name
            found += self._of_template(document, place, name)
        return found

    def _of_template(
        self, document: Document, place: Path, name: str, operator: Operator | None = None
    ) -> tuple[FieldFinding, ...]:
        template = value_at(document, place)
        metadata = mapping(document.get("metadata"))
        pod: dict[str, Any] = {
            "metadata": {
                **{key: metadata[key] for key in ("name", "namespace") if key in metadata},
                **mapping(template.get("metadata")),
            },
            "spec": mapping(template.get("spec")),
        }
        return tuple(
            msgspec.structs.replace(each, field=f"{spelled(place)}.{each.field}" if each.field else spelled(place))
            for each in self._of_pod(pod, name, operator)
        )

    def _of_pod(self, document: Document, name: str, operator: Operator | None = None) -> tuple[FieldFinding, ...]:
        """As it is once its scheduler is ours."""
        spec = {**mapping(document.get("spec")), "schedulerName": self._fields.name}
        document = {**document, "apiVersion": "v1", "kind": "Pod", "spec": spec}
        read = self._fields.readers.reader(document)
        assert read is not None
        told = list(read(document)[1])
        found = [self._fields.field(document, read, path, told) for path in marked_paths(document)]
        if name != self._fields.name:
            found.append(self._fields.scheduler(("spec", "schedulerName"), name, operator))
        found += [FieldFinding("", MigrationVerdict.CHANGE, message) for message in told if _is_final(message)]
        return tuple(found)


def _is_deployments(document: Document) -> bool:
    owners = mapping(document.get("metadata")).get("ownerReferences")
    owned = isinstance(owners, list) and any(
        isinstance(each, Mapping) and each.get("kind") == "Deployment" for each in owners
    )
    return owned and document.get("kind") == "ReplicaSet"


def _names(finding: FieldFinding) -> bool:
    return finding.field.endswith(".schedulerName")


def _fixed(fields: tuple[FieldFinding, ...]) -> list[FieldFinding]:
    return [
        msgspec.structs.replace(each, message=f"{each.message}; {_FIXED}")
        if each.verdict is MigrationVerdict.CHANGE
        else each
        for each in fields
    ]


def _system(paths: list[Path], name: str) -> str:
    """Whose words they are; the scheduler's name says most."""
    systems = [system_of(str(path[-1])) for path in paths] + [SCHEDULER_NAMES.get(name, "")]
    return next((each for each in reversed(systems) if each), "")


def _is_final(message: str) -> bool:
    """Whether a notice is about what is written and not about what else is (not) there."""
    return not any(words in message for words in ("not found", "does not exist", "is not there"))
