"""Who else writes a field: what metadata.managedFields tell."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.reader import Document

# The API server names the writer of a field after the first word of its User-Agent.
OWN_NAME = "phalanx"
# What a person writes with it is a wish; controllers hold on to what they write.
_BY_HAND = "kubectl"


def controller_of(metadata: Document, *path: str) -> str:
    """How a controller other than ours writes a field, given as managedFields spell its path (`f:status`): "Apply"
    for this field alone, "Update" for the status as a whole; "" where none does."""
    entries = metadata.get("managedFields")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            continue
        manager, fields = str(entry.get("manager") or ""), entry.get("fieldsV1")
        if manager == OWN_NAME or manager.startswith(_BY_HAND):
            continue
        for step in path:
            fields = fields.get(step) if isinstance(fields, Mapping) else None
        if fields is not None:
            return str(entry.get("operation") or "Update")
    return ""
