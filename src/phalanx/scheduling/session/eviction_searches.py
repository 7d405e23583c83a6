"""Observer of searches for victims. This module does not read a clock."""

from __future__ import annotations

import enum
from typing import Protocol


class SearchOutcome(enum.StrEnum):
    """Outcome of a search for victims: victims are evicted; resources become free without evictions; no victims
    help."""

    EVICTS = "evicts"
    WAITS = "waits"
    NOTHING = "nothing"


class SearchObserver(Protocol):
    """Observer of the begin and the end of searches for victims. A search that raises ends when the next one
    begins."""

    def begin(self) -> None: ...
    def end(self, outcome: SearchOutcome) -> None: ...
    def discard(self) -> None:
        """Discard the result of the last search for victims: they would lose more work than the preemptor gains."""
        ...


class Unobserved:
    """Observer of searches for victims that ignores all calls."""

    def begin(self) -> None:
        pass

    def end(self, outcome: SearchOutcome) -> None:
        pass

    def discard(self) -> None:
        pass
