"""Field ownership in ``metadata.managedFields`` through creates, updates and patches (operation Update).

The rule is that of kube-apiserver. A manager that changes or adds a field owns it, and other managers lose it. A
removed field has no owner. Managers still own fields whose value did not change.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.patches.fields import (
    Fields,
    ItemError,
    difference,
    step,
    union,
    whole,
    without,
)
from phalanx_local.patches.lists import ListSchema
from phalanx_local.validation.types import ABSENT, FieldType

#: Maximum number of entries of operation Update in an object; older entries are merged.
MAX_UPDATERS: Final = 10
ANCIENT: Final = "ancient-changes"

#: Metadata that belongs to the server and has no owner.
SERVER_META: Final = frozenset(
    (
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)

_TYPE_AND_META: Final = frozenset(("apiVersion", "kind", "metadata"))

Entry = dict[str, Any]


def track_update(
    before: dict[str, Any] | None,
    after: dict[str, Any],
    *,
    manager: str,
    api_version: str,
    subresource: str,
    now: str,
    lists: ListSchema,
) -> dict[str, Any]:
    """Return the object after a create, PUT or patch, with updated managedFields.

    ``before`` is the stored object (None for a create), ``after`` the object to store, ``now`` an RFC 3339 time.
    The result shares structure with its inputs; neither is changed. Fields that an endpoint resets (status on the
    main endpoint, spec on the status endpoint) are never owned through it. A client clears the managers with
    ``managedFields: [{}]`` (or an empty list) on the main endpoint; ownership of such an object is recorded again
    only after a server-side apply.
    """
    meta = after.get("metadata") or {}
    old_meta = (before or {}).get("metadata") or {}
    sent = meta.get("managedFields") if not subresource else None
    kept = old_meta.get("managedFields") or []
    if sent in ([], [{}]):
        entries: list[Entry] = []
    else:
        entries = sent if sent and _readable(sent) else kept
    if before is not None and not entries:
        return _with_entries(after, [])
    try:
        changed, removed = object_changes(before, after, lists, subresource)
    except ItemError:
        # An item without its key has no path; kube-apiserver drops the record and accepts the write.
        return _with_entries(after, [])
    if not changed and not removed:
        return after if entries is meta.get("managedFields") else _with_entries(after, entries)
    updated = yield_paths(entries, changed, removed)
    if changed:
        updated = _claim(updated, changed, manager or "unknown", api_version, subresource, now)
        if len(updated) > MAX_UPDATERS:
            updated = _cap(updated)
    return _with_entries(after, ordered(updated))


def object_changes(
    before: dict[str, Any] | None, after: dict[str, Any], lists: ListSchema, subresource: str
) -> tuple[Fields, Fields]:
    """Return the field paths that a write changed or added, and those that it removed, without fields set by the
    server."""
    changed: Fields = {}
    removed: Fields = {}
    old: dict[str, Any] = before or {}
    meta_changed: Fields = {}
    meta_removed: Fields = {}
    meta_type = lists.root.child("metadata")
    _level(
        meta_type, old.get("metadata") or {}, after.get("metadata") or {}, SERVER_META, meta_changed, meta_removed
    )
    if meta_changed:
        changed["f:metadata"] = meta_changed
    if meta_removed:
        removed["f:metadata"] = meta_removed
    _level(lists.root, old, after, _TYPE_AND_META, changed, removed)
    for path in lists.resets(subresource):
        changed, removed = without(changed, path), without(removed, path)
    return changed, removed


def _level(
    kind: FieldType,
    old: dict[str, Any],
    new: dict[str, Any],
    skipped: frozenset[str],
    changed: Fields,
    removed: Fields,
) -> None:
    """Record in `changed` and `removed` the differences of two maps by name, without the names in `skipped`."""
    for name, item in new.items():
        if name in skipped:
            continue
        was = old.get(name, ABSENT)
        if was is item or was == item:
            continue
        member = kind.fields.get(name)
        if was is ABSENT and member is not None:
            was = member.empty
        inner = kind.child(name)
        if was is ABSENT:
            changed["f:" + name] = whole(inner, item)
        else:
            step(inner, "f:" + name, was, item, changed, removed)
    for name, was in old.items():
        if name not in new and name not in skipped:
            member = kind.fields.get(name)
            if member is None or member.empty is ABSENT:
                removed["f:" + name] = whole(kind.child(name), was)
            else:
                step(member.type, "f:" + name, was, member.empty, changed, removed)


def _readable(entries: Any) -> bool:
    return isinstance(entries, list) and all(
        isinstance(entry, dict)
        and entry.get("operation") in ("Apply", "Update")
        and entry.get("apiVersion")
        and entry.get("fieldsType") == "FieldsV1"
        and isinstance(entry.get("fieldsV1", {}), dict)
        for entry in entries
    )


def yield_paths(entries: list[Entry], changed: Fields, removed: Fields, keep: Entry | None = None) -> list[Entry]:
    """Return the managedFields entries without the paths that a write changed or removed; entries without paths are
    dropped."""
    lost = union(changed, removed)
    result: list[Entry] = []
    for entry in entries:
        if entry is keep:
            result.append(entry)
            continue
        owned = entry.get("fieldsV1") or {}
        remaining = difference(owned, lost)
        if remaining == owned:
            result.append(entry)
        elif remaining:
            result.append({**entry, "fieldsV1": remaining})
    return result


def _claim(
    entries: list[Entry], fields: Fields, manager: str, api_version: str, subresource: str, now: str
) -> list[Entry]:
    result: list[Entry] = []
    mine: Entry | None = None
    for entry in entries:
        if (
            entry.get("manager") == manager
            and entry.get("operation") == "Update"
            and entry.get("apiVersion") == api_version
            and entry.get("subresource", "") == subresource
        ):
            mine = entry
        else:
            result.append(entry)
    if mine is not None:
        fields = union(mine.get("fieldsV1") or {}, fields)
    result.append(entry_of(manager, "Update", api_version, now, fields, subresource))
    return result


def entry_of(
    manager: str, operation: str, api_version: str, time: str | None, fields: Fields, subresource: str
) -> Entry:
    """Build one entry of managedFields."""
    entry: Entry = {"manager": manager, "operation": operation, "apiVersion": api_version}
    if time is not None:
        entry["time"] = time
    entry["fieldsType"] = "FieldsV1"
    entry["fieldsV1"] = fields
    if subresource:
        entry["subresource"] = subresource
    return entry


def ordered(entries: list[Entry]) -> list[Entry]:
    """Return managedFields entries in the order of the API: Apply first, then by time, manager, version and
    subresource."""
    if len(entries) < 2:
        return entries
    return sorted(
        entries,
        key=lambda entry: (
            entry.get("operation", ""),
            entry.get("time") or "",
            entry.get("manager", ""),
            entry.get("apiVersion", ""),
            entry.get("subresource", ""),
        ),
    )


def _cap(entries: list[Entry]) -> list[Entry]:
    """Merge the oldest Update entries of managedFields of each version into one until at most MAX_UPDATERS
    remain."""
    updaters = sorted(
        (entry for entry in entries if entry.get("operation") == "Update"),
        key=lambda entry: (entry.get("time") or "", entry.get("manager", "")),
    )
    excess = len(updaters) - MAX_UPDATERS
    result = list(entries)
    first: dict[str, Entry] = {}
    for entry in updaters:
        if excess <= 0:
            break
        version = entry.get("apiVersion", "")
        bucket = first.get(version)
        if bucket is None:
            first[version] = entry
            continue
        fields = union(bucket.get("fieldsV1") or {}, entry.get("fieldsV1") or {})
        merged = entry_of(ANCIENT, "Update", version, entry.get("time"), fields, "")
        result = [other for other in result if other is not bucket and other is not entry]
        result.append(merged)
        first[version] = merged
        excess -= 1
    return result


def _with_entries(obj: dict[str, Any], entries: list[Entry]) -> dict[str, Any]:
    meta = obj.get("metadata") or {}
    if entries:
        if meta.get("managedFields") is entries:
            return obj
        return {**obj, "metadata": {**meta, "managedFields": entries}}
    if "managedFields" not in meta:
        return obj
    return {**obj, "metadata": {key: item for key, item in meta.items() if key != "managedFields"}}
