"""metadata: what the server fills in at create and keeps at update."""

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

# No vowels and no look-alikes, so that a random name spells no word.
_NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_LONGEST_BASE: Final = 58
_SYSTEM_FIELDS: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
)


def generated_name(base: str) -> str:
    """A name from metadata.generateName: the base, cut to fit, and five random characters."""
    return base[:_LONGEST_BASE] + "".join(random.choices(_NAME_LETTERS, k=5))


def without_nulls(obj: Json, *, custom: bool) -> Json:
    """A built-in kind reads null as absent. A custom resource keeps nulls outside metadata for its schema."""
    if custom:
        return {key: _drop_nulls(item) if key == "metadata" else item for key, item in obj.items()}
    found: Json = _drop_nulls(obj)
    return found


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _drop_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_drop_nulls(item) for item in value]
    return value


def fill_system_fields(obj: Json, type_: ResourceType, namespace: str, write: Write) -> None:
    """Gives a new object its identity, in place. Raises 400 or 422 when the client's metadata forbids it."""
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
    """An update cannot change what the server filled in."""
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
    """400 when the body names another object than the URL."""
    meta = metadata(obj)
    given = text(meta.get("name"))
    if given and given != name:
        raise bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    own = text(meta.get("namespace"))
    if own and namespace and own != namespace:
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def require_name(meta: Json) -> list[FieldCause]:
    if text(meta.get("name")):
        return []
    return [required("metadata.name", "name or generateName is required")]


def check_deleting(meta: Json, before: Json) -> list[FieldCause]:
    """An object that is being deleted takes no new finalizers."""
    if "deletionTimestamp" not in before:
        return []
    kept = sequence(before.get("finalizers"))
    added = [item for item in sequence(meta.get("finalizers")) if item not in kept]
    if not added:
        return []
    listed = ", ".join(f'"{item}"' for item in added)
    why = (
        f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    )
    return [forbidden_field("metadata.finalizers", why)]


def check_revision(meta: Json, record: Record, *, must: bool) -> tuple[bool, list[FieldCause]]:
    """Whether the client's resourceVersion is current (True also when it states none and need not)."""
    given = text(meta.get("resourceVersion"))
    if given in ("", "0"):
        if must:
            return True, [wrong_value("metadata.resourceVersion", 0, "must be specified for an update")]
        return True, []
    if parse_whole(given, 0) is None:
        raise nameless(500, f'strconv.ParseUint: parsing "{given}": invalid syntax')
    return given == str(record.revision), []
