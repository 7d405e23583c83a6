"""JSON Patch (RFC 6902) and JSON merge patch (RFC 7386) over decoded documents.

This module is as lenient as kube-apiserver where the RFC is stricter, because clients rely on it: ``replace`` of
a missing object key sets it, ``test`` of a missing key against null succeeds, array indexes can be negative.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from phalanx.model.text.decoding import parse_whole
from phalanx_local.objects import encode
from phalanx_local.patches.errors import PatchError

MAX_OPERATIONS: Final = 10_000
#: Maximum size of all copies of one patch together, in bytes of JSON.
MAX_COPIED: Final = 3 * 1024 * 1024


def clone(value: Any) -> Any:
    """Return a deep copy of decoded JSON."""
    if isinstance(value, dict):
        return {key: clone(item) if isinstance(item, dict | list) else item for key, item in value.items()}
    if isinstance(value, list):
        return [clone(item) if isinstance(item, dict | list) else item for item in value]
    return value


def same(left: Any, right: Any) -> bool:
    """Return whether two decoded JSON values are equal; unlike in Python, true does not equal 1."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(item, right[key]) for key, item in left.items())
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def json_patch(doc: dict[str, Any], ops: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the document after the operations of a JSON Patch; the input is not changed.

    Raises PatchError with code 400 for malformed operations, 413 for too many and 422 for operations that do not
    fit the document (for example a failed ``test``). The operations apply all or not at all.
    """
    if not isinstance(ops, list):
        raise PatchError("error decoding patch: json: a JSON patch must be a list of operations")
    if len(ops) > MAX_OPERATIONS:
        raise PatchError(f"The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {len(ops)}", 413)
    root: list[Any] = [clone(doc)]
    copied = 0
    for op in ops:
        if not isinstance(op, dict):
            raise PatchError("error decoding patch: json: an operation must be an object")
        name = op.get("op")
        action = _ACTIONS.get(name) if isinstance(name, str) else None
        if action is None:
            raise PatchError(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}", 422)
        path = op.get("path")
        if not isinstance(path, str):
            raise PatchError(f"{name} operation failed to decode path: missing value", 422)
        if name == "copy":
            # Copies of copies grow exponentially: a few operations can create a huge document.
            copied += _weight(root, _source(op, "copy"))
            if copied > MAX_COPIED:
                raise PatchError(
                    "Unable to complete the copy, the accumulated size increase of copy is "
                    f"{copied}, exceeding the limit {MAX_COPIED}",
                    422,
                )
        action(root, op, path)
    if not isinstance(root[0], dict):
        raise PatchError("Invalid JSON Patch: the result is not an object", 422)
    return root[0]


def merge_patch(doc: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Return the document after a JSON merge patch: objects merge by key, null deletes, other values replace."""
    if not isinstance(patch, dict):
        raise PatchError("Invalid JSON Patch")
    merged = dict(doc)
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            current = merged.get(key)
            merged[key] = merge_patch(current if isinstance(current, dict) else {}, value)
        else:
            merged[key] = value
    return merged


def _find(root: list[Any], path: str) -> tuple[Any, str] | None:
    """Return the object or list that a JSON pointer's last word selects from, and this word; None if the object or
    list is missing."""
    words = path.split("/")
    if len(words) < 2:
        return None
    # An earlier operation can replace the whole document with a scalar.
    node = root[0]
    for word in words[1:-1]:
        if not isinstance(node, dict | list):
            return None
        node = _get(node, _unescape(word))
    return (node, _unescape(words[-1])) if isinstance(node, dict | list) else None


def _unescape(word: str) -> str:
    return word.replace("~1", "/").replace("~0", "~")


def _index(container: list[Any], key: str, size: int) -> int:
    index = parse_whole(key)
    if index is None:
        raise PatchError(f"value was not a proper array index: '{key}'", 422)
    if not -size <= index < size:
        raise PatchError(f"Unable to access invalid index: {index}: invalid index referenced", 422)
    return index + size if index < 0 else index


def _get(container: Any, key: str) -> Any:
    if isinstance(container, dict):
        return container.get(key)
    try:
        return container[_index(container, key, len(container))]
    except PatchError:
        return None


def _missing(text: str) -> PatchError:
    return PatchError(f"{text}: missing value", 422)


def _add(root: list[Any], path: str, value: Any, verb: str) -> None:
    if path == "":
        root[0] = value
        return
    place = _find(root, path)
    if place is None:
        if verb == "add":
            raise _missing(f'add operation does not apply: doc is missing path: "{path}"')
        raise _missing(f"{verb} operation does not apply: doc is missing destination path: {path}")
    container, key = place
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        try:
            container.insert(_index(container, key, len(container) + 1), value)
        except PatchError as error:
            raise PatchError(f"error in {verb} for path: '{path}': {error}", 422) from None


def _remove(root: list[Any], path: str, verb: str) -> Any:
    place = _find(root, path)
    if place is None:
        if verb == "remove":
            raise _missing(f'remove operation does not apply: doc is missing path: "{path}"')
        raise _missing(f"move operation does not apply: doc is missing from path: {path}")
    container, key = place
    if isinstance(container, dict):
        if key not in container:
            raise _missing(f"error in {verb} for path: '{path}': Unable to remove nonexistent key: {key}")
        return container.pop(key)
    try:
        return container.pop(_index(container, key, len(container)))
    except PatchError as error:
        raise PatchError(f"error in {verb} for path: '{path}': {error}", 422) from None


def _do_add(root: list[Any], op: dict[str, Any], path: str) -> None:
    _add(root, path, clone(op.get("value")), "add")


def _do_remove(root: list[Any], op: dict[str, Any], path: str) -> None:
    _remove(root, path, "remove")


def _do_replace(root: list[Any], op: dict[str, Any], path: str) -> None:
    value = clone(op.get("value"))
    if path == "":
        root[0] = value
        return
    place = _find(root, path)
    if place is None:
        raise _missing(f"replace operation does not apply: doc is missing path: {path}")
    container, key = place
    if isinstance(container, dict):
        container[key] = value
        return
    try:
        index = _index(container, key, len(container))
    except PatchError:
        raise _missing(f"replace operation does not apply: doc is missing key: {path}") from None
    container[index] = value


def _source(op: dict[str, Any], verb: str) -> str:
    source = op.get("from")
    if not isinstance(source, str):
        raise _missing(f"{verb} operation failed to decode from: operation, missing from field")
    return source


def _weight(root: list[Any], path: str) -> int:
    """Return the size in bytes of the JSON value at a JSON pointer `path`; 0 if the path is missing."""
    place = _find(root, path)
    return len(encode(_get(*place))) if place is not None else 0


def _do_move(root: list[Any], op: dict[str, Any], path: str) -> None:
    source = _source(op, "move")
    if path.startswith(source + "/"):
        raise PatchError(f"error in move for path: '{path}': a value cannot move into itself", 422)
    _add(root, path, _remove(root, source, "move"), "move")


def _do_copy(root: list[Any], op: dict[str, Any], path: str) -> None:
    source = _source(op, "copy")
    place = _find(root, source)
    if place is None:
        raise _missing(f"copy operation does not apply: doc is missing from path: {source}")
    _add(root, path, clone(_get(*place)), "copy")


def _do_test(root: list[Any], op: dict[str, Any], path: str) -> None:
    if path == "":
        current = root[0]
    else:
        place = _find(root, path)
        if place is None:
            raise _missing(f"test operation does not apply: is missing path: {path}")
        current = _get(*place)
    if not same(current, op.get("value")):
        raise PatchError(f"testing value {path} failed: test failed", 422)


_ACTIONS: Final[dict[str, Callable[[list[Any], dict[str, Any], str], None]]] = {
    "add": _do_add,
    "remove": _do_remove,
    "replace": _do_replace,
    "move": _do_move,
    "copy": _do_copy,
    "test": _do_test,
}
