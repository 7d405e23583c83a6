"""What Volcano's plugin tdm reads: who may use nodes that are lent for a time, and how fast a gang gives way.

A pod may if its annotation `volcano.sh/revocable-zone` is "*", the only zone that Volcano knows here, or if it says
itself that it may be evicted (pod_info.go, GetPodRevocableZone); the same words on its PodGroup count where the pod
says nothing.
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

REVOCABLE_ZONE = "volcano.sh/revocable-zone"
MIN_AVAILABLE = "volcano.sh/jdb-min-available"
MAX_UNAVAILABLE = "volcano.sh/jdb-max-unavailable"

_EVERY_ZONE = "*"
_PORTION = re.compile(r"([0-9]{1,9})(%?)")
# Pairs of a class and its revocable twin; beyond this many the cache starts anew.
_CACHE_SIZE = 10_000


def revocable_of(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool | None:
    """Whether a pod, or the members of a group, may use lent nodes; None where nothing is said."""
    zone = annotations.get(REVOCABLE_ZONE)
    if zone is not None:
        return zone == _EVERY_ZONE
    stated = PREEMPTABLE in annotations or PREEMPTABLE in labels
    return preemptable_of(labels, annotations, []) if stated else None


def portion_of(annotations: Mapping[str, str], key: str, faults: list[DecodingFault]) -> Portion | None:
    """A number of members, or a percentage."""
    text = annotations.get(key)
    if text is None:
        return None
    found = _PORTION.fullmatch(text)
    if found is None or (found[2] and int(found[1]) > 100):
        faults.append(
            DecodingFault(f"metadata.annotations[{key}]", f'{text!r} is not a number such as "2" or "30%"')
        )
        return Portion(100, percent=True) if key == MIN_AVAILABLE else Portion(0)
    return Portion(int(found[1]), percent=bool(found[2]))


def follows(pod: Pod, gang: Gang | None) -> bool:
    """Whether a pod that says nothing itself may use lent nodes because its gang may."""
    return gang is not None and gang.revocable and pod.pod_class.revocable is None


class RevocableClasses:
    """The classes of pods that follow their gangs, one for equal pods."""

    def __init__(self) -> None:
        self._twins: dict[PodClass, PodClass] = {}

    def made_revocable(self, pod: Pod) -> Pod:
        """The pod as its gang lets it be placed."""
        twin = self._twins.get(pod.pod_class)
        if twin is None:
            if len(self._twins) >= _CACHE_SIZE:
                self._twins.clear()
            twin = self._twins[pod.pod_class] = msgspec.structs.replace(pod.pod_class, revocable=True)
        return msgspec.structs.replace(pod, pod_class=twin)
