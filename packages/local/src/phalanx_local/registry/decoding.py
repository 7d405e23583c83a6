"""Decoding of request bodies: checks of kind and field types, unknown fields, conversion to the stored form."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from phalanx_local.errors import UndecodableError, bad_request, invalid, wrong_value
from phalanx_local.objects import Json, mapping, text
from phalanx_local.registry.canonical_quantities import spell_quantities
from phalanx_local.registry.resources import Version
from phalanx_local.strategies.base import Write
from phalanx_local.validation import unknown_fields
from phalanx_local.validation.decoding import malformed

_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def decode_object(version: Version, body: Json, write: Write) -> Json:
    """Return a client's object in stored form: kind checked, custom resources pruned and defaulted."""
    type_ = version.type
    _require_kind(version, body)
    obj = {key: value for key, value in body.items() if key not in ("kind", "apiVersion")}
    meta = obj.get("metadata")
    if meta is not None and not isinstance(meta, dict):
        raise bad_request("metadata must be an object")
    # Go drops empty maps and lists of the metadata; only the server writes managedFields.
    obj["metadata"] = {
        key: value for key, value in (meta or {}).items() if key != "managedFields" and value != {} and value != []
    }
    if not type_.custom:
        _require_shape(version, obj, write)
    elif version.schema is not None:
        _prune(version, obj, write)
    if version.from_view is not None:
        obj = version.from_view(obj)
    return obj


def _require_kind(version: Version, body: Json) -> None:
    """Raise 400 if the object has another kind or apiVersion than the URL."""
    kind, api_version = body.get("kind"), body.get("apiVersion")
    type_ = version.type
    if api_version and api_version != version.api_version:
        if type_.custom:
            raise UndecodableError(
                f"the API version in the data ({api_version}) does not match the expected API version "
                f"({version.api_version})"
            )
        body_version = str(api_version).rpartition("/")[2]
        raise UndecodableError(
            f'{kind} in version "{body_version}" cannot be handled as a {type_.kind}: no kind "{kind}" is '
            f'registered for version "{api_version}"'
        )
    if kind and kind != type_.kind:
        if type_.custom:
            cause = wrong_value("kind", kind, f"must be {type_.kind}")
            named = _Named(type_.group, type_.plural, str(kind))
            raise invalid(named, text(mapping(body.get("metadata")).get("name")), [cause])
        raise UndecodableError(
            f'{kind} in version "{version.name}" cannot be handled as a {type_.kind}: unknown conversion'
        )


class _Named(NamedTuple):
    group: str
    plural: str
    kind: str


def _require_shape(version: Version, obj: Json, write: Write) -> None:
    """Raise 400 if a field of a built-in kind has the wrong JSON type.

    Afterwards the object has no unknown fields, and its quantities are canonical.
    """
    kind = version.type.kind
    wrong = malformed(version.type.group, kind, obj, version.name)
    if wrong:
        # Decoding stops at the first error, and names no path for quantities.
        message = wrong[0].message
        for words in ("json: ", "quantities must", "unable to parse quantity"):
            if words in message:
                message = message[message.index(words) :]
        raise UndecodableError(f'{kind} in version "{version.name}" cannot be handled as a {kind}: {message}')
    _drop_unknown(version, obj, write)
    spell_quantities(version.type.group, kind, version.name, obj)


def _drop_unknown(version: Version, obj: Json, write: Write) -> None:
    """Drop fields of an object that its built-in kind does not have, as kube-apiserver does."""
    named = {"apiVersion": version.api_version, **obj}
    unknown = unknown_fields(version.type.group, version.type.kind, named)
    report_unknown(unknown, version, write)
    for path in unknown:
        drop_path(obj, path)


def _prune(version: Version, obj: Json, write: Write) -> None:
    assert version.schema is not None
    report_unknown(version.schema.prune(obj), version, write)
    version.schema.default(obj)


def report_unknown(paths: list[str], version: Version, write: Write) -> None:
    """Reject, warn about or ignore unknown fields of an object, depending on the client's fieldValidation."""
    if not paths or write.field_validation == "Ignore":
        return
    if write.field_validation == "Strict":
        listed = ", ".join(f'unknown field "{path}"' for path in paths)
        kind = version.type.kind
        raise UndecodableError(
            f'{kind} in version "{version.name}" cannot be handled as a {kind}: strict decoding error: {listed}'
        )
    write.warnings.extend(f'unknown field "{path}"' for path in paths)


def drop_path(obj: Json, path: str) -> None:
    """Remove the field at a path such as `spec.containers[0].colour` from an object, if it exists."""
    holder: Any = obj
    steps = [int(index) if index else name for name, index in _STEP.findall(path)]
    for step in steps[:-1]:
        if isinstance(step, int):
            if not isinstance(holder, list) or step >= len(holder):
                return
            holder = holder[step]
        elif isinstance(holder, dict) and step in holder:
            holder = holder[step]
        else:
            return
    if isinstance(holder, dict):
        holder.pop(steps[-1], None)
