"""Who wants to know how searches for victims go: none reads a clock here."""

from __future__ import annotations

import enum
from typing import Protocol


class SearchOutcome(enum.StrEnum):
    """Somebody goes; nobody has to, as room comes free anyway; or no choice of victims helps."""

    EVICTS = "evicts"
    WAITS = "waits"
    NOTHING = "nothing"


class SearchObserver(Protocol):
    """Told when a search begins and how it ends. One that raises ends with the beginning of the next."""

    def begin(self) -> None: ...
    def end(self, outcome: SearchOutcome) -> None: ...
    def discard(self) -> None:
        """What the last search has found is not done, as more would be lost than gained."""
        ...


class Unobserved:
    """Nobody wants to know."""

    def begin(self) -> None:
        pass

    def end(self, outcome: SearchOutcome) -> None:
        pass

    def discard(self) -> None:
        pass
