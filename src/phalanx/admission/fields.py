"""Access to fields of JSON from other programs, and the JSON patch that adds defaults."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
Path = tuple[str | int, ...]


def mapping(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """Return the value if it is a JSON array, else an empty array."""
    return value if isinstance(value, list | tuple) else []  # type: ignore[return-value]


def text(value: object) -> str:
    """Return the value if it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def name_of(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("name"))


def annotations_of(document: Json) -> dict[str, Any]:
    return mapping(mapping(document.get("metadata")).get("annotations"))


class PatchBuilder:
    """Copy of an object with defaults added. `patch` is the JSON patch (RFC 6902) from the object to the copy.

    Other fields do not change, even unknown ones, and a second run produces no patch.
    """

    def __init__(self, document: Json) -> None:
        self.document: dict[str, Any] = copy.deepcopy(dict(document))
        self.patch: list[dict[str, Any]] = []

    def add(self, path: Path, value: Any) -> None:
        """Set a default in a field, and create the objects above the field. If a value of another type is in the
        path, change nothing: the validation reports that value."""
        parent: Any = self.document
        for depth, key in enumerate(path[:-1], start=1):
            if isinstance(parent, dict) and parent.get(str(key)) is None:
                self._put(parent, path[:depth], {})
            if not isinstance(parent, dict | list):
                return
            parent = parent[key]  # type: ignore[index]
        if isinstance(parent, dict | list):
            self._put(parent, path, value)

    def _put(self, place: Any, path: Path, value: Any) -> None:
        if path[-1] == "-":
            place.append(value)
        else:
            place[path[-1]] = value
        pointer = "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)
        self.patch.append({"op": "add", "path": pointer, "value": copy.deepcopy(value)})
