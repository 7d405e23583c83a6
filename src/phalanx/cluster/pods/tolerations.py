"""Tolerations of our pods, pending or on a node."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.pods.records import add_count
from phalanx.model.pod import Pod, PodClass
from phalanx.model.selectors import Toleration

Tolerations = tuple[Toleration, ...]


class TolerationCounts:
    """Counts pods by class, and classes by tolerations, of which few are distinct."""

    def __init__(self, schedulers: frozenset[str]) -> None:
        self._schedulers = schedulers
        self._pods: dict[PodClass, int] = {}
        self._classes: dict[Tolerations, int] = {}

    def __iter__(self) -> Iterator[Tolerations]:
        return iter(self._classes)

    def count(self, pod: Pod, sign: int) -> None:
        """Count a pod of ours (sign 1) or no longer (sign -1); pods of other schedulers are ignored."""
        if pod.scheduler not in self._schedulers:
            return
        known = pod.pod_class in self._pods
        add_count(self._pods, pod.pod_class, sign)
        if (pod.pod_class in self._pods) is not known:
            add_count(self._classes, pod.pod_class.tolerations, sign)
