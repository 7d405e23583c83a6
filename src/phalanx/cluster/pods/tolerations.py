"""Which taints our pods tolerate, whether they wait or have a node."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.model.pod import Pod
from phalanx.model.selectors import Toleration

Tolerations = tuple[Toleration, ...]


class TolerationCounts:
    """Counts pods by what they tolerate: few differ."""

    def __init__(self, schedulers: frozenset[str]) -> None:
        self._schedulers = schedulers
        self._pods: dict[Tolerations, int] = {}

    def __iter__(self) -> Iterator[Tolerations]:
        return iter(self._pods)

    def count(self, pod: Pod, sign: int) -> None:
        """One comes (1) or goes (-1); those of other schedulers do not matter."""
        if pod.scheduler not in self._schedulers:
            return
        key = pod.pod_class.tolerations
        left = self._pods.get(key, 0) + sign
        if left:
            self._pods[key] = left
        else:
            del self._pods[key]
