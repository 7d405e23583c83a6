"""Version of a resource from which the next watch continues."""

from __future__ import annotations

from phalanx.kube.wire import version_number

__all__ = ["WatchPosition"]


class WatchPosition:
    """Start version of the next watch; None if a new list is needed."""

    __slots__ = ("_number", "version")

    def __init__(self) -> None:
        self.version: str | None = None
        self._number = -1

    def begin(self, version: str | None) -> None:
        self.version, self._number = version, version_number(version or "")

    def advance(self, version: str, number: int) -> None:
        """Continue from `version`, if it is newer; `number` is the version as a number, -1 if it is not numeric."""
        if version and (number < 0 or number > self._number):
            self.version, self._number = version, number
