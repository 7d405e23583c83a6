"""What is said of the objects of another scheduler."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

import msgspec

from phalanx.dialects.reader import Document


class MigrationVerdict(enum.StrEnum):
    """From the best to the worst."""

    WORKS = "works as it is"
    CHANGE = "works after a change"
    NOT_HONOURED = "not honoured"


class FieldFinding(msgspec.Struct, frozen=True):
    """`field` is a path such as spec.weight; `message` says why, and what to write instead.

    `served` is the name of a scheduler under which pods wait now, where the message advises to serve it too; `kept`
    is True where that name has to stay served.
    """

    field: str
    verdict: MigrationVerdict
    message: str = ""
    served: str = ""
    kept: bool = False


class ObjectFinding(msgspec.Struct, frozen=True):
    """All that is said of one object, and of `alike` others of the same template.

    `manifests` are what to apply in its place or beside it, `patch` what to merge into it.
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
        """The worst of its fields."""
        order = list(MigrationVerdict)
        return max((each.verdict for each in self.fields), key=order.index, default=MigrationVerdict.WORKS)

    @property
    def title(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where} ({self.api_version.rpartition('/')[0] or 'core'})"


def head_of(document: Document, system: str) -> ObjectFinding:
    """Nothing is said of it yet."""
    stated = document.get("metadata")
    metadata: Document = stated if isinstance(stated, Mapping) else {}
    return ObjectFinding(
        system,
        str(document.get("apiVersion") or ""),
        str(document.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )
