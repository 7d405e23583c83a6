"""Sets of field paths in the FieldsV1 encoding, and functions that compute them from objects.

A set is the decoded ``fieldsV1`` object itself: a trie whose keys are ``f:<name>`` (a field), ``k:<json>`` (an
item of a map list, by its keys), ``v:<json>`` (an item of a set) and ``i:<n>``. A node is a member of the set
when it is empty or contains ``"."``. The functions never change their arguments and share structure, so that
stored objects can contain sets. An empty root is the empty set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from phalanx_local.validation.types import ABSENT, ANY, FieldType

Fields = dict[str, Any]

MEMBER: Final = "."
_LEAF: Final[Fields] = {}
_quote = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def _owned(node: Fields) -> bool:
    return not node or MEMBER in node


def _node(member: bool, children: Fields) -> Fields | None:
    """Return a node of a field-set trie; None if the node is no member and has no children."""
    if member:
        return {MEMBER: _LEAF, **children} if children else _LEAF
    return children or None


def union(left: Fields, right: Fields) -> Fields:
    """Return the field paths that are in at least one of the two sets."""
    if not left or left is right:
        return right
    if not right:
        return left
    merged = dict(left)
    for key, node in right.items():
        mine = merged.get(key)
        if mine is None:
            merged[key] = node
        elif key != MEMBER and mine is not node:
            merged[key] = _union_node(mine, node)
    return merged


def _union_node(left: Fields, right: Fields) -> Fields:
    if not left:
        return right if _owned(right) else {MEMBER: _LEAF, **right}
    if not right:
        return left if MEMBER in left else {MEMBER: _LEAF, **left}
    return union(left, right)


def difference(left: Fields, right: Fields) -> Fields:
    """Return the field paths of `left` that are not in `right`; a parent path in `right` does not remove its
    children."""
    if not right:
        return left
    result: Fields = {}
    for key, node in left.items():
        other_node = right.get(key)
        if key == MEMBER:
            continue
        if other_node is None:
            result[key] = node
            continue
        remaining = _node(
            _owned(node) and not _owned(other_node),
            difference(node, other_node) if node and other_node else _inner(node),
        )
        if remaining is not None:
            result[key] = remaining
    return result


def _inner(node: Fields) -> Fields:
    """Return the children of a trie node, without its own membership."""
    if MEMBER in node:
        return {key: child for key, child in node.items() if key != MEMBER}
    return node


def intersection(left: Fields, right: Fields) -> Fields:
    """Return the field paths that are in both sets."""
    result: Fields = {}
    for key, node in left.items():
        other_node = right.get(key)
        if other_node is None or key == MEMBER:
            continue
        both = _node(
            _owned(node) and _owned(other_node), intersection(node, other_node) if node and other_node else {}
        )
        if both is not None:
            result[key] = both
    return result


def without(fields: Fields, path: tuple[str, ...]) -> Fields:
    """Return a field set without the path of field names `path` and all paths below it."""
    key = "f:" + path[0]
    node = fields.get(key)
    if node is None:
        return fields
    remaining = {name: child for name, child in fields.items() if name != key}
    if len(path) > 1:
        children = without(node, path[1:])
        if children or not node:
            remaining[key] = children
    return remaining


def paths(fields: Fields) -> Iterator[tuple[str, ...]]:
    """Yield the field paths of a set; at each level, members before their descendants."""
    for key, node in fields.items():
        if key != MEMBER and _owned(node):
            yield (key,)
    for key, node in fields.items():
        if node and key != MEMBER:
            for suffix in paths(node):
                yield (key, *suffix)


def shown(path: tuple[str, ...]) -> str:
    """Format a field path as kubectl prints it: ``.spec.containers[name="app"].image``."""
    words: list[str] = []
    for key in path:
        mark, value = key[:2], key[2:]
        if mark == "f:":
            words.append(f".{value}")
        elif mark == "k:":
            words.append("[" + ",".join(f"{name}={_quote(item)}" for name, item in json.loads(value).items()) + "]")
        elif mark == "v:":
            words.append(f"[={value}]")
        else:
            words.append(f"[{value}]")
    return "".join(words)


class ItemError(ValueError):
    """List item without a key, though its list is merged by key (listType map or set)."""


def item_key(kind: FieldType, item: Any) -> str:
    """Return the trie key of an item of an associative list. Raise ItemError if the item has no key fields."""
    if kind.is_set:
        if isinstance(item, dict | list) or item is None:
            raise ItemError("a set may hold strings, numbers and booleans only")
        return "v:" + _quote(item)
    if not isinstance(item, dict):
        raise ItemError("associative list with keys may not have non-map elements")
    keys = kind.keys
    if len(keys) == 1:
        name = keys[0]
        value = item.get(name)
        if type(value) is str and value.isprintable() and '"' not in value and "\\" not in value:
            return f'k:{{"{name}":"{value}"}}'
    chosen = {}
    for name in keys:
        if name in item:
            chosen[name] = item[name]
        elif name in kind.key_defaults:
            chosen[name] = kind.key_defaults[name]
    if not chosen:
        listed = " ".join(_quote(name) for name in keys)
        raise ItemError(
            f"associative list with keys has an element that omits all key fields [{listed}] "
            "(and doesn't have default values for any key fields)"
        )
    return "k:" + _quote(chosen)


def keyed(kind: FieldType, items: list[Any]) -> dict[str, list[Any]]:
    """Return the items of an associative list by trie key; items with equal keys are in list order."""
    items_by_key: dict[str, list[Any]] = {}
    for item in items:
        items_by_key.setdefault(item_key(kind, item), []).append(item)
    return items_by_key


def whole(kind: FieldType, value: Any) -> Fields:
    """Return all field paths of a new value, the path of the value itself included."""
    if type(value) is dict:
        if kind.atomic or not value:
            return _LEAF
        node: Fields = {MEMBER: _LEAF}
        members, element = kind.fields, kind.element or ANY
        for name, item in value.items():
            if type(item) is dict or type(item) is list:
                member = members.get(name)
                node["f:" + name] = whole(element if member is None else member.type, item)
            else:
                node["f:" + name] = _LEAF
        return node
    if type(value) is list and value and (kind.keys or kind.is_set):
        node = {MEMBER: _LEAF}
        element = kind.element or ANY
        if kind.is_set:
            for item in value:
                node[item_key(kind, item)] = _LEAF
            return node
        for item in value:
            key = item_key(kind, item)
            node[key] = _LEAF if key in node else whole(element, item)
        return node
    return _LEAF


def compare(kind: FieldType, old: Any, new: Any) -> tuple[Fields, Fields]:
    """Return the field paths that differ between two values: (added or modified, removed), without the path of the
    values.

    Both values exist. Leaves and atomic values are compared with ``!=`` by the caller. An empty list or map equals
    null.
    """
    if (type(old) is list or type(new) is list) and kind.associative:
        changed: Fields = {}
        removed: Fields = {}
        before, after = keyed(kind, old or []), keyed(kind, new or [])
        element = kind.element or ANY
        for key, items in after.items():
            old_items = before.get(key)
            if old_items is None:
                changed[key] = whole(element, items[0]) if len(items) == 1 else _LEAF
            elif old_items != items:
                _compare_items(element, key, old_items, items, changed, removed)
        for key, items in before.items():
            if key not in after:
                removed[key] = whole(element, items[0]) if len(items) == 1 else _LEAF
        return changed, removed
    return _compare_maps(kind, old or {}, new or {})


def _compare_items(
    element: FieldType, key: str, old: list[Any], new: list[Any], changed: Fields, removed: Fields
) -> None:
    """Record in `changed` and `removed` the differences of the list items under one key. Items with equal keys are
    owned as a whole."""
    if len(old) == 1 and len(new) == 1:
        step(element, key, old[0], new[0], changed, removed)
        return
    changed[key] = whole(element, new[0]) if len(new) == 1 else _LEAF
    if len(old) == 1:
        removed[key] = whole(element, old[0])
    elif len(new) == 1:
        removed[key] = _LEAF


def _compare_maps(kind: FieldType, before: dict[str, Any], after: dict[str, Any]) -> tuple[Fields, Fields]:
    changed: Fields = {}
    removed: Fields = {}
    members, element = kind.fields, kind.element or ANY
    for name, item in after.items():
        member = members.get(name)
        was = before.get(name, ABSENT)
        if was is ABSENT and member is not None:
            was = member.empty
        inner = element if member is None else member.type
        if was is ABSENT:
            changed["f:" + name] = whole(inner, item)
        elif was != item:
            step(inner, "f:" + name, was, item, changed, removed)
    for name, was in before.items():
        if name not in after:
            member = members.get(name)
            inner = element if member is None else member.type
            if member is None or member.empty is ABSENT:
                removed["f:" + name] = whole(inner, was)
            elif was != member.empty:
                step(inner, "f:" + name, was, member.empty, changed, removed)
    return changed, removed


def step(kind: FieldType, key: str, old: Any, new: Any, changed: Fields, removed: Fields) -> None:
    """Record in `changed` and `removed` the differences of two unequal values that both exist under `key`."""
    if _empty(old) and _empty(new):
        return
    deep_old = _deep(kind, old)
    deep_new = _deep(kind, new)
    if not (deep_old or deep_new) or (not deep_old and old is not None) or (not deep_new and new is not None):
        # A leaf on either side: the field as a whole has a new value.
        changed[key] = _LEAF
        if deep_old:
            removed_paths = _inner(whole(kind, old))
            if removed_paths:
                removed[key] = removed_paths
        return
    inner_changed, inner_removed = compare(kind, old, new)
    if inner_changed:
        changed[key] = inner_changed
    if inner_removed:
        removed[key] = inner_removed


def _empty(value: Any) -> bool:
    return value is None or ((type(value) is dict or type(value) is list) and not value)


def _deep(kind: FieldType, value: Any) -> bool:
    """Return whether managers own parts of this value separately, not only the value as a whole."""
    if type(value) is dict:
        return not kind.atomic
    return type(value) is list and kind.associative


def owned_by_apply(kind: FieldType, value: Any) -> Fields:
    """Return the field paths that an applied configuration owns: its leaves, list items, and entries of open
    maps."""
    node: Fields = {}
    if type(value) is dict:
        members, element = kind.fields, kind.element or ANY
        for name, item in value.items():
            member = members.get(name)
            inner = element if member is None else member.type
            if not _deep(inner, item):
                node["f:" + name] = _LEAF
                continue
            below = owned_by_apply(inner, item)
            own = member is None or (type(item) is dict and not item)
            made = _node(own, below)
            if made is not None:
                node["f:" + name] = made
    elif type(value) is list:
        element = kind.element or ANY
        for key, items in keyed(kind, value).items():
            below = owned_by_apply(element, items[0]) if len(items) == 1 and _deep(element, items[0]) else {}
            node[key] = {MEMBER: _LEAF, **below} if below else _LEAF
    return node


def with_named(kind: FieldType, fields: Fields) -> Fields:
    """Return a field set with each named field above a member added as a member."""
    result: Fields = {}
    for key, node in fields.items():
        if not node or key == MEMBER:
            result[key] = node
            continue
        if key.startswith("f:"):
            member = kind.fields.get(key[2:])
            below = with_named(member.type if member is not None else (kind.element or ANY), node)
            if member is not None and MEMBER not in below:
                below = {MEMBER: _LEAF, **below}
        else:
            below = with_named(kind.element or ANY, node)
        result[key] = below
    return result


def remove(kind: FieldType, value: Any, fields: Fields) -> Any:
    """Return a value without the fields of a set. A map can become empty; an empty list becomes None."""
    if type(value) is dict and not kind.atomic:
        remaining: dict[str, Any] = {}
        for name, item in value.items():
            node = fields.get("f:" + name)
            if node is None:
                remaining[name] = item
            elif not _owned(node):
                rest = remove(kind.child(name), item, node)
                if rest is not None:
                    remaining[name] = rest
        return remaining
    if type(value) is list and kind.associative:
        items = []
        for item in value:
            node = fields.get(item_key(kind, item))
            if node is None:
                items.append(item)
            elif not _owned(node):
                items.append(remove(kind.element or ANY, item, node))
        return items or None
    return value
