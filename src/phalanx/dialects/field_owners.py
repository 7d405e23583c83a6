"""Field ownership: the other writers of an object's field, read from metadata.managedFields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from phalanx.dialects.reader import Document
from phalanx.model.text.decoding import decode_json

# The API server derives a manager's name from the first word of its User-Agent.
OWN_NAME = "phalanx"
# A field written with kubectl is a request; controllers continue to write their fields.
_BY_HAND = "kubectl"


class FieldOwner(NamedTuple):
    """One entry of an object's managedFields: the last writer of `fields`, and its operation ("Apply" or
    "Update")."""

    manager: str
    operation: str
    fields: Mapping[str, Any]

    def owns(self, *path: str) -> bool:
        """Return whether the manager owns the field at `path`, in the notation of managedFields (`f:status`)."""
        fields: object = self.fields
        for step in path:
            fields = fields.get(step) if isinstance(fields, Mapping) else None
        return fields is not None


def field_owners(metadata: Document) -> Iterator[FieldOwner]:
    entries = metadata.get("managedFields")
    if isinstance(entries, msgspec.Raw):
        entries = decode_json(bytes(entries))
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, Mapping) and isinstance(entry.get("fieldsV1"), Mapping):
            operation = str(entry.get("operation") or "Update")
            yield FieldOwner(str(entry.get("manager") or ""), operation, entry["fieldsV1"])


def other_controllers_way(metadata: Document, *path: str) -> str:
    """Return how another controller writes the field at `path` (in the notation of managedFields, `f:status`):
    "Apply" for this field alone, "Update" for the status as a whole, "" if no other controller writes it."""
    for owner in field_owners(metadata):
        if owner.manager != OWN_NAME and not owner.manager.startswith(_BY_HAND) and owner.owns(*path):
            return owner.operation
    return ""
