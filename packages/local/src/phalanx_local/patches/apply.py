"""Server-side apply: merge a manager's configuration into an object under field ownership."""

from __future__ import annotations

import json
from typing import Any, Final

import msgspec

from phalanx.model.text.decoding import decode_json
from phalanx_local.patches.errors import ApplyConflict, PatchError
from phalanx_local.patches.fields import (
    Fields,
    ItemError,
    difference,
    intersection,
    keyed,
    owned_by_apply,
    paths,
    remove,
    shown,
    union,
    with_named,
    without,
)
from phalanx_local.patches.json_patch import clone
from phalanx_local.patches.lists import ListSchema
from phalanx_local.patches.merging import merge
from phalanx_local.patches.ownership import (
    SERVER_META,
    Entry,
    entry_of,
    object_changes,
    ordered,
    yield_paths,
)
from phalanx_local.validation.types import ANY, FieldType

LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
#: Manager that owns the fields an object had before its first apply, when no ownership was recorded.
FORMER: Final = "before-first-apply"


def server_side_apply(
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    *,
    manager: str,
    force: bool,
    api_version: str,
    subresource: str,
    now: str,
    lists: ListSchema,
) -> dict[str, Any]:
    """Return the object after a server-side apply, with its managedFields.

    ``live`` is the stored object (None: the apply creates it), ``applied`` the complete configuration of the
    manager. Fields that this manager applied before and omits now are removed unless another manager owns them.
    Raises ApplyConflict when the apply would change a field of another manager (unless ``force``), PatchError
    when the configuration cannot be merged. When only ownership changes, the times of managedFields do not
    change. Neither input is changed; the result can share structure with both.
    """
    meta = applied.get("metadata")
    if isinstance(meta, dict) and meta.get("managedFields") is not None:
        raise PatchError("metadata.managedFields must be nil")
    version = applied.get("apiVersion")
    if version != api_version:
        raise PatchError(
            "Incorrect version specified in apply patch. "
            f"Specified patch version: {version}, expected: {api_version}"
        )
    try:
        _refuse_duplicates(lists.root, applied, "")
        return _apply(live, applied, manager, force, api_version, subresource, now, lists)
    except ItemError as error:
        raise PatchError(f"failed to create typed patch object: {error}") from None


def _apply(
    live: dict[str, Any] | None,
    applied: dict[str, Any],
    manager: str,
    force: bool,
    api_version: str,
    subresource: str,
    now: str,
    lists: ListSchema,
) -> dict[str, Any]:
    base, entries = _split(live)
    if live is not None and not entries:
        owned, _ = object_changes(None, base, lists, subresource)
        if owned:
            entries = [entry_of(FORMER, "Update", api_version, now, owned, subresource)]
    mine = next(
        (
            entry
            for entry in entries
            if entry.get("manager") == manager
            and entry.get("operation") == "Apply"
            and entry.get("subresource", "") == subresource
        ),
        None,
    )
    former: Fields = (mine.get("fieldsV1") or {}) if mine is not None else {}
    intent = _ownable(owned_by_apply(lists.root, applied), lists, subresource)
    others = [entry for entry in entries if entry is not mine]

    merged = merge(lists.root, base, applied) if base else clone(applied)
    if former:
        claimed = intent
        for entry in others:
            claimed = union(claimed, entry.get("fieldsV1") or {})
        if difference(former, intent):
            merged = _prune(lists.root, merged, former, claimed)

    changed, removed = object_changes(base or None, merged, lists, subresource)
    clashes = [(entry, intersection(entry.get("fieldsV1") or {}, changed)) for entry in others]
    clashes = [(entry, fields) for entry, fields in clashes if fields]
    if clashes and not force:
        allowed = _last_applied(base, lists, api_version) if manager == "kubectl" else {}
        clashes = [(entry, difference(fields, allowed)) for entry, fields in clashes]
        clashes = [(entry, fields) for entry, fields in clashes if fields]
        if clashes:
            raise _conflict(clashes)
    kept = yield_paths(others, changed, removed)

    same = bool(base) and not changed and not removed and merged == base
    if manager == "kubectl" and not same:
        merged = _refresh_last_applied(merged, applied)
    if intent:
        time = now if not same else (mine.get("time") if mine is not None else None)
        kept = [*kept, entry_of(manager, "Apply", api_version, time, intent, subresource)]
    result_meta = dict(merged.get("metadata") or {})
    if kept:
        result_meta["managedFields"] = ordered(kept)
    return {**merged, "metadata": result_meta}


