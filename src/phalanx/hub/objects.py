"""API objects as undecoded documents, with common accessors."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.model.text.decoding import decode_json

Json = dict[str, Any]


class StoredObject(msgspec.Struct, frozen=True):
    """API object as the hub stores it; the metadata of `document` has a name, a uid and a resourceVersion as
    text."""

    document: Json

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def namespace(self) -> str:
        return str(self.document["metadata"].get("namespace") or "")

    @property
    def uid(self) -> str:
        return str(self.document["metadata"]["uid"])

    @property
    def resource_version(self) -> str:
        return str(self.document["metadata"]["resourceVersion"])

    def label(self, key: str) -> str:
        labels = self.document["metadata"].get("labels")
        return str(labels.get(key) or "") if isinstance(labels, dict) else ""

    def annotation(self, key: str) -> str:
        annotations = self.document["metadata"].get("annotations")
        return str(annotations.get(key) or "") if isinstance(annotations, dict) else ""


def read_object(raw: bytes) -> StoredObject | None:
    """Decode an API object; return None if it is not an object or lacks a required part.

    Optional parts of another type than in Kubernetes are removed.
    """
    try:
        document = decode_json(raw)
    except msgspec.DecodeError:
        return None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    if not isinstance(metadata, dict):
        return None
    if not all(isinstance(metadata.get(key), str) for key in ("name", "uid", "resourceVersion")):
        return None
    for part in ("spec", "status"):
        if not isinstance(document.get(part) or {}, dict):
            del document[part]
    for part, kind in (("labels", dict), ("annotations", dict), ("finalizers", list)):
        if not isinstance(metadata.get(part) or kind(), kind):
            del metadata[part]
    gates = (document.get("spec") or {}).get("schedulingGates") or []
    if not isinstance(gates, list) or not all(isinstance(gate, dict) for gate in gates):
        return None
    return StoredObject(document)


def printable(value: object, most: int = 300) -> str:
    """Return a text of another cluster as one printable line of at most `most` characters."""
    text = "".join(character if character.isprintable() else " " for character in str(value)[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."
