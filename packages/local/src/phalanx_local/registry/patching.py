"""PATCH requests: the four patch types, applied to the object in the client's version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from phalanx.model.text.decoding import decode_json
from phalanx_local.endpoints.subresources import rescale, scale_of
from phalanx_local.errors import (
    StatusError,
    UndecodableError,
    bad_patch,
    bad_request,
    conflict,
    invalid,
    invalid_options,
    not_found,
    required,
    unsupported_media_type,
    wrong_value,
)
from phalanx_local.objects import Json, metadata, text
from phalanx_local.registry import managed_fields
from phalanx_local.registry.api import Api
from phalanx_local.registry.object_meta import without_nulls
from phalanx_local.registry.resources import Version
from phalanx_local.storage.records import Record, view
from phalanx_local.strategies.base import Write

JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"


def patch_types(version: Version) -> tuple[str, ...]:
    """Return the patch types that a kind supports; like upstream, custom resources have no strategic merge."""
    if version.type.custom:
        return (JSON_PATCH, MERGE_PATCH, APPLY_PATCH)
    return (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)


def read_yaml(body: bytes) -> Any:
    """Parse a request body as YAML (or JSON). Raise 400 if it is malformed."""
    if body[:1] == b"{":
        return read_json(body, "error decoding YAML")
    import yaml

    from phalanx.model.text.yaml_text import decode_yaml

    try:
        return decode_yaml(body)
    except yaml.YAMLError as problem:
        raise bad_request(f"error decoding YAML: {problem}") from None


def read_json(body: bytes, what: str) -> Any:
    """Parse a request body as JSON. Raise 400, beginning with `what`, if it is malformed."""
    import msgspec

    try:
        return decode_json(body)
    except msgspec.DecodeError as problem:
        raise bad_request(f"{what}: {problem}") from None


def patch_object(
    api: Api,
    version: Version,
    target: tuple[str, str, str],
    content_type: str,
    body: bytes,
    write: Write,
    query: Mapping[str, str],
) -> tuple[Record, bool]:
    """Patch the object at (namespace, name, subresource). Return its new record and whether the object was created.

    Raises 400 for a malformed patch, 404, 409 for a stale resourceVersion or uid in the patch or conflicting
    managers, 415 for an unsupported patch type, 422 for an invalid result.
    """
    namespace, name, subresource = target
    if content_type not in patch_types(version):
        if version.type.custom:
            raise unsupported_media_type(patch_types(version))
        raise StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})
    record = api.collection(version.type).records.get((namespace, name))
    if content_type == APPLY_PATCH:
        return _apply(api, version, target, record, body, write, query)
    if record is None:
        raise not_found(version.type, name)
    change = read_json(body, "error decoding patch")
    live = scale_of(record, version) if subresource == "scale" else view(record, version)
    kind = "Scale" if subresource == "scale" else version.type.kind
    patched = _patched(live, change, content_type, kind)
    if subresource == "scale":
        return rescale(api, version, record, patched, write), False
    patched = without_nulls(patched, custom=version.type.custom)
    _check_identity(version, patched, record, subresource)
    try:
        return api.replace(version, record, patched, write, subresource), False
    except UndecodableError as error:
        raise error.of_patch(patched) from None


def _patched(live: Json, change: Any, content_type: str, kind: str) -> Json:
    from phalanx_local.patches import PatchError, json_patch, merge_patch, strategic_merge_patch

    try:
        if content_type == JSON_PATCH:
            if not isinstance(change, list):
                raise bad_request("error decoding patch: a JSON patch must be an array of operations")
            patched = json_patch(live, change)
        elif not isinstance(change, dict):
            raise bad_request(f"error decoding patch: a {content_type} must be an object")
        elif content_type == MERGE_PATCH:
            patched = merge_patch(live, change)
        else:
            patched = strategic_merge_patch(live, change, kind)
    except PatchError as problem:
        raise bad_patch(problem.message, problem.code) from None
    if not isinstance(patched, dict):
        raise bad_request("the patch does not leave an object")
    return patched


def _check_identity(version: Version, patched: Json, record: Record, subresource: str) -> None:
    """Raise an error if the patch changes name or uid: 422 like upstream, where a PUT returns 409.

    On the status of a custom resource, upstream ignores the uid.
    """
    meta = metadata(patched)
    name = text(meta.get("name"))
    if name != record.name:
        raise bad_request(f"the name of the object ({name}) does not match the name on the URL ({record.name})")
    uid = meta.get("uid")
    if uid == record.uid:
        return
    if not uid or (version.type.custom and subresource == "status"):
        meta["uid"] = record.uid
        return
    cause = wrong_value("metadata.uid", uid, "field is immutable")
    error = invalid(version.type, record.name, [cause])
    assert error.details is not None
    error.details["causes"] *= 2  # upstream checks the rule twice and reports it once
    raise error


def _apply(
    api: Api,
    version: Version,
    target: tuple[str, str, str],
    record: Record | None,
    body: bytes,
    write: Write,
    query: Mapping[str, str],
) -> tuple[Record, bool]:
    namespace, name, subresource = target
    if not query.get("fieldManager"):
        raise invalid_options("PatchOptions", required("fieldManager", "is required for apply patch"))
    config = read_yaml(body)
    if not isinstance(config, dict):
        raise bad_request("error decoding the applied configuration: it must be an object")
    if metadata(config).get("managedFields"):
        raise bad_request("metadata.managedFields must be nil")
    force = query.get("force") in ("true", "1")
    if subresource == "scale":
        raise unsupported_media_type((JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH))
    if record is None:
        if subresource:
            raise not_found(version.type, name)
        if text(metadata(config).get("uid")):
            uid = metadata(config)["uid"]
            why = f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            raise conflict(version.type, name, why)
        if not text(metadata(config).get("name")):
            why = f"the name of the object ({name} based on URL) was undeterminable: name must be provided"
            raise bad_request(why)
        created = managed_fields.applied(None, config, version, write, force, subresource)
        return api.create(version, namespace, without_nulls(created, custom=version.type.custom), write), True
    live = view(record, version)
    merged = managed_fields.applied(live, config, version, write, force, subresource)
    merged = without_nulls(merged, custom=version.type.custom)
    return api.replace(version, record, merged, write, subresource, tracks=False), False
