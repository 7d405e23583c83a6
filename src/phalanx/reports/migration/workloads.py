"""Migration findings about pods and workloads: each template is examined as the pods that it creates."""

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

_FIXED = "the template of a Job is immutable: write it into the source of the next Job"


class WorkloadExaminer:
    """Examiner of workloads for migration. Pods of one owner are reported once."""

    def __init__(self, fields: FieldExaminer) -> None:
        self._fields = fields
        self._pods: dict[bytes, ObjectFinding] = {}
        self.operator_jobs = OperatorJobs()

    @property
    def pods(self) -> list[ObjectFinding]:
        return list(self._pods.values())

    @property
    def jobs_of_operators(self) -> list[ObjectFinding]:
        """Findings about operator jobs without a scheduler name, if their pods name another scheduler."""
        findings = []
        for document, operator, name in self.operator_jobs.named():
            places = [spelled((*place, "spec", "schedulerName")) for place in pod_templates(document)]
            advice = operator.advice_for(name, self._fields.name)
            fields = tuple(FieldFinding(place, MigrationVerdict.CHANGE, advice) for place in places[:1])
            head = head_of(document, SCHEDULER_NAMES.get(name, ""))
            findings.append(msgspec.structs.replace(head, fields=fields))
        return findings

    def add_pod(self, document: Document) -> None:
        """Examine a pod. Finished pods and pods without settings of other schedulers are skipped."""
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
        """Return the migration findings about a workload of another scheduler; None without settings of such a
        scheduler.

        ReplicaSets of a Deployment are skipped: they have its template.
        """
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
                # The operator writes the name; only the pods show which one.
                stated = self._fields.name
            system = _system(list(marked_paths(template)), stated) or system_of_own
            if system:
                template_fields = self._of_template(document, place, stated, operator)
                patch = patch_of(
                    document, place, self._fields.name, any(_names(candidate) for candidate in template_fields)
                )
                systems.append(system)
                fields += _fixed(template_fields) if document.get("kind") == "Job" else template_fields
        for path in scheduler_names(document):
            # Any other field with one of these names passes it on to the pods.
            name = str(value_at(document, path))
            if not in_template(path, templates) and name in SCHEDULER_NAMES and name != self._fields.name:
                systems.append(SCHEDULER_NAMES[name])
                fields.append(self._fields.scheduler(path, name, operator))
        system = next((candidate for candidate in reversed(systems) if candidate), "")
        if operator is not None and not any(candidate.field.endswith(NAME_FIELDS) for candidate in fields):
            self.operator_jobs.add(document)
        if not system or not (templates or len(systems) > 1):
            return None
        if operator is not None and (maker := maker_of(document)):
            words = f"{maker.get('kind')} {maker.get('name')} creates it: see the finding about that object"
            fields = [FieldFinding("", MigrationVerdict.CHANGE, words)]
        if not is_grouped(document):
            kind = document.get("kind")
            words = f"Phalanx does not read a {kind}: its pods are placed one by one unless they name their gang"
            fields.append(FieldFinding("kind", MigrationVerdict.CHANGE, f"{words} (docs/workloads.md)"))
        fields += name_faults(document)
        return msgspec.structs.replace(head_of(document, system), fields=tuple(fields), patch=patch)

    def _of_owner(self, document: Document, path: Path) -> FieldFinding:
        """Return the migration finding about a label or annotation of the workload itself."""
        document = named(document)
        read = self._fields.readers.owner(document)
        if read is not None and self._fields.readers.honoured(document, read, path):
            return FieldFinding(spelled(path), MigrationVerdict.WORKS)
        _, place, key = path
        metadata = {"name": "-", "namespace": "-", str(place): {key: value_at(document, path)}}
        on_pod = self._of_pod({"metadata": metadata, "spec": {}}, self._fields.name)
        read_there = any(
            (finding.field, finding.verdict) == (spelled(path), MigrationVerdict.WORKS) for finding in on_pod
        )
        if read_there and said_of_key(str(key)) is None:
            words = "it has no effect on the object itself: write it into its pod template"
            return FieldFinding(spelled(path), MigrationVerdict.CHANGE, words)
        return self._fields.unread(path)

    def in_templates(self, document: Document) -> list[FieldFinding]:
        """Return the migration findings about pod templates in an object that Phalanx reads."""
        findings: list[FieldFinding] = []
        for place in pod_templates(document):
            stated = mapping(value_at(document, place).get("spec")).get("schedulerName")
            # If the template names no scheduler, the object's own field decides.
            name = stated if isinstance(stated, str) and stated else self._fields.name
            findings += self._of_template(document, place, name)
        return findings

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
            msgspec.structs.replace(
                finding, field=f"{spelled(place)}.{finding.field}" if finding.field else spelled(place)
            )
            for finding in self._of_pod(pod, name, operator)
        )

    def _of_pod(self, document: Document, name: str, operator: Operator | None = None) -> tuple[FieldFinding, ...]:
        """Return the migration findings about a pod as if Phalanx were its scheduler."""
        spec = {**mapping(document.get("spec")), "schedulerName": self._fields.name}
        document = {**document, "apiVersion": "v1", "kind": "Pod", "spec": spec}
        read = self._fields.readers.reader(document)
        assert read is not None
        messages = list(read(document)[1])
        findings = [self._fields.field(document, read, path, messages) for path in marked_paths(document)]
        if name != self._fields.name:
            findings.append(self._fields.scheduler(("spec", "schedulerName"), name, operator))
        findings += [
            FieldFinding("", MigrationVerdict.CHANGE, message) for message in messages if _is_final(message)
        ]
        return tuple(findings)


def _is_deployments(document: Document) -> bool:
    owners = mapping(document.get("metadata")).get("ownerReferences")
    owned = isinstance(owners, list) and any(
        isinstance(owner, Mapping) and owner.get("kind") == "Deployment" for owner in owners
    )
    return owned and document.get("kind") == "ReplicaSet"


def _names(finding: FieldFinding) -> bool:
    return finding.field.endswith(".schedulerName")


def _fixed(fields: tuple[FieldFinding, ...]) -> list[FieldFinding]:
    return [
        msgspec.structs.replace(finding, message=f"{finding.message}; {_FIXED}")
        if finding.verdict is MigrationVerdict.CHANGE
        else finding
        for finding in fields
    ]


def _system(paths: list[Path], name: str) -> str:
    """Return the scheduler system to which labels and annotations belong; the scheduler's name takes precedence."""
    systems = [system_of(str(path[-1])) for path in paths] + [SCHEDULER_NAMES.get(name, "")]
    return next((candidate for candidate in reversed(systems) if candidate), "")


def _is_final(message: str) -> bool:
    """Return whether a message depends on the pod alone and not on other objects."""
    return not any(words in message for words in ("not found", "does not exist", "is not there"))
