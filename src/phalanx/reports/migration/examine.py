"""Says of each object of another scheduler what works, what would change and what is not honoured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from phalanx.dialects.quotas.koordinator_quotas import is_koordinators
from phalanx.dialects.reader import Document
from phalanx.reports.capture.captured_kinds import ANNOTATIONS
from phalanx.reports.migration.conversions import CONVERSIONS, said_of_kai
from phalanx.reports.migration.findings import FieldFinding, ObjectFinding, Verdict
from phalanx.reports.migration.foreign import (
    DEFAULT_SCHEDULER,
    FOREIGN_KEYS,
    FOREIGN_KINDS,
    KAI,
    KOORDINATOR,
    RENAMED_KEYS,
    SCHEDULER_NAMES,
    SCHEDULER_PLUGINS,
    VOLCANO,
    said_of_field,
    said_of_key,
    said_of_policy,
    said_of_value,
    system_of,
)
from phalanx.reports.migration.policies import examine_configuration, examine_policy, usable_policy
from phalanx.reports.migration.readers import Path, Read, Readers, leaves, spelled
from phalanx.reports.migration.references import References, with_missing
from phalanx.reports.migration.refusals import field_at_fault, named, refusals
from phalanx.scheduling.policy.lint import policies_in

_NOBODY = "nothing here acts on it; leave it out, or keep the component that does"
_FIXED = "the template of a Job cannot be changed: write it into what makes the next one"
_PLACES = ("labels", "annotations")
# Where objects that our readers know name a scheduler.
_SCHEDULERS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Job": (("spec", "schedulerName"),),
    "CronJob": (("spec", "jobTemplate", "spec", "schedulerName"),),
    "JobTemplate": (("spec", "schedulerName"),),
    "Reservation": (("spec", "template", "spec", "schedulerName"),),
}


class Examiner:
    """Objects go in one by one; pods of one template are told once."""

    def __init__(self, scheduler_name: str = "phalanx", readers: Readers | None = None) -> None:
        self._name = scheduler_name
        self._readers = readers or Readers()
        self._pods: dict[bytes, ObjectFinding] = {}
        self._found: list[ObjectFinding] = []
        self._accounts = self._readers.accounts()
        self.references = References()
        # Policies without what no scheduler here would start with, by where they stand.
        self.policies: dict[str, str] = {}

    @property
    def found(self) -> list[ObjectFinding]:
        """All that is said so far; what a name lacks is said against all that was told."""
        found = list(self._found)
        for place, missing in self.references.missing():
            fields = with_missing(found[place].fields, missing)
            found[place] = msgspec.structs.replace(found[place], fields=fields)
        return [*found, *self._pods.values()]

    def add_all(self, documents: Iterable[object]) -> None:
        for document in documents:
            self.add(document)

    def add(self, document: object) -> None:
        """An object that nobody could make sense of is told as such, and harms no other."""
        if not isinstance(document, Mapping):
            return
        try:
            self._add(document)
        except (TypeError, ValueError, AttributeError, LookupError, RecursionError, msgspec.MsgspecError) as error:
            head = _empty(document, system_of(_group(document)))
            broken = FieldFinding("", Verdict.NOT_HONOURED, f"it cannot be read: {error}; correct it")
            self._found.append(msgspec.structs.replace(head, fields=(broken,)))

    def _add(self, document: Document) -> None:
        kind, group = str(document.get("kind") or ""), _group(document)
        if kind.endswith("List") and isinstance(document.get("items"), list):
            self.add_all(document["items"])
        elif (group, kind) == ("", "ConfigMap"):
            for key, text in policies_in(document).items():
                head = _empty(document, VOLCANO)
                self._found.append(examine_policy(head, f"data.{key}", text))
                if usable := usable_policy(text):
                    self.policies[f"{head.title} {key}"] = usable
        elif kind == "KubeSchedulerConfiguration":
            self._found.append(examine_configuration(_empty(document, SCHEDULER_PLUGINS), document))
        elif (group, kind) == ("", "Pod"):
            self._pod(document)
        elif (group, kind) == ("scheduling.k8s.io", "PriorityClass"):
            self.references.add_class(document)
        elif system := system_of(group):
            if system == SCHEDULER_PLUGINS and (is_koordinators(document) or _has_key_of(document, KOORDINATOR)):
                system = KOORDINATOR
            self._object(document, system)
        elif _template(document) is not None:
            self._template(document)

    def _object(self, document: Document, system: str) -> None:
        finding = _empty(document, system)
        read = self._readers.reader(document)
        if read is not None:
            document = named(document)
            events, examined = self._accounts(document), self._read(document, finding, read)
            self.references.add_accounts(len(self._found), document, events)
            self.references.add(len(self._found), document, read(document)[0])
            self._found.append(examined)
            return
        foreign = FOREIGN_KINDS.get((_group(document), str(document.get("kind"))))
        if foreign is None:
            unread = FieldFinding("spec", Verdict.NOT_HONOURED, "nothing here reads this kind")
            self._found.append(msgspec.structs.replace(finding, fields=(unread,)))
            return
        fields_found: dict[str, FieldFinding] = {}
        for path in leaves(document.get("spec") or {}, ("spec",)):
            of_value = said_of_kai(document, path) if system == KAI else None
            verdict, message = of_value or said_of_field(foreign, spelled(path))
            said = FieldFinding(spelled(path), verdict, message)
            if verdict is Verdict.WORKS and path[-1] == "schedulerName":
                # Whoever acts on it writes it into pods.
                said = self._scheduler(spelled(path), str(_at(document, path)))
            fields_found.setdefault(spelled(path), said)
        convert = CONVERSIONS.get((_group(document), finding.kind))
        made = (convert(document),) if convert is not None else ()
        fields = tuple(fields_found.values())
        self._found.append(msgspec.structs.replace(finding, fields=fields, manifests=made))

    def _read(self, document: Document, finding: ObjectFinding, read: Read) -> ObjectFinding:
        """An object that a reader of ours knows: what it acts on, and what it tells."""
        told = list(read(document)[1])
        fields = [self._field(document, read, path, told) for path in _paths(document)]
        for place in _SCHEDULERS.get(finding.kind, ()):
            spec: Document = document
            for step in place[:-1]:
                spec = _mapping(spec, step)
            name = spec.get(place[-1])
            if isinstance(name, str) and name and name != self._name:
                fields = [each for each in fields if each.field != spelled(place)]
                fields.append(self._scheduler(spelled(place), name))
        said = {each.message for each in fields}
        for refusal in refusals(document):
            if refusal not in said:
                told = [message for message in told if message != refusal]
                fields = _refused(document, fields, refusal)
        # What concerns no single field, or one that cannot be told from the words.
        fields += [FieldFinding("", Verdict.CHANGE, message) for message in told]
        return msgspec.structs.replace(finding, fields=tuple(fields))

    def _field(self, document: Document, read: Read, path: Path, told: list[str]) -> FieldFinding:
        field = spelled(path)
        marks = (field, str(path[-1])) if path[0] == "metadata" else (field,)
        known = said_of_value(str(path[-1]), _at(document, path))
        for message in told:
            if any(f"{mark} " in message or f"{mark}:" in message for mark in marks):
                told.remove(message)
                return FieldFinding(field, *(known or (Verdict.CHANGE, message)))
        if known is not None:
            return FieldFinding(field, *known)
        if self._readers.honoured(document, read, path):
            return FieldFinding(field, Verdict.WORKS, said_of_policy(field))
        if path[:2] == ("metadata", "annotations") and path[-1] in ANNOTATIONS:
            return FieldFinding(field, Verdict.WORKS, "read, and changes nothing on this object alone")
        said = said_of_key(str(path[-1])) if path[0] == "metadata" else None
        verdict, message = said or (Verdict.NOT_HONOURED, _NOBODY)
        return FieldFinding(field, verdict, message)

    def _scheduler(self, field: str, name: str) -> FieldFinding:
        advice = f"or run `phalanx scheduler --scheduler-name {name}` once the other one is stopped"
        if name == DEFAULT_SCHEDULER:
            advice = f"{name} is kube-scheduler's name"
        return FieldFinding(field, Verdict.CHANGE, f"write {self._name}; {advice}")

    def _pod(self, document: Document) -> None:
        spec = _mapping(document, "spec")
        paths = [path for path in _paths(document) if path[0] == "metadata"]
        name = str(spec.get("schedulerName") or DEFAULT_SCHEDULER)
        systems = [system_of(str(path[-1])) for path in paths] + [SCHEDULER_NAMES.get(name, "")]
        system = next((each for each in reversed(systems) if each), "")
        phase = _mapping(document, "status").get("phase")
        if not system or phase in ("Succeeded", "Failed"):
            return
        owners = _mapping(document, "metadata").get("ownerReferences") or [{}]
        owner = owners[0].get("uid", "") if isinstance(owners, list) and isinstance(owners[0], Mapping) else ""
        stated = [_at(document, path) for path in paths]
        alike = owner or str(_mapping(document, "metadata").get("name"))
        key = msgspec.json.encode([alike, name, [spelled(path) for path in paths], stated if not owner else []])
        if key in self._pods:
            known = self._pods[key]
            self._pods[key] = msgspec.structs.replace(known, alike=known.alike + 1)
            return
        # As it is once its scheduler is ours.
        document = {**document, "apiVersion": "v1", "kind": "Pod", "spec": {**spec, "schedulerName": self._name}}
        read = self._readers.reader(document)
        assert read is not None
        told = list(read(document)[1])
        fields = [self._field(document, read, path, told) for path in paths]
        if name != self._name:
            fields.append(self._scheduler("spec.schedulerName", name))
        fields += [FieldFinding("", Verdict.CHANGE, message) for message in told if _is_final(message)]
        self._pods[key] = msgspec.structs.replace(_empty(document, system), fields=tuple(fields))

    def _template(self, document: Document) -> None:
        """A workload that makes pods: as its pods, with a patch."""
        place = _template(document)
        assert place is not None
        template: Any = document
        for step in place:
            template = template[step]
        before = set(self._pods)
        self._pod(
            {
                "metadata": {**_mapping(document, "metadata"), **_mapping(template, "metadata")},
                "spec": _mapping(template, "spec"),
            }
        )
        for key in set(self._pods) - before:
            found = self._pods.pop(key)
            prefix = ".".join(place)
            fields = tuple(
                msgspec.structs.replace(each, field=f"{prefix}.{each.field}") if each.field else each
                for each in found.fields
            )
            patch = self._patch(document, template, place, fields)
            if patch is None and str(document.get("kind")) == "Job":
                fields = tuple(
                    msgspec.structs.replace(each, message=f"{each.message}; {_FIXED}")
                    if each.verdict is Verdict.CHANGE
                    else each
                    for each in fields
                )
            head = _empty(document, found.system)
            self._found.append(msgspec.structs.replace(head, fields=fields, patch=patch))

    def _patch(
        self, document: Document, template: Document, place: Iterable[str], fields: Iterable[FieldFinding]
    ) -> dict[str, Any] | None:
        """What to merge into a workload so that the pods that it makes from now on are ours."""
        if document.get("kind") == "Job":
            return None
        made: dict[str, Any] = {}
        if any(each.field.endswith(".schedulerName") for each in fields):
            made["spec"] = {"schedulerName": self._name}
        metadata = _mapping(template, "metadata")
        stated = {**_mapping(metadata, "labels"), **_mapping(metadata, "annotations")}
        renamed = {
            ours: stated[theirs] for theirs, ours in RENAMED_KEYS.items() if isinstance(stated.get(theirs), str)
        }
        if renamed:
            made["metadata"] = {"annotations": renamed}
        if not made:
            return None
        for step in reversed(tuple(place)):
            made = {step: made}
        return made


def _refused(document: Document, fields: list[FieldFinding], refusal: str) -> list[FieldFinding]:
    """Nothing comes of the object; the field for which it is refused says so."""
    paths = {spelled(path): path for path in _paths(document)}
    path = field_at_fault(document, paths.values(), refusal)
    found = FieldFinding(spelled(path) if path is not None else "", Verdict.NOT_HONOURED, refusal)
    at = next((at for at, each in enumerate(fields) if each.field == found.field), None)
    if at is None or fields[at].verdict is Verdict.NOT_HONOURED:
        return [*fields, found]
    return [*fields[:at], found, *fields[at + 1 :]]


def _is_final(message: str) -> bool:
    """Whether a notice is about what is written and not about what else is (not) there."""
    return "not found" not in message and "does not exist" not in message


def _paths(document: Document) -> Iterator[Path]:
    """The fields that somebody has written for a scheduler."""
    spec = document.get("spec") or {}
    written = leaves(spec, ("spec",)) if isinstance(spec, Mapping) else iter([("spec",)])
    yield from dict.fromkeys(_upto_template(path) for path in written)
    metadata = _mapping(document, "metadata")
    for place in _PLACES:
        for key in _mapping(metadata, place):
            if system_of(str(key)) or key in FOREIGN_KEYS:
                yield ("metadata", place, str(key))


def _upto_template(path: Path) -> Path:
    """Templates are handed on as they are."""
    return path[: path.index("template") + 1] if "template" in path else path


def _template(document: Document) -> tuple[str, ...] | None:
    """Where the template of its pods stands."""
    spec = _mapping(document, "spec")
    if isinstance(_mapping(spec, "template").get("spec"), Mapping):
        return ("spec", "template")
    nested = _mapping(_mapping(spec, "jobTemplate"), "spec")
    if isinstance(_mapping(nested, "template").get("spec"), Mapping):
        return ("spec", "jobTemplate", "spec", "template")
    return None


def _has_key_of(document: Document, system: str) -> bool:
    metadata = _mapping(document, "metadata")
    return any(system_of(str(key)) == system for place in _PLACES for key in _mapping(metadata, place))


def _empty(document: Document, system: str) -> ObjectFinding:
    metadata = _mapping(document, "metadata")
    return ObjectFinding(
        system,
        str(document.get("apiVersion") or ""),
        str(document.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )


def _group(document: Document) -> str:
    return str(document.get("apiVersion") or "").rpartition("/")[0]


def _mapping(document: Document, key: str) -> Document:
    value = document.get(key)
    return value if isinstance(value, Mapping) else {}


def _at(document: Document, path: Path) -> object:
    value: Any = document
    for step in path:
        value = value[step]
    return value
