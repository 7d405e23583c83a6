"""Migration findings per object of another scheduler: fields that work, that need a change, and that are not
honoured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeGuard

import msgspec

from phalanx.admission.fields import mapping
from phalanx.dialects.quotas.koordinator_quotas import is_koordinators
from phalanx.dialects.reader import Document, show
from phalanx.kube.own_objects import LABELS
from phalanx.reports.migration.conversions import CONVERSIONS, renamed_queue, said_of_kai
from phalanx.reports.migration.fields import FieldExaminer, marked_paths, name_faults, written_paths
from phalanx.reports.migration.findings import FieldFinding, MigrationVerdict, ObjectFinding, head_of
from phalanx.reports.migration.foreign import (
    FOREIGN_KINDS,
    KAI,
    KOORDINATOR,
    SCHEDULER_PLUGINS,
    VOLCANO,
    ForeignKind,
    is_toleration,
    said_of_field,
    system_of,
)
from phalanx.reports.migration.policies import examine_configuration, examine_policy, usable_policy
from phalanx.reports.migration.readers import Path, Read, Readers, leaves, spelled
from phalanx.reports.migration.references import References, with_missing
from phalanx.reports.migration.refusals import field_at_fault, named, refusals
from phalanx.reports.migration.replacements import refused_queues
from phalanx.reports.migration.templates import scheduler_names, value_at
from phalanx.reports.migration.workloads import WorkloadExaminer
from phalanx.scheduling.policy.lint import policies_in

NO_OBJECT = "no object with apiVersion and kind"
# ConfigMap name in Volcano's chart, after the name of the release.
_POLICY_NAME = "-scheduler-configmap"
# Its pod template describes reserved resources, so its own labels and annotations count.
_ROOM = "Reservation"


def is_object(document: object) -> TypeGuard[Document]:
    return isinstance(document, Mapping) and all(
        isinstance(document.get(key), str) and document[key] for key in ("apiVersion", "kind")
    )


class Examiner:
    """Examiner of another scheduler's objects, added one by one. Pods with the same template are reported once."""

    def __init__(self, scheduler_name: str = "phalanx", readers: Readers | None = None) -> None:
        self._readers = readers or Readers()
        self._fields = FieldExaminer(scheduler_name, self._readers)
        self._workloads = WorkloadExaminer(self._fields)
        self._found: list[ObjectFinding] = []
        self._accounts = self._readers.accounts()
        self.references = References()
        # Usable policies by their place, without parts that the scheduler rejects.
        self.policies: dict[str, str] = {}

    @property
    def found(self) -> list[ObjectFinding]:
        """Migration findings so far. References are checked against all objects so far."""
        findings = list(self._found)
        for place, missing in self.references.missing():
            fields = with_missing(findings[place].fields, missing)
            findings[place] = msgspec.structs.replace(findings[place], fields=fields)
        for place, refusal in refused_queues(findings):
            findings[place] = msgspec.structs.replace(findings[place], fields=(*findings[place].fields, refusal))
        return [*findings, *self._workloads.jobs_of_operators, *self._workloads.pods]

    def add_all(self, documents: Iterable[object]) -> None:
        for document in documents:
            self.add(document)

    def add(self, document: object) -> None:
        """Examine one more object. An undecodable object becomes a finding; the other objects are still
        examined."""
        if not isinstance(document, Mapping):
            return
        try:
            self._add(document)
        except (TypeError, ValueError, AttributeError, LookupError, RecursionError, msgspec.MsgspecError) as error:
            self._not_read(document, "", f"decoding failed: {error}; correct it")

    def _add(self, document: Document) -> None:
        kind, group = str(document.get("kind") or ""), _group(document)
        if kind.endswith("List") and isinstance(document.get("items"), list):
            self._list(document, kind.removesuffix("List"))
        elif (group, kind) == ("", "ConfigMap"):
            self._config_map(document)
        elif kind == "KubeSchedulerConfiguration":
            self._found.append(examine_configuration(head_of(document, SCHEDULER_PLUGINS), document))
        elif (group, kind) == ("", "Pod"):
            self._workloads.add_pod(document)
        elif (group, kind) == ("scheduling.k8s.io", "PriorityClass"):
            self.references.add_class(document)
            self._priority_class(document)
        elif system := system_of(group):
            if system == SCHEDULER_PLUGINS and (is_koordinators(document) or _has_key_of_koordinator(document)):
                system = KOORDINATOR
            self._object(document, system)
        elif (workload := self._workloads.examined(document)) is not None:
            self._found.append(workload)

    def _priority_class(self, document: Document) -> None:
        """Report the annotations of scheduler-plugins' PreemptionToleration; Phalanx reads the value only."""
        keys = [key for key in mapping(mapping(document.get("metadata")).get("annotations")) if is_toleration(key)]
        fields = tuple(self._fields.unread(("metadata", "annotations", key)) for key in keys)
        if fields:
            self._found.append(msgspec.structs.replace(head_of(document, SCHEDULER_PLUGINS), fields=fields))

    def _list(self, document: Document, kind: str) -> None:
        """Examine the items of a List object. The API server omits the kind of each item."""
        head = {"apiVersion": document.get("apiVersion"), "kind": kind} if kind else {}
        for at, item in enumerate(document["items"]):
            if is_object(stated := {**head, **item} if isinstance(item, Mapping) else item):
                self.add(stated)
            else:
                self._not_read(document, f"items[{at}]", f"{show(item)} is {NO_OBJECT}")

    def _config_map(self, document: Document) -> None:
        labels = mapping(mapping(document.get("metadata")).get("labels"))
        if LABELS.items() <= labels.items():
            return  # own object of the scheduler, such as its published policy
        head = head_of(document, VOLCANO)
        policies = policies_in(document)
        for key, text in policies.items():
            self._found.append(examine_policy(head, f"data.{key}", text))
            if usable := usable_policy(text):
                self.policies[f"{head.title} {key}"] = usable
        if not policies and head.name.endswith(_POLICY_NAME):
            advice = "write the policy as a text, such as volcano-scheduler.conf: |"
            self._not_read(document, "data", f"{show(document.get('data'))} contains no policy; {advice}", VOLCANO)

    def _not_read(self, document: Document, field: str, message: str, system: str = "") -> None:
        head = head_of(document, system or system_of(_group(document)))
        field_finding = FieldFinding(field, MigrationVerdict.NOT_HONOURED, message)
        self._found.append(msgspec.structs.replace(head, fields=(field_finding,)))

    def _object(self, document: Document, system: str) -> None:
        finding = head_of(document, system)
        faults = name_faults(document)
        if finding.kind == "PodGroup" and system == VOLCANO:
            self._workloads.operator_jobs.made(document, "volcano")
        read = self._readers.reader(document)
        if read is not None:
            document = named(document)
            events, examined = self._accounts(document), self._read(document, finding, read)
            self.references.add_accounts(len(self._found), document, events)
            self.references.add(len(self._found), document, read(document)[0])
            fields = (*examined.fields, *faults)
            self._found.append(msgspec.structs.replace(examined, fields=fields))
            return
        foreign = FOREIGN_KINDS.get((_group(document), str(document.get("kind"))))
        if foreign is None:
            unread = FieldFinding("spec", MigrationVerdict.NOT_HONOURED, "Phalanx does not read this kind")
            self._found.append(msgspec.structs.replace(finding, fields=(unread, *faults)))
            return
        fields_found: dict[str, FieldFinding] = {}
        for path in leaves(document.get("spec") or {}, ("spec",)):
            fields_found.setdefault(spelled(path), self._foreign(document, foreign, path, system))
        convert = CONVERSIONS.get((_group(document), finding.kind))
        made = (convert(document),) if convert is not None else ()
        fields = (*fields_found.values(), *renamed_queue(document, made), *faults)
        self._found.append(msgspec.structs.replace(finding, fields=fields, manifests=made))

    def _foreign(self, document: Document, kind: ForeignKind, path: Path, system: str) -> FieldFinding:
        of_value = said_of_kai(document, path) if system == KAI else None
        verdict, message = of_value or said_of_field(kind, spelled(path))
        finding_of_field = FieldFinding(spelled(path), verdict, message)
        name = value_at(document, path)
        if verdict is not MigrationVerdict.WORKS or path[-1] != "schedulerName" or name == self._fields.name:
            return finding_of_field
        if kind.copies_owner:
            owner = f"its owner{_owner_of(document)}"
            return FieldFinding(
                finding_of_field.field,
                MigrationVerdict.CHANGE,
                f"copied from {owner}: write {self._fields.name} there",
            )
        # The component that acts on this field writes the name into pods.
        return self._fields.scheduler(path, str(name))

    def _read(self, document: Document, finding: ObjectFinding, read: Read) -> ObjectFinding:
        """Return the findings about an object of a kind that Phalanx reads: honoured fields and the decoder's
        messages."""
        messages = list(read(document)[1])
        fields = [self._fields.field(document, read, path, messages) for path in written_paths(document)]
        within = self._workloads.in_templates(document) if finding.kind != _ROOM else []
        for path in scheduler_names(document):
            name = str(value_at(document, path))
            if name != self._fields.name and not any(field.field == spelled(path) for field in within):
                fields = [field for field in fields if field.field != spelled(path)]
                fields.append(self._fields.scheduler(path, name))
        fields += within
        known_messages = {field.message for field in fields}
        for refusal in refusals(document):
            if refusal not in known_messages:
                messages = [message for message in messages if message != refusal]
                fields = _refused(document, fields, refusal)
        # Messages about no single field, or about an unidentified field.
        fields += [FieldFinding("", MigrationVerdict.CHANGE, message) for message in messages]
        return msgspec.structs.replace(finding, fields=tuple(fields))


def _refused(document: Document, fields: list[FieldFinding], refusal: str) -> list[FieldFinding]:
    """Return the findings about an object's fields, with the webhook's refusal at the field that causes it."""
    paths = {spelled(path): path for path in written_paths(document)}
    path = field_at_fault(document, paths.values(), refusal)
    finding = FieldFinding(spelled(path) if path is not None else "", MigrationVerdict.NOT_HONOURED, refusal)
    at = next((at for at, field in enumerate(fields) if field.field == finding.field), None)
    if at is None or fields[at].verdict is MigrationVerdict.NOT_HONOURED:
        return [*fields, finding]
    return [*fields[:at], finding, *fields[at + 1 :]]


def _has_key_of_koordinator(document: Document) -> bool:
    return any(system_of(str(path[-1])) == KOORDINATOR for path in marked_paths(document))


def _owner_of(document: Document) -> str:
    owners = mapping(document.get("metadata")).get("ownerReferences")
    owner = owners[0] if isinstance(owners, list) and owners and isinstance(owners[0], Mapping) else {}
    return f", {owner.get('kind')} {owner.get('name')}" if owner else ""


def _group(document: Document) -> str:
    return str(document.get("apiVersion") or "").rpartition("/")[0]
