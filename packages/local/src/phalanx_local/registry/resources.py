"""Resource types, their versions, and the registry of served types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from phalanx_local.errors import FieldCause
from phalanx_local.objects import Json

if TYPE_CHECKING:
    from phalanx_local.schema import StructuralSchema
    from phalanx_local.strategies.base import RestStrategy

_VERSION = re.compile(r"^v(\d+)(?:(alpha|beta)(\d+))?$")
VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a kind in `kubectl get`; priority 0 is always shown, above 0 with `-o wide`."""

    name: str
    type: str = "string"
    description: str = ""
    priority: int = 0
    format: str = ""
    json_path: str = ""

    def definition(self) -> Json:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Replica fields of a kind for the scale subresource, as dotted paths without a leading dot."""

    replicas: str = "spec.replicas"
    status_replicas: str = "status.replicas"
    selector: str = "status.selector"


@dataclass(eq=False, slots=True)
class Version:
    """One served version of a resource type: the client's view of the stored objects.

    `to_view` and `from_view` convert from and to the stored form; they return new objects and do not change their
    argument. None: the versions differ only in `apiVersion`, which is never stored.
    """

    name: str
    type: ResourceType
    subresources: frozenset[str] = frozenset()
    scale: ScalePaths | None = None
    schema: StructuralSchema | None = None
    openapi: Json | None = None
    columns: tuple[Column, ...] | None = None
    to_view: Callable[[Json], Json] | None = None
    from_view: Callable[[Json], Json] | None = None
    check_new: Callable[[Json], list[FieldCause]] | None = None
    field_aliases: dict[str, str] | None = None
    warning: str = ""
    lists: Any = None
    api_version: str = field(init=False)
    head: bytes = field(init=False)
    item_head: bytes = field(init=False)
    list_head: bytes = field(init=False)

    def __post_init__(self) -> None:
        group = self.type.group
        self.api_version = f"{group}/{self.name}" if group else self.name
        self.head = f'{{"kind":"{self.type.kind}","apiVersion":"{self.api_version}",'.encode()
        # A list of a built-in kind has kind and apiVersion once, on the list; of custom resources on each item.
        self.item_head = self.head if self.type.custom else b"{"
        list_kind = self.type.list_kind
        self.list_head = f'{{"kind":"{list_kind}","apiVersion":"{self.api_version}","metadata":'.encode()


@dataclass(eq=False, slots=True)
class ResourceType:
    """Resource of one API group, with its versions. Two types can share a `storage` (two groups serve events).

    `stored_schema` is the schema of a custom resource's stored version, which can be unserved.
    """

    group: str
    plural: str
    kind: str
    namespaced: bool
    strategy: RestStrategy
    singular: str = ""
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    verbs: tuple[str, ...] = VERBS
    custom: bool = False
    storage: str = ""
    versions: dict[str, Version] = field(default_factory=dict)
    stored_version: str = ""
    stored_schema: StructuralSchema | None = None

    def __post_init__(self) -> None:
        self.singular = self.singular or self.kind.lower()
        self.list_kind = self.list_kind or self.kind + "List"
        self.storage = self.storage or f"{self.group}/{self.plural}"

    @property
    def preferred(self) -> Version:
        return next(iter(self.versions.values()))


class Registry:
    """Served resource types by group and plural; custom resources are added and removed at run time."""

    def __init__(self, types: Iterable[ResourceType] = ()) -> None:
        self._types: dict[tuple[str, str], ResourceType] = {}
        self._kinds: dict[tuple[str, str], ResourceType] = {}
        self.generation = 0
        self._by_storage: tuple[int, dict[str, ResourceType]] = (-1, {})
        for type_ in types:
            self.add(type_)

    def add(self, type_: ResourceType) -> None:
        self._types[(type_.group, type_.plural)] = type_
        self._kinds[(type_.group, type_.kind)] = type_
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        type_ = self._types.pop((group, plural), None)
        if type_ is not None:
            self._kinds.pop((group, type_.kind), None)
            self.generation += 1

    def find(self, group: str, plural: str) -> ResourceType | None:
        return self._types.get((group, plural))

    def find_kind(self, group: str, kind: str) -> ResourceType | None:
        return self._kinds.get((group, kind))

    def version(self, group: str, version: str, plural: str) -> Version | None:
        type_ = self._types.get((group, plural))
        return type_.versions.get(version) if type_ is not None else None

    def __iter__(self) -> Iterator[ResourceType]:
        return iter(list(self._types.values()))

    def by_storage(self) -> Mapping[str, ResourceType]:
        """Return the resource type of each storage; if a storage has several types, the first one."""
        generation, types = self._by_storage
        if generation != self.generation:
            types = {}
            for type_ in self:
                types.setdefault(type_.storage, type_)
            self._by_storage = (self.generation, types)
        return types

    def groups(self) -> dict[str, list[str]]:
        """Return the group names with their served versions, preferred first, in the order of registration."""
        groups: dict[str, list[str]] = {}
        for type_ in self:
            versions = groups.setdefault(type_.group, [])
            versions.extend(name for name in type_.versions if name not in versions)
        for versions in groups.values():
            versions.sort(key=version_priority)
        return groups

    def served(self, group: str, version: str) -> list[Version]:
        """Return every resource that the server serves in one group version, by plural name."""
        versions = [type_.versions[version] for type_ in self if type_.group == group and version in type_.versions]
        return sorted(versions, key=lambda served: served.type.plural)


def version_priority(name: str) -> tuple[int, int, int, str]:
    """Return the sort key of API versions: v10, v2, v1, v1beta2, v1alpha1, then other names."""
    match = _VERSION.match(name)
    if match is None:
        return (3, 0, 0, name)
    major, stage, minor = match.groups()
    rank = {None: 0, "beta": 1, "alpha": 2}[stage]
    return (rank, -int(major), -int(minor or 0), "")
