"""Arguments of plugins and actions, parsed from user input; errors name the key and the value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from phalanx.model.text.decoding import quoted
from phalanx.model.text.duration import parse_duration
from phalanx.scheduling.framework.errors import PolicyError

T = TypeVar("T")

_TRUE = frozenset({"true", "1", "t", "yes"})
_FALSE = frozenset({"false", "0", "f", "no"})


class Arguments:
    """The `arguments:` of one plugin or action. Numbers and booleans can be bare or quoted in the YAML.

    `hierarchical` is the plugin's switch enableHierarchy.
    """

    def __init__(self, owner: str, values: Mapping[str, object], *, hierarchical: bool = False) -> None:
        self.owner = owner
        self.hierarchical = hierarchical
        self._values = dict(values)

    def keys(self) -> list[str]:
        return sorted(self._values)

    def only(self, known: Iterable[str]) -> None:
        """Raise PolicyError for argument keys that are not in `known`."""
        for key in self.keys():
            if key not in known:
                raise PolicyError(f"{self.owner}: unknown key {quoted(key)}; known are {', '.join(known)}")

    def text(self, key: str, default: str = "") -> str:
        return str(self._values[key]) if key in self._values else default

    def integer(self, key: str, default: int, least: int | None = None) -> int:
        if key not in self._values:
            return default
        try:
            value = int(str(self._values[key]).strip())
        except ValueError:
            raise self._error(key, "a whole number") from None
        if least is not None and value < least:
            raise self._error(key, f"a whole number of at least {least}")
        return value

    def number(self, key: str, default: float, least: float | None = None) -> float:
        if key not in self._values:
            return default
        try:
            value = float(str(self._values[key]).strip())
        except ValueError:
            raise self._error(key, "a number") from None
        if value != value or (least is not None and value < least):
            raise self._error(key, f"a number of at least {least}" if least is not None else "a number")
        return value

    def boolean(self, key: str, default: bool) -> bool:
        if key not in self._values:
            return default
        text = str(self._values[key]).strip().lower()
        if text in _TRUE:
            return True
        if text in _FALSE:
            return False
        raise self._error(key, "true or false")

    def duration(self, key: str) -> int | None:
        """Return the Go duration above 0 of an argument in seconds; None if the key is missing."""
        if key not in self._values:
            return None
        try:
            seconds = parse_duration(str(self._values[key]).strip())
        except ValueError:
            seconds = 0
        if seconds <= 0:
            raise self._error(key, "a duration above 0 such as 30m or 4h")
        return seconds

    def mapping(self, key: str) -> Mapping[str, object]:
        value = self._values.get(key) or {}
        if not isinstance(value, Mapping):
            raise self._error(key, "a mapping")
        return {str(name): entry for name, entry in value.items()}

    def sequence(self, key: str) -> Sequence[object]:
        value = self._values.get(key)
        if value is None:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise self._error(key, "a list")
        return value

    def parsed(self, key: str, parse: Callable[[str], T], wanted: str) -> T:
        """Return `parse(text)` of an existing argument; a ValueError of `parse` becomes a PolicyError."""
        try:
            return parse(str(self._values[key]).strip())
        except ValueError:
            raise self._error(key, wanted) from None

    def _error(self, key: str, wanted: str) -> PolicyError:
        return PolicyError(f"{self.owner}: argument {key}: {quoted(self._values[key])} is not {wanted}")
