"""Strategic merge patch: maps merge by key, lists by the patchStrategy of their field.

A list whose field has the strategy *merge* is merged item by item (by merge key, or as a set of primitives); any
other list is replaced. Directives: ``$patch: replace | delete`` in a map, ``$patch: delete | replace`` in an item
of a merged list, ``$setElementOrder/<list>``, ``$deleteFromPrimitiveList/<list>``, ``$retainKeys``; null deletes
a key.
"""

from __future__ import annotations

from typing import Any, Final

from phalanx_local.patches.errors import PatchError, brief
from phalanx_local.patches.json_patch import clone
from phalanx_local.patches.lists import builtin_lists
from phalanx_local.validation.kinds import GROUPS, kind_type
from phalanx_local.validation.types import ANY, FieldType, StructField

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
ORDER_PREFIX: Final = "$setElementOrder/"
DELETE_PREFIX: Final = "$deleteFromPrimitiveList/"

_UNTYPED: Final = StructField(ANY)


def strategic_merge_patch(
    doc: dict[str, Any], patch: dict[str, Any], kind: str, group: str | None = None, version: str = ""
) -> dict[str, Any]:
    """Return the document after a strategic merge patch; neither input is changed.

    ``kind`` names the built-in kind that defines the merge rules; ``group`` and ``version`` default to the
    document's ``apiVersion``. Raises PatchError: 400 for malformed directives, 422 for lists of lists, 500 for
    errors without their own status in kube-apiserver (an unknown directive, a list item without its merge key).
    """
    if not isinstance(patch, dict):
        raise PatchError("invalid JSON document")
    if group is None:
        head, slash, tail = str(doc.get("apiVersion", "")).rpartition("/")
        group, version = (head, tail) if slash else ("", tail)
        if kind_type(group, kind, version) is None:
            version = ""
            group = next((name for name in GROUPS if kind_type(name, kind) is not None), group)
    root = builtin_lists(group, kind, version).root
    merged: dict[str, Any] = _merge_map(clone(doc), clone(patch), root)
    return merged


def _merge_map(original: dict[str, Any] | None, patch: dict[str, Any], kind: FieldType) -> dict[str, Any]:
    """Apply a strategic merge patch to a map; both arguments are private copies that the function changes."""
    if DIRECTIVE in patch:
        directive = patch.pop(DIRECTIVE)
        if directive == "replace":
            return patch
        if directive == "delete":
            return {}
        raise PatchError(f"unknown patch type: {directive} in map: {brief(patch)}", 500)
    if original is None:
        original = {}
    if RETAIN_KEYS in patch:
        _retain_keys(original, patch, patch.pop(RETAIN_KEYS))
    for key in [key for key in patch if key.startswith(ORDER_PREFIX)]:
        _merge_ordered(original, patch, key, kind)
    for key, value in patch.items():
        deleting = key.startswith(DELETE_PREFIX)
        name = key[len(DELETE_PREFIX) :] if deleting else key
        if value is None:
            original.pop(name, None)
            continue
        current = original.get(name)
        if name not in original or _json_type(current) is not _json_type(value):
            if not deleting:
                _set(original, name, _plain(value))
            continue
        member = kind.fields.get(name) or (StructField(kind.element) if kind.element else _UNTYPED)
        if isinstance(value, dict):
            original[name] = value if member.patch_replace else _merge_map(current, value, member.type)
        elif isinstance(value, list):
            if deleting or member.type.patch_merge:
                assert isinstance(current, list)
                original[name] = _merge_list(current, value, member.type, deleting)
            else:
                original[name] = value
        else:
            original[name] = value
    return original


def _set(target: dict[str, Any], name: str, value: Any) -> None:
    if value is _DROP:
        target.pop(name, None)
    else:
        target[name] = value


def _retain_keys(original: dict[str, Any], patch: dict[str, Any], keep: Any) -> None:
    if not isinstance(keep, list):
        raise PatchError("invalid patch format of retainKeys")
    names = {key for key in keep if isinstance(key, str)}
    for key, value in patch.items():
        if value is not None and not key.startswith((ORDER_PREFIX, DELETE_PREFIX)) and key not in names:
            raise PatchError("invalid patch format of retainKeys")
    for key in [key for key in original if key not in names]:
        del original[key]


def _merge_ordered(original: dict[str, Any], patch: dict[str, Any], key: str, kind: FieldType) -> None:
    """Merge a list by its ``$setElementOrder`` and remove both from the patch."""
    order = patch.pop(key)
    name = key[len(ORDER_PREFIX) :]
    current, change = original.get(name), patch.get(name)
    if not isinstance(order, list) or not isinstance(change, list | None):
        raise PatchError("invalid patch format of setElementOrder list")
    if not isinstance(current, list | None):
        raise PatchError(f"expected a list in {name}, but received a {type(current).__name__}", 500)
    rule = kind.child(name)
    merge_key = rule.patch_key
    if change and order:
        _check_order(change, order, merge_key)
    if name in patch and change is None:
        # An explicit null deletes the list: there are no items to order.
        return
    patch.pop(name, None)
    if current is None and change is None:
        return
    if change is None:
        merged = list(current or ())
    elif current is None:
        plain = _plain(change)
        merged = plain if isinstance(plain, list) else []
    elif rule.patch_merge:
        merged = _merge_list(list(current), change, rule, False)
    else:
        merged = change
    live = _live_order(current or [], change or [], merge_key) if rule.patch_merge else current or []
    original[name] = _in_order(merged, order, live, merge_key)


