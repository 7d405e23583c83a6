"""Index of volumes that are only reachable from some nodes, by node label, without trying all volumes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from phalanx.model.matching import Labels, Terms, reaches

Bucket = tuple[str, str]


class Located(Protocol):
    """A volume or capacity with a `name`, a `rank` for the order in which it is tried (smallest first), and
    alternative terms that a node must meet (None: any node)."""

    @property
    def name(self) -> str: ...

    @property
    def rank(self) -> int: ...

    @property
    def affinity(self) -> Terms: ...


T = TypeVar("T", bound=Located)


class Site(Generic[T]):
    """All volumes that are reachable from the same nodes, in the order of rank and name."""

    def __init__(self, affinity: Terms) -> None:
        self.affinity = affinity
        self.order: list[tuple[int, str]] = []
        self.things: dict[str, T] = {}

    def from_rank(self, minimum: int) -> Iterator[T]:
        """Yield the volumes of this rank and above."""
        for position in range(bisect_left(self.order, (minimum, "")), len(self.order)):
            yield self.things[self.order[position][1]]

    def add(self, thing: T) -> None:
        self.things[thing.name] = thing
        insort(self.order, (thing.rank, thing.name))

    def remove(self, thing: T) -> None:
        del self.things[thing.name]
        del self.order[bisect_left(self.order, (thing.rank, thing.name))]


class Places(Generic[T]):
    """Volumes by the node label that restricts their nodes the most.

    Most are on one node or in one zone: a term with `key In (values)`. Such a site is in one bucket per value; all
    other sites are checked for every node.
    """

    def __init__(self) -> None:
        self._sites: dict[Terms, Site[T]] = {}
        self._buckets: dict[Bucket, dict[Terms, Site[T]]] = {}
        self._keys: Counter[str] = Counter()
        self._anywhere: dict[Terms, Site[T]] = {}

    def __bool__(self) -> bool:
        return bool(self._sites)

    def add(self, thing: T) -> Site[T]:
        """Add a volume; return the site (the set of volumes with the same nodes) that it joins."""
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
        """Remove a volume; return its former site."""
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
        """Return the sites whose volumes are reachable from a node with these labels."""
        sites = [site for site in self._anywhere.values() if reaches(site.affinity, labels)]
        seen: set[Terms] = set()
        for key in self._keys:
            if key in labels:
                for terms, site in self._buckets.get((key, labels[key]), {}).items():
                    if terms not in seen and reaches(terms, labels):
                        seen.add(terms)
                        sites.append(site)
        return sites


def buckets_of(terms: Terms) -> tuple[Bucket, ...] | None:
    """Return the (label key, value) pairs of which a node must have one; None if no label determines it."""
    if terms is None:
        return None
    buckets: dict[Bucket, None] = {}
    for term in terms:
        first = next((entry for entry in term.expressions if entry.operator == "In"), None)
        if first is None:
            return None
        buckets.update(dict.fromkeys((first.key, value) for value in first.values))
    return tuple(buckets)
