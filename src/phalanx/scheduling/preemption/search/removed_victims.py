"""Victims taken off their nodes for a try."""

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
    """Pods whose being there, or not, tells on where the preemptor's pods may go: they are counted by what these
    state, or state something about these themselves."""

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
        """Whether it matters to the preemptor at all which pods are where."""
        return bool(self._counted)

    def includes(self, pod_class: ClassRecord) -> bool:
        """Whether a pod of the class matters for where it is."""
        return any(id(tally) in self._counted for tally, _ in pod_class.affinity.tallies)

    def dependents_first(self, candidates: list[VictimCandidate]) -> list[VictimCandidate]:
        """Those who matter before those who only hold amounts."""
        return sorted(
            candidates, key=lambda victim: not any(self.includes(record.pod_class) for record in victim.records)
        )


class RemovedVictims:
    """The victims that are off at the moment, and how many violations of budgets that would be.

    A pod may be a victim on its own and a part of its whole gang: it is off while either is.
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
        off, gone = self._off, list[PodRecord]()
        for victim in victims:
            for record in victim.records:
                off[record] += 1
                if off[record] == 1:
                    gone.append(record)
        self._transaction.remove(gone)
        self._count(gone, 1)

    def put_back(self, victims: Iterable[VictimCandidate]) -> None:
        off, back = self._off, list[PodRecord]()
        for victim in victims:
            for record in victim.records:
                off[record] -= 1
                if not off[record]:
                    del off[record]
                    back.append(record)
        self._transaction.put_back(back)
        self._count(back, -1)

    def _count(self, records: Iterable[PodRecord], step: int) -> None:
        for record in records:
            if record.pod.budgets:
                self._limits.count_eviction(record, step)

    def could_stay(self, victim: VictimCandidate) -> bool:
        """Whether all its pods could be where they were."""
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