def _live_order(current: list[Any], change: list[Any], merge_key: str) -> list[Any]:
    """Return the live items in the order from which their places in the result are computed.

    New items fill the places at the end that deleted items free. This is an accident of kube-apiserver, but it
    decides the place of a new item among items that the patch does not name.
    """
    if not merge_key:
        return current
    deleted = {_identity(item, merge_key) for item in change if item.get(DIRECTIVE) == "delete"}
    remaining = [item for item in current if _identity(item, merge_key) not in deleted]
    if len(remaining) == len(current):
        return current
    known = {_identity(item, merge_key) for item in remaining}
    new = [item for item in change if DIRECTIVE not in item and _identity(item, merge_key) not in known]
    return (remaining + new)[: len(current)]


def _check_order(change: list[Any], order: list[Any], merge_key: str) -> None:
    """Raise PatchError unless the items of the patch list have the same sequence as in $setElementOrder."""
    words = [_identity(item, merge_key) for item in order]
    position = 0
    for item in change:
        if isinstance(item, dict) and DIRECTIVE in item:
            continue
        word = _identity(item, merge_key)
        while position < len(words) and words[position] != word:
            position += 1
        if position == len(words):
            raise PatchError(
                f"The order in patch list:\n{brief(change)}\n "
                f"doesn't match $setElementOrder list:\n{brief(order)}\n",
                500,
            )
        position += 1


def _identity(item: Any, merge_key: str) -> Any:
    """Return the identity of an item of a merged list: the value of its merge key, or the item itself."""
    if not merge_key:
        return brief(item)
    if not isinstance(item, dict) or merge_key not in item:
        raise PatchError(f"map: {brief(item)} does not contain declared merge key: {merge_key}", 500)
    return brief(item[merge_key])


def _merge_list(original: list[Any], change: list[Any], rule: FieldType, deleting: bool) -> list[Any]:
    if not original and not change:
        return original
    types = {_json_type(item) for item in (*original, *change)}
    if list in types:
        raise PatchError("lists of lists are not supported", 422)
    if len(types) != 1:
        raise PatchError(f"list element types are not identical: {brief([original, change])}", 500)
    if types != {dict}:
        if deleting:
            deleted = {brief(item) for item in change}
            return [item for item in original if brief(item) not in deleted]
        unique = {brief(item): item for item in (*original, *change)}
        return _in_order(list(unique.values()), change, original, "")
    key = rule.patch_key
    if not key:
        raise PatchError("cannot merge lists without merge key", 500)
    merged, plain, replaced = _directives(list(original), change, key)
    if replaced:
        return merged
    position = {_identity(item, key): index for index, item in reversed(list(enumerate(merged)))}
    for item in plain:
        word = _identity(item, key)
        index = position.get(word)
        if index is None:
            position[word] = len(merged)
            kept = _plain(item)
            merged.append(item if kept is _DROP else kept)
        else:
            merged[index] = _merge_map(merged[index], item, rule.element or ANY)
    return _in_order(merged, plain, original, key)


def _directives(original: list[Any], change: list[Any], key: str) -> tuple[list[Any], list[Any], bool]:
    """Execute the ``$patch`` directives among the items of a patch list.

    Return the list after the directives, the items without directives, and whether the list is replaced as a whole.
    """
    plain: list[Any] = []
    replace = False
    for item in change:
        directive = item.get(DIRECTIVE)
        if DIRECTIVE not in item:
            plain.append(item)
        elif directive == "delete":
            word = _identity(item, key)
            original = [
                candidate for candidate in original if not (key in candidate and brief(candidate[key]) == word)
            ]
        elif directive == "replace":
            replace = True
        elif directive == "merge":
            raise PatchError("merging lists cannot yet be specified in the patch", 500)
        else:
            raise PatchError(f"unknown patch type: {directive} in map: {brief(item)}", 500)
    return (plain, [], True) if replace else (original, plain, False)


def _in_order(merged: list[Any], order: list[Any], live: list[Any], key: str) -> list[Any]:
    """Return the items that $setElementOrder names, in its sequence; other items are inserted by their live
    position."""
    rank = {_identity(item, key): index for index, item in reversed(list(enumerate(order)))}
    place: dict[Any, int] = {}
    for index, item in enumerate(live):
        place.setdefault(_identity(item, key), index)
    named = [item for item in merged if _identity(item, key) in rank]
    unnamed = [item for item in merged if _identity(item, key) not in rank]
    named.sort(key=lambda item: rank[_identity(item, key)])
    unnamed.sort(key=lambda item: place.get(_identity(item, key), len(live)))
    result: list[Any] = []
    left = 0
    for item in named:
        here = place.get(_identity(item, key))
        while left < len(unnamed) and here is not None:
            other = place.get(_identity(unnamed[left], key))
            if other is None or other >= here:
                break
            result.append(unnamed[left])
            left += 1
        result.append(item)
    return result + unnamed[left:]


class _Drop:
    """Marker for a value that a ``$patch: delete`` directive removes."""


_DROP: Final = _Drop()


def _plain(value: Any) -> Any:
    """Return a patch value without nulls and directives, to add it where the document has no value."""
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return _DROP
        cleaned = {}
        for key, item in value.items():
            if item is not None and key != RETAIN_KEYS and not key.startswith((ORDER_PREFIX, DELETE_PREFIX)):
                plain = _plain(item)
                if plain is not _DROP:
                    cleaned[key] = plain
        return cleaned
    if isinstance(value, list):
        return [plain for plain in map(_plain, value) if plain is not _DROP]
    return value


def _json_type(value: Any) -> type:
    """Return the type by which JSON values are compared; integers and floats have one type."""
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)
