"""Who is placed first because others have to be near."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.peers import company_wanted

T = TypeVar("T")


def led(followers: Sequence[T], class_of: Callable[[T], ClassRecord]) -> list[T]:
    """In their order, but each after those who may be the ones that it has to be near to."""
    if not any(class_of(each).company.peers.affinity for each in followers):
        return list(followers)
    left, found = list(followers), []
    while left:
        free = (
            each
            for each in left
            if not any(follows(class_of(each), class_of(other)) for other in left if other is not each)
        )
        # Where each follows another, the first begins.
        first = next(free, left[0])
        left.remove(first)
        found.append(first)
    return found


def follows(cls: ClassRecord, other: ClassRecord) -> bool:
    """Whether pods of the class have to be near to pods of the other; not where they would do themselves."""
    company = cls.company
    if not company.peers.affinity:
        return False
    wanted = company.stated[company_wanted(company.peers)]
    return wanted in other.company.kin and wanted not in company.kin
