"""Order of pods with required affinity: a pod is placed after the pods that it must be near."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from phalanx.cluster.affinity.selector_sets import required_affinity_whom
from phalanx.cluster.classes import ClassRecord

T = TypeVar("T")


def leaders_first(followers: Sequence[T], classes_of: Callable[[T], Collection[ClassRecord]]) -> list[T]:
    """Return `followers` in their order, but each after the ones that it may have required affinity to."""
    if not any(pod_class.affinity.peers.affinity for follower in followers for pod_class in classes_of(follower)):
        return list(followers)

    def follows(one: T, other: T) -> bool:
        return any(
            follows_affinity(pod_class, leader) for pod_class in classes_of(one) for leader in classes_of(other)
        )

    remaining, ordered = list(followers), []
    while remaining:
        ready = (
            follower
            for follower in remaining
            if not any(follows(follower, other) for other in remaining if other is not follower)
        )
        # In a cycle of affinities the first one is placed first.
        first = next(ready, remaining[0])
        remaining.remove(first)
        ordered.append(first)
    return ordered


def follows_affinity(pod_class: ClassRecord, other: ClassRecord) -> bool:
    """Return whether pods of the class have required affinity to pods of `other`, unless they match it
    themselves.
    """
    profile = pod_class.affinity
    if not profile.peers.affinity:
        return False
    wanted = profile.stated_sets[required_affinity_whom(profile.peers)]
    return wanted in other.affinity.matching_sets and wanted not in profile.matching_sets
