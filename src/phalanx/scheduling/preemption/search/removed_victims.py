"""Victims that a search has removed from their nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from phalanx.cluster.classes import ClassRecord
from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionLimits
from phalanx.scheduling.preemption.search.victim_sequence import SearchContext
from phalanx.scheduling.preemption.victims import VictimCandidate
from phalanx.scheduling.session.session import Session


class AffinityDependents:
    """Tallies of pods that decide by their presence where the preemptor's pods can be placed.

    Such pods match the affinity terms of the preemptor's pods, or have terms that match these.
    """

    def __init__(self, session: Session, classes: Iterable[ClassRecord]) -> None:
        book = session.state.nodes.affinity
        self._counted = {
            id(tally)
            for pod_class in classes
            if pod_class.affinity.restricts
            for counter in pod_class.affinity_state(book).counters()
            for tally, _ in counter.parts
        }

    def __bool__(self) -> bool:
        """Return whether other pods' positions matter to the preemptor."""
        return bool(self._counted)

    def includes(self, pod_class: ClassRecord) -> bool:
        """Return whether the positions of pods of a class matter."""
        return any(id(tally) in self._counted for tally, _ in pod_class.affinity.tallies)

    def dependents_first(self, candidates: list[VictimCandidate]) -> list[VictimCandidate]:
        """Sort victims that block by their position before victims that only free amounts."""
        return sorted(
            candidates, key=lambda victim: not any(self.includes(record.pod_class) for record in victim.records)
        )


class RemovedVictims:
    """Removed victims, and the violations of disruption budgets that their eviction would cost.

    A pod can be a victim on its own and a member of a whole gang: it is removed while either victim is.
    """

    def __init__(self, context: SearchContext, transaction: Transaction, dependents: AffinityDependents) -> None:
        self._dependents = dependents
        self._nodes = context.session.state.nodes
        self._transaction = transaction
        self._limits = EvictionLimits(context.session, context.log)
        self._off: Counter[PodRecord] = Counter()

    @property
    def violations(self) -> int:
        return self._limits.violations

    def remove(self, victims: Iterable[VictimCandidate]) -> None:
        removals, removed = self._off, list[PodRecord]()
        for victim in victims:
            for record in victim.records:
                removals[record] += 1
                if removals[record] == 1:
                    removed.append(record)
        self._transaction.remove(removed)
        self._count(removed, 1)

    def put_back(self, victims: Iterable[VictimCandidate]) -> None:
        removals, back = self._off, list[PodRecord]()
        for victim in victims:
            for record in victim.records:
                removals[record] -= 1
                if not removals[record]:
                    del removals[record]
                    back.append(record)
        self._transaction.put_back(back)
        self._count(back, -1)

    def _count(self, records: Iterable[PodRecord], step: int) -> None:
        for record in records:
            if record.pod.budgets:
                self._limits.count_eviction(record, step)

    def could_stay(self, victim: VictimCandidate) -> bool:
        """Return whether all pods of the victim still fit on their nodes."""
        idle = self._nodes.idle
        for record in victim.records:
            if record.row < 0 or self._off[record] > 1:
                continue
            usage = record.footprint.usage
            if (idle[:, record.row] < usage)[usage > 0].any() or record.pod_class.allocators:
                return False
            if self._dependents.includes(record.pod_class):
                return False
        return True
