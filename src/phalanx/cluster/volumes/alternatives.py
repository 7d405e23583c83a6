"""Different choices of volumes for the claims of one pod."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import islice

# A volume that a claim can get, and its kind: volumes of one kind are interchangeable. "" is a volume to provision.
Candidate = tuple[str, Hashable]


def different_choices(candidates: Sequence[Sequence[Candidate]], limit: int) -> tuple[list[tuple[str, ...]], bool]:
    """Return a volume for each claim in different ways, at most `limit`, and whether these are all ways.

    `candidates` are those of each claim, preferred ones first. No volume serves two claims, and choices of equal
    kinds are listed once.
    """
    found = list(islice(_choices(candidates, (), set()), limit + 1))
    return found[:limit], len(found) <= limit


def _choices(
    candidates: Sequence[Sequence[Candidate]], chosen: tuple[Candidate, ...], seen: set[Hashable]
) -> Iterator[tuple[str, ...]]:
    if len(chosen) == len(candidates):
        kinds = frozenset(Counter(kind for _, kind in chosen).items())
        if kinds not in seen:
            seen.add(kinds)
            yield tuple(name for name, _ in chosen)
        return
    used, tried = {name for name, _ in chosen if name}, set[Hashable]()
    for name, kind in candidates[len(chosen)]:
        if name not in used and kind not in tried:
            tried.add(kind)
            yield from _choices(candidates, (*chosen, (name, kind)), seen)
