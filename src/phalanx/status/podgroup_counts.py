"""Number of PodGroups per queue and phase, updated in O(change) when it is read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.model.gang import GangKey

T = TypeVar("T")

_NONE: Mapping[str, int] = {}


class PodGroupCounts:
    """Numbers of PodGroups of Volcano and kube-batch per queue and phase; groups of other APIs have no queues."""

    def __init__(self, state: ClusterState, intake: Intake) -> None:
        self._state = state
        self._intake = intake
        self._dialects = intake.dialects
        self._counted: dict[GangKey, tuple[str, str, bool]] = {}
        self._queues: dict[str, Counter[str]] = {}
        # Per queue: number of groups of this scheduler (True) and of others (False).
        self._owners: dict[str, Counter[bool]] = {}
        # Gangs that have changed since the numbers were read. The members of a gang change one by one.
        self._changed: dict[GangKey, None] = {}

    def gang_changed(self, key: GangKey) -> None:
        """Update the numbers after a change of a gang, its members or its PodGroup, once they are read."""
        self._changed[key] = None

    def _catch_up(self) -> None:
        changed, self._changed = self._changed, {}
        for key in changed:
            self._count(key)

    def _count(self, key: GangKey) -> None:
        record = self._state.gangs.get(key)
        spec = record.spec if record is not None else None
        now = None
        if spec is not None and spec.source is not None and self._dialects.group_of(spec.source).queue_counts:
            # A group without a phase counts as Pending.
            now = (spec.queue, self._intake.group_objects.phase(key) or "Pending", self._intake.is_ours(key))
        last = self._counted.get(key)
        if now == last:
            return
        if last is not None:
            del self._counted[key]
            queue, phase, ours = last
            _lower(self._queues, queue, phase)
            _lower(self._owners, queue, ours)
        if now is not None:
            self._counted[key] = now
            queue, phase, ours = now
            self._queues.setdefault(queue, Counter())[phase] += 1
            self._owners.setdefault(queue, Counter())[ours] += 1

    def phases_of(self, queue: str) -> Mapping[str, int]:
        self._catch_up()
        return self._queues.get(queue, _NONE)

    def is_foreign(self, queue: str) -> bool:
        """Return whether the queue has PodGroups and all of them belong to other schedulers."""
        self._catch_up()
        owners = self._owners.get(queue)
        return owners is not None and not owners[True]


def _lower(counters: dict[str, Counter[T]], name: str, word: T) -> None:
    counter = counters[name]
    counter[word] -= 1
    if not counter[word]:
        del counter[word]
    if not counter:
        del counters[name]
