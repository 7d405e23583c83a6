"""Volcano's tdm plugin: permission to use nodes that are lent for a time, and eviction limits of a gang.

A pod can use such nodes if its annotation `volcano.sh/revocable-zone` is "*", the only zone that Volcano supports
here, or if it states itself that it is preemptable (pod_info.go, GetPodRevocableZone). The same keys on its
PodGroup are the default for pods without them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from phalanx.dialects.lenient import DecodingFault
from phalanx.dialects.pods.evictability import PREEMPTABLE, preemptable_of
from phalanx.model.disruption import Portion
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.text.decoding import quoted

REVOCABLE_ZONE = "volcano.sh/revocable-zone"
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"

_EVERY_ZONE = "*"
_PORTION = re.compile(r"([0-9]{1,9})(%?)")
# Limit for pairs of a class and its revocable counterpart; a cache with more entries is cleared.
_CACHE_SIZE = 10_000


def revocable_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool | None:
    """Return whether a pod, or the members of a group, can use lent nodes; None if nothing is stated."""
    zone = annotations.get(REVOCABLE_ZONE)
    if zone is not None:
        return zone == _EVERY_ZONE
    stated = PREEMPTABLE in annotations or PREEMPTABLE in labels
    return preemptable_of(labels, annotations, []) if stated else None


def portion_of(annotations: Mapping[str, str], key: str, faults: list[DecodingFault]) -> Portion | None:
    """Parse the annotation for a number or percentage of a gang's members."""
    text = annotations.get(key)
    if text is None:
        return None
    match = _PORTION.fullmatch(text)
    if match is None or (match[2] and int(match[1]) > 100):
        faults.append(
            DecodingFault(f"metadata.annotations[{key}]", f'{quoted(text)} is not a number such as "2" or "30%"')
        )
        return Portion(100, percent=True) if key == MIN_AVAILABLE else Portion(0)
    return Portion(int(match[1]), percent=bool(match[2]))


def follows(pod: Pod, gang: Gang | None) -> bool:
    """Return whether a pod that does not say so itself can use lent nodes, because its gang can."""
    return gang is not None and gang.revocable and pod.pod_class.revocable is None


class RevocableClasses:
    """Classes of pods that can use lent nodes, by the original class; one object for equal classes."""

    def __init__(self) -> None:
        self._twins: dict[PodClass, PodClass] = {}

    def made_revocable(self, pod: Pod) -> Pod:
        """Return the pod with the permission of its gang to use lent nodes."""
        twin = self._twins.get(pod.pod_class)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[pod.pod_class] = msgspec.structs.replace(pod.pod_class, revocable=True)
        return msgspec.structs.replace(pod, pod_class=twin)
