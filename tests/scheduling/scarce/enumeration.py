"""Complete enumeration of the placements of a few members."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

M = TypeVar("M")
S = TypeVar("S", bound=Hashable)


def can_place_all(members: Sequence[M], state: S, options: Callable[[M, S], Iterable[S]]) -> bool:
    """Return whether all members can be placed, in any order and in any way.

    `options` yields the states after the placement of one member.
    """
    if not members:
        return True
    return any(
        can_place_all([*members[:place], *members[place + 1 :]], after, options)
        for place, member in enumerate(members)
        for after in dict.fromkeys(options(member, state))
    )
