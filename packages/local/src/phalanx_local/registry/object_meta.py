"""Object metadata: fields that the server sets at create and preserves at update."""

from __future__ import annotations

import random
import uuid
from typing import Any, Final

from phalanx.model.text.decoding import parse_whole
from phalanx_local.errors import FieldCause, bad_request, forbidden_field, nameless, required, wrong_value
from phalanx_local.objects import Json, metadata, sequence, text
from phalanx_local.registry.resources import ResourceType
from phalanx_local.storage.records import Record
from phalanx_local.strategies.base import Write

# Without vowels and similar letters, random names contain no words.
_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_BASE: Final = 58
_SYSTEM_FIELDS: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def generated_name(base: str) -> str:
    """Return a name for metadata.generateName: the prefix, shortened if necessary, and five random characters."""
    return base[:_MAX_BASE] + "".join(random.choices(_NAME_LETTERS, k=5))


def without_nulls(obj: Json, *, custom: bool) -> Json:
    """Return the object without nulls, which mean absent fields. Custom resources keep nulls outside of
    metadata."""
    if custom:
        return {key: _drop_nulls(item) if key == "metadata" else item for key, item in obj.items()}
    cleaned: Json = _drop_nulls(obj)
    return cleaned


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    return value


def fill_system_fields(obj: Json, type_: ResourceType, namespace: str, write: Write) -> None:
    """Set uid, creation time and other server fields of a new object, in place. Raise 400 or 422 if the client's
    metadata forbids it."""
    meta = metadata(obj)
    if text(meta.get("resourceVersion")) not in ("", "0"):
        raise nameless(500, "resourceVersion should not be set on objects to be created")
    own = meta.get("namespace")
    if type_.namespaced:
        if own and own != namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        meta["namespace"] = namespace
    else:
        meta.pop("namespace", None)
    for field in (*_SYSTEM_FIELDS, "resourceVersion"):
        meta.pop(field, None)
    meta["uid"] = str(uuid.uuid4())
    meta["creationTimestamp"] = write.now
    if type_.strategy.counts_generation:
        meta["generation"] = 1


def keep_system_fields(meta: Json, before: Json) -> None:
    """Restore the metadata fields that the server sets, because an update cannot change them."""
    for field in _SYSTEM_FIELDS:
        if field in before:
            meta[field] = before[field]
        else:
            meta.pop(field, None)
    meta["name"] = before["name"]
    if "namespace" in before:
        meta["namespace"] = before["namespace"]
    else:
        meta.pop("namespace", None)
    meta["resourceVersion"] = before["resourceVersion"]


def check_names(obj: Json, name: str, namespace: str) -> None:
    """Raise 400 if name or namespace of the body differ from the URL."""
    meta = metadata(obj)
    body_name = text(meta.get("name"))
    if body_name and body_name != name:
        raise bad_request(f"the name of the object ({body_name}) does not match the name on the URL ({name})")
    own = text(meta.get("namespace"))
    if own and namespace and own != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def require_name(meta: Json) -> list[FieldCause]:
    if text(meta.get("name")):
        return []
    return [required("metadata.name", "name or generateName is required")]


def check_deleting(meta: Json, before: Json) -> list[FieldCause]:
    """Return an error if a terminating object gets new finalizers."""
    if "deletionTimestamp" not in before:
        return []
    former = sequence(before.get("finalizers"))
    added = [item for item in sequence(meta.get("finalizers")) if item not in former]
    if not added:
        return []
    listed = ", ".join(f'"{item}"' for item in added)
    message = (
        f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    )
    return [forbidden_field("metadata.finalizers", message)]


def check_revision(meta: Json, record: Record, *, must: bool) -> tuple[bool, list[FieldCause]]:
    """Return whether the client's resourceVersion is current or (unless `must`) absent, and errors about the
    field."""
    revision = text(meta.get("resourceVersion"))
    if revision in ("", "0"):
        if must:
            return True, [wrong_value("metadata.resourceVersion", 0, "must be specified for an update")]
        return True, []
    if parse_whole(revision, 0) is None:
        raise nameless(500, f'strconv.ParseUint: parsing "{revision}": invalid syntax')
    return revision == str(record.revision), []
