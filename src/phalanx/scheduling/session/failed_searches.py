"""Cache of searches without a result, so that they are repeated only after a change of what they have read."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_MOST = 10_000

R = TypeVar("R")


class FailedSearches(Generic[R]):
    """Results of searches that found nothing, by question; the scheduler preserves them across cycles.

    `version` identifies everything that a search reads besides its question and that can let it find more. Results
    of other versions are dropped.
    """

    def __init__(self) -> None:
        self._version: Hashable = None
        self._results: dict[Hashable, R] = {}

    def __len__(self) -> int:
        return len(self._results)

    def result(self, question: Hashable, version: Hashable) -> R | None:
        """Return the result of the failed search for a question; None if there was none in this version."""
        return self._results.get(question) if version == self._version else None

    def add(self, question: Hashable, version: Hashable, result: R) -> None:
        """Record a search without a result."""
        if version != self._version or len(self._results) >= _MOST:
            self._results.clear()
            self._version = version
        self._results[question] = result

    def clear(self) -> None:
        """Forget all searches: filters or rules have changed."""
        self._results.clear()