def _split(live: dict[str, Any] | None) -> tuple[dict[str, Any], list[Entry]]:
    """Return an object without its managedFields, and these managedFields."""
    if live is None:
        return {}, []
    meta = live.get("metadata") or {}
    entries = meta.get("managedFields") or []
    bare = {key: item for key, item in meta.items() if key != "managedFields"}
    return {**live, "metadata": bare}, entries


def _ownable(fields: Fields, lists: ListSchema, subresource: str) -> Fields:
    """Return the applied fields without fields that no manager owns: apiVersion, kind, server metadata, fields that
    the endpoint resets."""
    kept = {key: node for key, node in fields.items() if key not in ("f:apiVersion", "f:kind", "f:metadata")}
    meta = fields.get("f:metadata")
    if meta:
        inner = {key: node for key, node in meta.items() if key != "." and key[2:] not in SERVER_META}
        if inner:
            kept = {"f:metadata": inner, **kept}
    for path in lists.resets(subresource):
        kept = without(kept, path)
    return kept


def _prune(kind: FieldType, merged: dict[str, Any], former: Fields, claimed: Fields) -> dict[str, Any]:
    """Remove fields that the manager applied before and no manager applies now; fields that the manager never owned
    remain."""
    former_fields = with_named(kind, former)
    all_fields = with_named(kind, owned_by_apply(kind, merged))
    pruned = remove(kind, merged, former_fields)
    remaining = with_named(kind, owned_by_apply(kind, pruned))
    pruned = remove(kind, merged, difference(all_fields, union(remaining, with_named(kind, claimed))))
    remaining = with_named(kind, owned_by_apply(kind, pruned))
    result: dict[str, Any] = remove(kind, merged, intersection(difference(all_fields, remaining), former_fields))
    return result


def _refuse_duplicates(kind: FieldType, value: Any, path: str) -> None:
    """Raise PatchError if an applied list contains the same item twice."""
    if type(value) is dict:
        for name, item in value.items():
            if type(item) in (dict, list):
                _refuse_duplicates(kind.child(name), item, f"{path}.{name}")
    elif type(value) is list and not kind.atomic and kind.associative:
        for key, items in keyed(kind, value).items():
            if len(items) > 1:
                raise PatchError(
                    f"failed to create typed patch object: {path}: duplicate entries for key {shown((key,))}"
                )
            _refuse_duplicates(kind.element or ANY, items[0], path + shown((key,)))


def _conflict(clashes: list[tuple[Entry, Fields]]) -> ApplyConflict:
    conflicts: list[tuple[str, str]] = []
    described: list[str] = []
    for entry, fields in sorted(clashes, key=lambda clash: _describe(clash[0])):
        for path in paths(fields):
            conflicts.append((str(entry.get("manager", "")), shown(path)))
            described.append(_describe(entry))
    return ApplyConflict(conflicts, described)


def _describe(entry: Entry) -> str:
    words = json.dumps(entry.get("manager", ""), ensure_ascii=False)
    if entry.get("subresource"):
        words += f" with subresource {json.dumps(entry['subresource'])}"
    if entry.get("operation") == "Update":
        words += f" using {entry.get('apiVersion', '')}"
    return words


def _last_applied(base: dict[str, Any], lists: ListSchema, api_version: str) -> Fields:
    """Return the fields of the last client-side ``kubectl apply`` that no other client changed since.

    kubectl can take ownership of these fields without a conflict.
    """
    text = ((base.get("metadata") or {}).get("annotations") or {}).get(LAST_APPLIED)
    try:
        config = decode_json(text) if isinstance(text, str) and text else None
    except msgspec.DecodeError:
        return {}
    if not isinstance(config, dict) or config.get("apiVersion") != api_version:
        return {}
    try:
        fields = owned_by_apply(lists.root, config)
        changed, removed = object_changes(config, base, lists, "")
    except ItemError:
        return {}
    return difference(difference(fields, changed), removed)


def _refresh_last_applied(merged: dict[str, Any], applied: dict[str, Any]) -> dict[str, Any]:
    """Update the last-applied annotation of client-side apply if the object has one."""
    meta = merged.get("metadata") or {}
    annotations = meta.get("annotations") or {}
    if not annotations.get(LAST_APPLIED):
        return merged
    config = clone(applied)
    (config.get("metadata", {}).get("annotations") or {}).pop(LAST_APPLIED, None)
    text = json.dumps(config, separators=(",", ":"), sort_keys=True, ensure_ascii=False) + "\n"
    return {**merged, "metadata": {**meta, "annotations": {**annotations, LAST_APPLIED: text}}}
