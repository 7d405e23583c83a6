"""Run times that are learned from the ends of pods, by namespace, kind of owner, and pod class."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import Pod, PodClass
from phalanx.scheduling.reservations.stored import kind_of

#: Number of ends after which a run time counts as known, and which is remembered.
ENDS = 20
#: The learned run time is that within which this percentage of the remembered pods ended.
PERCENT = 90
#: A class is not used while fewer of its pods end within their learned run time.
LEAST_COVERAGE = 80
_MOST_CLASSES = 500
#: Seconds after its last end when a class is forgotten, and between two stored versions.
_FORGOTTEN_AFTER = 30 * 86_400
_STORED_EVERY = 600
_MOST_KINDS = 10_000


class LearnedRunTime(msgspec.Struct, frozen=True, omit_defaults=True):
    """The last run times in seconds of pods of one class (`kind` is its hash), oldest first.

    `within` tells of the last predictions whether the pod ended within it. `last` is the time of the last end in
    seconds since the epoch.
    """

    namespace: str
    owner: str
    kind: str
    last: int
    ends: tuple[int, ...]
    within: tuple[bool, ...] = ()

    @property
    def until(self) -> float:
        """The time until which the entry counts."""
        return self.last + _FORGOTTEN_AFTER

    @property
    def percentile(self) -> int:
        """Return the run time within which PERCENT of the remembered pods ended; 0 with too few ends."""
        return sorted(self.ends)[-(-ENDS * PERCENT // 100) - 1] if len(self.ends) >= ENDS else 0

    @property
    def usable(self) -> int:
        """Return the percentile; 0 while too few predictions come true."""
        covered = sum(self.within) * 100 >= LEAST_COVERAGE * len(self.within)
        return self.percentile if covered else 0

    def after(self, run_time: int, now: int) -> LearnedRunTime:
        """Return the entry with one more end."""
        within = self.within
        if predicted := self.percentile:
            within = (*within, run_time <= predicted)[-ENDS:]
        return LearnedRunTime(self.namespace, self.owner, self.kind, now, (*self.ends, run_time)[-ENDS:], within)


class LearnedRunTimes:
    """Learned run times; `version` changes when they should be stored again."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, str], LearnedRunTime] = {}
        # Largest usable run time by kind; None until it is computed.
        self._by_kind: dict[str, int] | None = None
        self._kinds: dict[PodClass, str] = {}
        self._stored_at = 0
        self._changed = False
        self.version = 0

    def learn(self, pods: Iterable[Pod], now: int) -> None:
        """Record the ends of pods at `now`."""
        for pod in pods:
            if pod.endless or pod.placeholder:
                continue
            key = (pod.namespace, pod.owner_kind, self._kind(pod.pod_class))
            entry = self._entries.pop(key, None) or LearnedRunTime(*key, now, ())
            # The last entry of the dict is the one with the last end.
            self._entries[key] = entry.after(max(1, now - pod.started), now)
            self._by_kind, self._changed = None, True
        while len(self._entries) > _MOST_CLASSES:
            del self._entries[next(iter(self._entries))]
        if self._changed and now >= self._stored_at + _STORED_EVERY:
            self._stored_at, self._changed = now, False
            self.version += 1

    def of(self, record: PodRecord) -> int:
        """Return the learned run time of a pod in seconds; 0 if unknown."""
        pod = record.pod
        entry = self._entries.get((pod.namespace, pod.owner_kind, self._kind(pod.pod_class)))
        return entry.usable if entry is not None else 0

    def of_class(self, pod_class: PodClass) -> int:
        """Return the longest learned run time of pods of a class in any namespace; 0 if one is unknown."""
        if not self._entries:
            return 0
        if self._by_kind is None:
            by_kind: dict[str, list[int]] = {}
            for entry in self._entries.values():
                by_kind.setdefault(entry.kind, []).append(entry.usable)
            self._by_kind = {kind: max(usable) for kind, usable in by_kind.items() if all(usable)}
        return self._by_kind.get(self._kind(pod_class), 0)

    def export(self) -> list[LearnedRunTime]:
        return list(self._entries.values())

    def restore(self, entries: Iterable[LearnedRunTime]) -> None:
        """Add the entries of an earlier process."""
        for entry in sorted(entries, key=lambda entry: entry.last):
            if entry.ends and min(entry.ends) > 0:
                self._entries.setdefault((entry.namespace, entry.owner, entry.kind), entry)
        self._by_kind = None

    def _kind(self, pod_class: PodClass) -> str:
        kind = self._kinds.get(pod_class)
        if kind is None:
            if len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            kind = self._kinds[pod_class] = kind_of(pod_class)
        return kind
