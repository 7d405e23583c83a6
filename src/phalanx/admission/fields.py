"""Fields of JSON that others wrote, and the JSON patch that fills in what is absent."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]
Path = tuple[str | int, ...]


def mapping(value: object) -> dict[str, Any]:
    """The value where it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def sequence(value: object) -> list[Any]:
    """The value where it is a JSON array, else an empty one."""
    return value if isinstance(value, list | tuple) else []  # type: ignore[return-value]


def text(value: object) -> str:
    """The value where it is a string, else the empty one."""
    return value if isinstance(value, str) else ""


def name_of(document: Json) -> str:
    return text(mapping(document.get("metadata")).get("name"))


def annotations_of(document: Json) -> dict[str, Any]:
    return mapping(mapping(document.get("metadata")).get("annotations"))


class PatchBuilder:
    """Fills in what is absent in a copy of an object. `patch` is the JSON patch (RFC 6902) that does the same.

    Nothing but what is asked for is touched, so fields that we do not know stay, and a second run patches nothing.
    """

    def __init__(self, document: Json) -> None:
        self.document: dict[str, Any] = copy.deepcopy(dict(document))
        self.patch: list[dict[str, Any]] = []

    def add(self, path: Path, value: Any) -> None:
        """Sets a field; objects on the way to it are made. Where something else is in the way it stays, for whoever
        judges the object to name it."""
        place: Any = self.document
        for depth, key in enumerate(path[:-1], start=1):
            if isinstance(place, dict) and place.get(str(key)) is None:
                self._put(place, path[:depth], {})
            if not isinstance(place, dict | list):
                return
            place = place[key]  # type: ignore[index]
        if isinstance(place, dict | list):
            self._put(place, path, value)

    def _put(self, place: Any, path: Path, value: Any) -> None:
        if path[-1] == "-":
            place.append(value)
        else:
            place[path[-1]] = value
        pointer = "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in path)
        self.patch.append({"op": "add", "path": pointer, "value": copy.deepcopy(value)})
