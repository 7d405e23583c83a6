"""What is computed once and holds over cycles."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Memo:
    """What was computed from demand, until demand changes."""

    def __init__(self) -> None:
        self._version = -1
        self._found: dict[Hashable, Any] = {}

    def get_or_compute(self, key: Hashable, version: int, compute: Callable[[], T]) -> T:
        if version != self._version:
            self._found.clear()
            self._version = version
        if key not in self._found:
            self._found[key] = compute()
        found: T = self._found[key]
        return found
