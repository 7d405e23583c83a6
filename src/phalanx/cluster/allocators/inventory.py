"""Inventory of the things, such as ports or disks, that the pods of each row hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T", bound=Hashable)


class Inventory(Generic[K, T]):
    """Things by row, with the number of holding pods; rows by the `key` of a thing."""

    def __init__(self, key: Callable[[T], K]) -> None:
        self._key = key
        self._held: dict[int, Counter[T]] = {}
        self._rows: dict[K, Counter[int]] = {}

    def at(self, row: int) -> Mapping[T, int]:
        """Return the number of holding pods of the row, by thing."""
        return self._held.get(row, Counter())

    def rows(self, key: K) -> Collection[int]:
        """Return the rows on which a thing with this key is held."""
        return self._rows.get(key, Counter()).keys()

    def count(self, row: int, things: Iterable[T], sign: int) -> None:
        """Add (sign 1) or remove (sign -1) the things that one pod holds on a row."""
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
