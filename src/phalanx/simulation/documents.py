"""Objects of files, applied through the same intake as those of a live cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import yaml

from phalanx.dialects.core import (
    decode_namespace,
    decode_node,
    decode_pod,
    decode_priority_class,
    decode_resource_quota,
)
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind, WantedKind
from phalanx.model.events import ClusterEvent
from phalanx.model.text.decoding import decode_json
from phalanx.model.text.yaml_text import decode_yaml_all
from phalanx.simulation.errors import InputError

Document = Mapping[str, Any]

OWN_GROUP = "simulation.phalanx.dev"
OWN_VERSION = f"{OWN_GROUP}/v1alpha1"


class FileObject(msgspec.Struct, frozen=True):
    """One object of a file; `place` identifies it in messages: `cluster.yaml: document 2 (Node n1)`."""

    place: str
    document: Document

    @property
    def api_version(self) -> str:
        return str(self.document.get("apiVersion") or "")

    @property
    def kind(self) -> str:
        return str(self.document.get("kind") or "")

    @property
    def own(self) -> bool:
        """Whether the kind is the simulator's own."""
        return self.api_version.partition("/")[0] == OWN_GROUP

    @property
    def identified(self) -> Document:
        """The document with a uid: objects in files have none, so the namespace and name replace it."""
        metadata = self.document["metadata"]
        if metadata.get("uid"):
            return self.document
        uid = "/".join(filter(None, (str(metadata.get("namespace") or ""), metadata["name"])))
        return {**self.document, "metadata": {**metadata, "uid": uid}}


def read_documents(text: str, name: str) -> list[FileObject]:
    """Return the objects of a YAML or JSON file, with Lists expanded. Raises InputError."""
    entries: list[FileObject] = []
    try:
        for number, document in enumerate(_documents(text), 1):
            if document is not None:
                entries += _entries(document, f"{name}: document {number}")
    except yaml.YAMLError as error:
        raise InputError(f"{name}: not YAML: {error}") from error
    return entries


def _documents(text: str) -> Iterator[object]:
    """Yield the documents of a text. JSON is tried first, as large captures exceed the limits of YAML."""
    if text.lstrip()[:1] == "{":
        try:
            yield decode_json(text)
            return
        except msgspec.DecodeError:
            pass
    yield from decode_yaml_all(text)


def _entries(document: object, place: str) -> Iterator[FileObject]:
    if not isinstance(document, Mapping) or not document.get("kind"):
        raise InputError(f"{place}: expected an object with apiVersion and kind")
    items = document.get("items")
    if str(document["kind"]).endswith("List") and isinstance(items, list):
        for number, item in enumerate(items):
            yield from _entries(item, f"{place}: items[{number}]")
        return
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(name, str) or not name:
        raise InputError(f"{place} ({document['kind']}): metadata.name is missing; give the object a name")
    yield FileObject(f"{place} ({document['kind']} {name})", document)


def read_entry(document: object, place: str) -> FileObject:
    """Return one object. Raises InputError."""
    entries = list(_entries(document, place))
    if len(entries) != 1:
        raise InputError(f"{place}: write one object")
    return entries[0]


def take_in(intake: Intake, entry: FileObject) -> list[ClusterEvent]:
    """Return the events of an object. Raises InputError for a kind that the scheduler does not read, and for an
    invalid object."""
    document = entry.identified
    core: dict[tuple[str, str], tuple[Callable[[bytes], Any], Callable[[Any], list[ClusterEvent]]]] = {
        ("v1", "Node"): (decode_node, intake.node),
        ("v1", "Pod"): (decode_pod, intake.pod),
        ("v1", "Namespace"): (decode_namespace, intake.namespace),
        ("v1", "ResourceQuota"): (decode_resource_quota, intake.resource_quota),
        ("scheduling.k8s.io/v1", "PriorityClass"): (decode_priority_class, intake.priority_class),
    }
    core_kind = core.get((entry.api_version, entry.kind))
    if core_kind is not None:
        decode, apply = core_kind
        try:
            return apply(decode(msgspec.json.encode(document)))
        except msgspec.DecodeError as error:
            raise InputError(f"{entry.place}: {error}") from error
    if (entry.api_version, entry.kind) == ("policy/v1", "PodDisruptionBudget"):
        return intake.disruption_budget(document)
    return _custom(intake, entry, document)


def take_away(intake: Intake, entry: FileObject) -> list[ClusterEvent]:
    """Return the events of an object's deletion. Raises InputError for a kind that cannot be deleted here."""
    metadata = entry.document["metadata"]
    namespace, name = str(metadata.get("namespace") or ""), str(metadata["name"])
    match entry.api_version, entry.kind:
        case "v1", "Node":
            return intake.node_removed(name)
        case "v1", "Namespace":
            return intake.namespace_removed(name)
        case "v1", "ResourceQuota":
            return intake.resource_quota_removed(namespace, name)
        case "scheduling.k8s.io/v1", "PriorityClass":
            return intake.priority_class_removed(name)
        case "policy/v1", "PodDisruptionBudget":
            return intake.disruption_budget_removed(namespace, name)
    served = kind_of(entry, [kind.kind for kind in intake.dialects.accounts.values()])
    if served is not None:
        return intake.account_removed(served, namespace, name)
    served = kind_of(entry, list(intake.enrichers.kinds))
    if served is not None:
        return intake.apply(intake.enrichers.removed(served, namespace, name))
    raise InputError(f"{entry.place}: {entry.kind} cannot be deleted in a simulation")


def _custom(intake: Intake, entry: FileObject, document: Document) -> list[ClusterEvent]:
    served = kind_of(entry, [reader.kind for reader in intake.dialects.accounts.values()])
    if served is not None:
        return intake.account(served, document)
    served = kind_of(entry, [reader.kind for reader in intake.dialects.groups.values()])
    if served is not None:
        return intake.group(served, document)
    served = kind_of(entry, list(intake.enrichers.kinds))
    if served is not None:
        return intake.apply(intake.enrichers.updated(served, document))
    raise InputError(f"{entry.place}: the scheduler does not read {entry.api_version} {entry.kind}; remove it")


def kind_of(entry: FileObject, kinds: list[WantedKind]) -> ServedKind | None:
    """Return the kind that an object has, None for none of them. Raises InputError for an unknown version."""
    group, _, version = entry.api_version.rpartition("/")
    for kind in kinds:
        if (kind.group, kind.kind) == (group, entry.kind):
            if version not in kind.versions:
                known = ", ".join(f"{group}/{known_version}" for known_version in kind.versions)
                raise InputError(f"{entry.place}: apiVersion is {entry.api_version}; write one of {known}")
            return kind.served_as(version)
    return None
