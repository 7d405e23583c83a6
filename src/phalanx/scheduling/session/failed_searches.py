"""Cache of searches for a placement without a result, so that they are repeated only after room was freed."""

from __future__ import annotations

from collections.abc import Hashable

_MOST = 10_000


class FailedSearches:
    """Number of tries of each search without a result; the scheduler preserves them across cycles.

    Within one version of the cluster's capacity room only shrinks, so a repeated search would not find more.
    """

    def __init__(self) -> None:
        self._version: Hashable = None
        self._tries: dict[Hashable, int] = {}

    def tries(self, demand: Hashable, version: Hashable) -> int | None:
        """Return the number of tries of a failed search for the demand (0 if it proved that none exists); None if
        there was no search since the last freed room.
        """
        return self._tries.get(demand) if version == self._version else None

    def add(self, demand: Hashable, version: Hashable, tries: int) -> None:
        """Record a search without a result."""
        if version != self._version or len(self._tries) >= _MOST:
            self._tries.clear()
            self._version = version
        self._tries[demand] = tries
