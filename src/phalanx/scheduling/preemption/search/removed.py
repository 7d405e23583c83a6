"""Victims taken off their nodes for a try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.preemption.rules.eviction_limits import Caps
from phalanx.scheduling.preemption.search.affinity_dependents import Interplay
from phalanx.scheduling.preemption.search.victim_sequence import Rules
from phalanx.scheduling.preemption.victims import Victim


class Taken:
    """The victims that are off at the moment, and how many violations of budgets that would be.

    A pod may be a victim on its own and a part of its whole gang: it is off while either is.
    """

    def __init__(self, rules: Rules, transaction: Transaction, interplay: Interplay) -> None:
        self._interplay = interplay
        self._nodes = rules.session.state.nodes
        self._transaction = transaction
        self._caps = Caps(rules.session, rules.log)
        self._off: Counter[PodRecord] = Counter()

    @property
    def violations(self) -> int:
        return self._caps.violations

    def go(self, victims: Iterable[Victim]) -> None:
        off, gone = self._off, list[PodRecord]()
        for victim in victims:
            for record in victim.records:
                off[record] += 1
                if off[record] == 1:
                    gone.append(record)
        self._transaction.remove(gone)
        self._count(gone, 1)

    def stay(self, victims: Iterable[Victim]) -> None:
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
                self._caps.count(record, step)

    def has_room(self, victim: Victim) -> bool:
        """Whether all its pods could be where they were."""
        idle = self._nodes.idle
        for record in victim.records:
            if record.row < 0 or self._off[record] > 1:
                continue
            usage = record.footprint.usage
            if (idle[:, record.row] < usage)[usage > 0].any() or record.pod_class.allocators:
                return False
            if self._interplay.concerns(record.pod_class):
                return False
        return True
