"""Candidate domains for gangs whose members have required affinity to each other, before the first is placed.

The first member can be placed anywhere, and its best domain can be too small for the gang.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from phalanx.cluster.affinity.selector_sets import required_affinity_whom
from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.scheduling.session.session import Session

# Maximum number of tried domains, the largest room first.
_TRIES = 8


def affinity_candidates(session: Session, portions: Iterable[tuple[ClassRecord, int]]) -> Iterator[BoolArray]:
    """Yield bool[N] per domain that could hold all copies of the classes that must share a domain."""
    wanted = dict(portions)
    nodes = session.state.nodes
    for key, followers in _keys(session, wanted).items():
        ids = nodes.affinity.domains(key).ids
        inside = ids >= 0
        room = np.zeros(nodes.affinity.domains(key).size, dtype=np.int64)
        enough = np.ones(len(room), dtype=np.bool_)
        for pod_class in followers:
            potential = session.placer.potential(pod_class)
            here = np.bincount(ids[inside], weights=potential[inside], minlength=len(room)).astype(np.int64)
            enough &= here >= wanted[pod_class]
            room += here
        for place in np.argsort(-room, kind="stable")[:_TRIES].tolist():
            if enough[place]:
                yield ids == place


def _keys(session: Session, wanted: dict[ClassRecord, int]) -> dict[str, list[ClassRecord]]:
    """Return the classes by topology label that need members of these classes, and no placed pods, in their
    domain.
    """
    classes_by_key: dict[str, list[ClassRecord]] = {}
    for pod_class in wanted:
        profile = pod_class.affinity
        if not profile.peers.affinity:
            continue
        match_set = profile.stated_sets[required_affinity_whom(profile.peers)]
        near = pod_class.affinity_state(session.state.nodes.affinity).affinity
        assert near is not None
        if any(match_set in other.affinity.matching_sets for other in wanted) and not any(
            counter.counts.any() for counter in near.counters
        ):
            for counter in near.counters:
                classes_by_key.setdefault(counter.region.domains.key, []).append(pod_class)
    return classes_by_key
