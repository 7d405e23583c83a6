"""Things that are reachable from some nodes only, found by the labels of a node and never by trying them all."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from phalanx.model.matching import Labels, Terms, reaches

Bucket = tuple[str, str]


class Located(Protocol):
    """Something with a `name` of its own, a `rank` by which it is looked at among its like (the smallest first),
    and an OR of terms that a node must meet (None: any node)."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def affinity(self) -> Terms: ...


T = TypeVar("T", bound=Located)


class Site(Generic[T]):
    """All things that are reached from the same nodes, in the order of rank and name."""

    def __init__(self, affinity: Terms) -> None:
        self.affinity = affinity
        self.order: list[tuple[int, str]] = []
        self.things: dict[str, T] = {}

    def from_rank(self, least: int) -> Iterator[T]:
        """Those of this rank and above."""
        for place in range(bisect_left(self.order, (least, "")), len(self.order)):
            yield self.things[self.order[place][1]]

    def add(self, thing: T) -> None:
        self.things[thing.name] = thing
        insort(self.order, (thing.rank, thing.name))

    def remove(self, thing: T) -> None:
        del self.things[thing.name]
        del self.order[bisect_left(self.order, (thing.rank, thing.name))]


class Places(Generic[T]):
    """Located things by the label that says most about where they are.

    Most are on one node or in one zone: a term with `key In (values)`. Such a site lies in a bucket for each of the
    values; the rest is tried on every node.
    """

    def __init__(self) -> None:
        self._sites: dict[Terms, Site[T]] = {}
        self._buckets: dict[Bucket, dict[Terms, Site[T]]] = {}
        self._keys: Counter[str] = Counter()
        self._anywhere: dict[Terms, Site[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._sites)

    def add(self, thing: T) -> Site[T]:
        """The site that it belongs to now."""
        terms = thing.affinity
        site = self._sites.get(terms)
        if site is None:
            site = self._sites[terms] = Site(terms)
            buckets = buckets_of(terms)
            if buckets is None:
                self._anywhere[terms] = site
            for bucket in buckets or ():
                if bucket not in self._buckets:
                    self._buckets[bucket] = {}
                    self._keys[bucket[0]] += 1
                self._buckets[bucket][terms] = site
        site.add(thing)
        return site

    def remove(self, thing: T) -> Site[T]:
        """The site that it belonged to."""
        terms = thing.affinity
        site = self._sites[terms]
        site.remove(thing)
        if not site.things:
            del self._sites[terms]
            self._anywhere.pop(terms, None)
            for bucket in buckets_of(terms) or ():
                del self._buckets[bucket][terms]
                if not self._buckets[bucket]:
                    del self._buckets[bucket]
                    self._keys[bucket[0]] -= 1
            self._keys = +self._keys
        return site

    def at(self, labels: Labels) -> list[Site[T]]:
        """The sites that a node with these labels reaches."""
        found = [site for site in self._anywhere.values() if reaches(site.affinity, labels)]
        seen: set[Terms] = set()
        for key in self._keys:
            if key in labels:
                for terms, site in self._buckets.get((key, labels[key]), {}).items():
                    if terms not in seen and reaches(terms, labels):
                        seen.add(terms)
                        found.append(site)
        return found


def buckets_of(terms: Terms) -> tuple[Bucket, ...] | None:
    """(label key, value) of which a node must have one; None where no label tells it."""
    if terms is None:
        return None
    found: dict[Bucket, None] = {}
    for term in terms:
        first = next((entry for entry in term.expressions if entry.operator == "In"), None)
        if first is None:
            return None
        found.update(dict.fromkeys((first.key, value) for value in first.values))
    return tuple(found)
