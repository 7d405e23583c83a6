"""Custom resources: a stored CustomResourceDefinition immediately becomes a served resource type."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx_local.objects import Json, dig, mapping, sequence, text
from phalanx_local.registry.resources import Column, Registry, ResourceType, ScalePaths, Version, version_priority
from phalanx_local.storage.records import Change, body_of
from phalanx_local.storage.store import Collection, Store
from phalanx_local.strategies.base import RestStrategy

DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"


class CustomStrategy(RestStrategy):
    """Strategy of custom resources: generations, and the selectable fields of the CustomResourceDefinition."""

    counts_generation = True
    unconditional_update = False

    def __init__(self, selectable: tuple[str, ...]) -> None:
        self._selectable = selectable
        self.field_labels = frozenset(selectable)  # type: ignore[misc]

    def fields(self, obj: Json) -> dict[str, str]:
        return {path: _field_text(dig(obj, *path.split("."))) for path in self._selectable}


def _field_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (str, int)) else ""


class Definitions:
    """Updater of the registry from the stored CustomResourceDefinitions."""

    def __init__(self, store: Store, registry: Registry, on_change: Callable[[str], None]) -> None:
        self._store = store
        self._registry = registry
        self._on_change = on_change
        store.listen(self._changed)

    def load(self) -> None:
        """Serve the custom resources of all stored CustomResourceDefinitions after a restart."""
        collection = self._store.collections.get(DEFINITIONS)
        if collection is not None:
            for record in list(collection.records.values()):
                self._serve(record.load())

    def _changed(self, collection: Collection, change: Change) -> None:
        if collection.storage != DEFINITIONS:
            return
        old = change.old.load() if change.old is not None else None
        if change.new is None:
            assert old is not None
            spec = mapping(old.get("spec"))
            group, plural = text(spec.get("group")), text(dig(spec, "names", "plural"))
            self._registry.remove(group, plural)
            self._on_change(f"{group}/{plural}")
            return
        new = change.new.load()
        if old is None or old.get("spec") != new.get("spec"):
            self._serve(new)

    def _serve(self, definition: Json) -> None:
        type_ = build_type(definition)
        if type_ is None:
            return
        known = self._registry.find(type_.group, type_.plural)
        self._registry.add(type_)
        collection = self._store.open(type_.storage, type_.strategy.fields)
        if known is not None:
            self.refresh(type_, collection)
            # Open watches use the old definition; like upstream they end, and clients reconnect.
            self._on_change(type_.storage)

    def refresh(self, type_: ResourceType, collection: Collection) -> None:
        """Set defaults that the CRD got after its objects were created, which kube-apiserver sets at every read.

        The objects have no new revision, because no client wrote them.
        """
        schema = type_.stored_schema
        if schema is None or not schema.root.defaulting:
            return
        for record in list(collection.records.values()):
            obj = record.load()
            schema.default(obj)
            body = body_of(obj)
            if body != record.body:
                collection.records[record.key] = msgspec.structs.replace(record, body=body)


def build_type(definition: Json) -> ResourceType | None:
    """Return the resource type of a CustomResourceDefinition; None if its names are not accepted."""
    from phalanx_local.schema import StructuralSchema

    spec, status = mapping(definition.get("spec")), mapping(definition.get("status"))
    established = any(
        mapping(item).get("type") == "Established" and mapping(item).get("status") == "True"
        for item in sequence(status.get("conditions"))
    )
    if not established:
        return None
    names = mapping(spec.get("names"))
    versions = [mapping(item) for item in sequence(spec.get("versions"))]
    stored = next(item for item in versions if item.get("storage"))
    selectable = tuple(
        text(mapping(item).get("jsonPath")).lstrip(".") for item in sequence(stored.get("selectableFields"))
    )
    type_ = ResourceType(
        group=text(spec.get("group")),
        plural=text(names.get("plural")),
        kind=text(names.get("kind")),
        namespaced=spec.get("scope") == "Namespaced",
        strategy=CustomStrategy(selectable),
        singular=text(names.get("singular")),
        list_kind=text(names.get("listKind")),
        short_names=tuple(text(name) for name in sequence(names.get("shortNames"))),
        categories=tuple(text(name) for name in sequence(names.get("categories"))),
        custom=True,
        stored_version=text(stored.get("name")),
    )
    served = [item for item in versions if item.get("served")]
    served.sort(key=lambda item: version_priority(text(item.get("name"))))
    for item in served:
        type_.versions[text(item.get("name"))] = _build_version(type_, item, _deprecation(type_, item, served))
    kept = type_.versions.get(type_.stored_version)
    type_.stored_schema = kept.schema if kept is not None else StructuralSchema(_openapi(stored))
    return type_


def _deprecation(type_: ResourceType, item: Json, served: list[Json]) -> str:
    """Return the warning for clients of a deprecated version: the text of the CRD, or the newer version."""
    if not item.get("deprecated"):
        return ""
    name = text(item.get("name"))
    message = f"{type_.group}/{name} {type_.kind} is deprecated"
    newest = next((text(candidate.get("name")) for candidate in served if not candidate.get("deprecated")), name)
    if version_priority(newest) < version_priority(name):
        message += f"; use {type_.group}/{newest} {type_.kind}"
    return text(item.get("deprecationWarning")) or message


def _openapi(version: Json) -> Json:
    return mapping(mapping(version.get("schema")).get("openAPIV3Schema"))


def _build_version(type_: ResourceType, item: Json, warning: str) -> Version:
    from phalanx_local.schema import StructuralSchema

    openapi = _openapi(item)
    subresources = mapping(item.get("subresources"))
    scale = mapping(subresources.get("scale"))
    return Version(
        text(item.get("name")),
        type_,
        subresources=frozenset(name for name in ("status", "scale") if name in subresources),
        scale=_scale_paths(scale) if scale else None,
        schema=StructuralSchema(openapi),
        openapi=openapi,
        columns=_columns(sequence(item.get("additionalPrinterColumns"))),
        warning=warning,
    )


def _scale_paths(scale: Json) -> ScalePaths:
    return ScalePaths(
        text(scale.get("specReplicasPath")).lstrip("."),
        text(scale.get("statusReplicasPath")).lstrip("."),
        text(scale.get("labelSelectorPath")).lstrip("."),
    )


def _columns(columns: list[object]) -> tuple[Column, ...]:
    if not columns:
        return (Column("Age", "date", "", json_path=".metadata.creationTimestamp"),)
    return tuple(
        Column(
            text(item.get("name")),
            text(item.get("type")) or "string",
            text(item.get("description"))
            or f"Custom resource definition column (in JSONPath format): {text(item.get('jsonPath'))}",
            item.get("priority") or 0,
            text(item.get("format")),
            text(item.get("jsonPath")),
        )
        for item in (mapping(column) for column in columns)
    )
