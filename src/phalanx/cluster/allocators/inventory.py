"""What the pods of each row hold, and where a thing is held."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class Inventory(Generic[K, T]):
    """Things by row, with how many pods hold each there; rows by the `key` under which things are looked for."""

    def __init__(self, key: Callable[[T], K]) -> None:
        self._key = key
        self._held: dict[int, Counter[T]] = {}
        self._rows: dict[K, Counter[int]] = {}

    def at(self, row: int) -> Mapping[T, int]:
        """thing -> how many pods of the row hold it."""
        return self._held.get(row, Counter())

    def rows(self, key: K) -> Collection[int]:
        """Where something with this key is held."""
        return self._rows.get(key, Counter()).keys()

    def count(self, row: int, things: Iterable[T], sign: int) -> None:
        """Adds (sign 1) or takes back (sign -1) what one pod holds."""
        for thing in things:
            _count(self._held, row, thing, sign)
            _count(self._rows, self._key(thing), row, sign)


def _count(counters: dict[K, Counter[T]], key: K, thing: T, sign: int) -> None:
    counter = counters.setdefault(key, Counter())
    counter[thing] += sign
    if counter[thing] <= 0:
        del counter[thing]
    if not counter:
        del counters[key]
