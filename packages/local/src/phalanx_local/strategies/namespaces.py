"""Strategy of Namespaces, with the finalizer that blocks their removal until they are empty."""

from __future__ import annotations

from phalanx_local.errors import FieldCause
from phalanx_local.objects import Json, mapping, metadata, sequence, text
from phalanx_local.strategies.base import RestStrategy, Write

NAME_LABEL = "kubernetes.io/metadata.name"
FINALIZER = "kubernetes"


class NamespaceStrategy(RestStrategy):
    """Strategy of Namespaces; spec.finalizers block the removal until the contents are deleted."""

    returns_deleted = True
    field_labels = frozenset(("status.phase",))

    def fields(self, obj: Json) -> dict[str, str]:
        return {"status.phase": text(mapping(obj.get("status")).get("phase"))}

    def prepare_create(self, obj: Json, write: Write) -> None:
        spec = obj.setdefault("spec", {})
        if isinstance(spec, dict):
            finalizers = sequence(spec.get("finalizers"))
            if FINALIZER not in finalizers:
                spec["finalizers"] = [*finalizers, FINALIZER]
        _label(obj)

    def prepare_update(self, obj: Json, old: Json, write: Write) -> None:
        obj["spec"] = old.get("spec", {})
        _label(obj)

    def initial_status(self, obj: Json, write: Write) -> Json:
        return {"phase": "Active"}

    def check(self, obj: Json, old: Json | None, subresource: str) -> list[FieldCause]:
        return []


def _label(obj: Json) -> None:
    meta = metadata(obj)
    labels = meta.setdefault("labels", {})
    if isinstance(labels, dict) and text(meta.get("name")):
        labels[NAME_LABEL] = meta["name"]
