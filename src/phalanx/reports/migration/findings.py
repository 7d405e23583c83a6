"""Migration findings about objects of another scheduler."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.reader import Document


class MigrationVerdict(enum.StrEnum):
    """Verdicts of `phalanx migrate` on a field or object, from the best to the worst."""

    WORKS = "works as it is"
    CHANGE = "works after a change"
    NOT_HONOURED = "not honoured"


class FieldFinding(msgspec.Struct, frozen=True):
    """Migration finding about one field. `field` is a path such as spec.weight; `message` states the reason and the
    replacement.

    `served` is a scheduler name of existing pods that the message advises to serve as well. `kept` tells that this
    name must stay served.
    """

    field: str
    verdict: MigrationVerdict
    message: str = ""
    served: str = ""
    kept: bool = False


class ObjectFinding(msgspec.Struct, frozen=True):
    """All migration findings about one object and about `alike` more objects with the same template.

    `manifests` replace or complement the object, `patch` is merged into it.
    """

    system: str
    api_version: str
    kind: str
    namespace: str
    name: str
    fields: tuple[FieldFinding, ...] = ()
    alike: int = 0
    message: str = ""
    patch: dict[str, Any] | None = None
    manifests: tuple[dict[str, Any], ...] = ()

    @property
    def verdict(self) -> MigrationVerdict:
        """Worst verdict of the object's fields."""
        order = list(MigrationVerdict)
        return max((field.verdict for field in self.fields), key=order.index, default=MigrationVerdict.WORKS)

    @property
    def title(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where} ({self.api_version.rpartition('/')[0] or 'core'})"


def head_of(document: Document, system: str) -> ObjectFinding:
    """Return the description of an object for migration, without findings yet."""
    stated = document.get("metadata")
    metadata: Document = stated if isinstance(stated, Mapping) else {}
    return ObjectFinding(
        system,
        str(document.get("apiVersion") or ""),
        str(document.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )
