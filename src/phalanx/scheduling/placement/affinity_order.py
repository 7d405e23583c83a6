"""Who is placed first because others have to be near."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from phalanx.cluster.affinity.selector_sets import required_affinity_whom
from phalanx.cluster.classes import ClassRecord

T = TypeVar("T")


def leaders_first(followers: Sequence[T], classes_of: Callable[[T], Collection[ClassRecord]]) -> list[T]:
    """In their order, but each after those who may be the ones that it has to be near to."""
    if not any(pod_class.affinity.peers.affinity for each in followers for pod_class in classes_of(each)):
        return list(followers)

    def follow(one: T, other: T) -> bool:
        return any(
            follows_affinity(pod_class, leader) for pod_class in classes_of(one) for leader in classes_of(other)
        )

    left, found = list(followers), []
    while left:
        free = (each for each in left if not any(follow(each, other) for other in left if other is not each))
        # Where each follows another, the first begins.
        first = next(free, left[0])
        left.remove(first)
        found.append(first)
    return found


def follows_affinity(pod_class: ClassRecord, other: ClassRecord) -> bool:
    """Whether pods of the class have to be near to pods of the other; not where they would do themselves."""
    profile = pod_class.affinity
    if not profile.peers.affinity:
        return False
    wanted = profile.stated_sets[required_affinity_whom(profile.peers)]
    return wanted in other.affinity.matching_sets and wanted not in profile.matching_sets
