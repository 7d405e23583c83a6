"""How many PodGroups each queue has in which phase, kept in O(change)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from phalanx.cluster.state import ClusterState
from phalanx.dialects import kube_batch, volcano
from phalanx.model.gang import GangKey

_GROUPS = frozenset((volcano.GROUP, *kube_batch.GROUPS))
_NONE: Mapping[str, int] = {}


class QueueCensus:
    """Counts the PodGroups of Volcano and kube-batch: other families know no queues. `phase` gives the phase that a
    group's object shows; one without a phase is Pending.
    """

    def __init__(self, state: ClusterState, phase: Callable[[GangKey], str]) -> None:
        self._state = state
        self._phase = phase
        self._counted: dict[GangKey, tuple[str, str]] = {}
        self._queues: dict[str, Counter[str]] = {}

    def count(self, key: GangKey) -> None:
        """Something about a group has changed."""
        record = self._state.gangs.get(key)
        noun = record.noun if record is not None else None
        now = None
        if noun is not None and noun.source is not None and noun.source.group in _GROUPS:
            now = (noun.queue, self._phase(key) or "Pending")
        last = self._counted.get(key)
        if now == last:
            return
        if last is not None:
            del self._counted[key]
            queue, phase = last
            phases = self._queues[queue]
            phases[phase] -= 1
            if not phases[phase]:
                del phases[phase]
            if not phases:
                del self._queues[queue]
        if now is not None:
            self._counted[key] = now
            self._queues.setdefault(now[0], Counter())[now[1]] += 1

    def phases(self, queue: str) -> Mapping[str, int]:
        return self._queues.get(queue, _NONE)
