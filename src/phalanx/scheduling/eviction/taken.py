"""Victims taken off their nodes for a try, with what that does to accounts and caps."""

from __future__ import annotations

from collections.abc import Sequence

from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.eviction.caps import Caps, EvictionLog
from phalanx.scheduling.eviction.levelling import Levelling
from phalanx.scheduling.eviction.victims import Removals, Victim
from phalanx.scheduling.session import Session


class Taken:
    """The victims that are off at the moment, with what that does to accounts and caps.

    `bound` tells whether grounds and caps hold; otherwise they are only counted.
    """

    def __init__(
        self,
        session: Session,
        transaction: Transaction,
        log: EvictionLog,
        levelling: Levelling | None = None,
        *,
        bound: bool = True,
    ) -> None:
        self._bound = bound
        self._levelling = levelling
        self._session = session
        self._transaction = transaction
        self._log = log
        self._caps = Caps(session, log)

    @property
    def violations(self) -> int:
        return self._caps.violations

    def admissible(self, order: Sequence[Victim]) -> list[Victim]:
        """The order without those who may not go once those before them have gone."""
        removals, caps = Removals(self._levelling), Caps(self._session, self._log)
        sequence: list[Victim] = []
        singles: dict[object, list[Victim]] = {}
        for victim in order:
            for gang in victim.gangs if not victim.whole else ():
                singles.setdefault(gang, []).append(victim)
        taken: set[Victim] = set()

        def take(victim: Victim) -> bool:
            if victim in taken:
                return True
            if self._bound and (not removals.permit(victim) or caps.take_all(victim.records) is not None):
                return False
            removals.add(victim)
            taken.add(victim)
            sequence.append(victim)
            return True

        for victim in order:
            if victim.whole:
                # Nobody of a gang that falls stays behind.
                mates = [single for gang in victim.gangs for single in singles.get(gang, ())]
                if not all(take(single) for single in mates):
                    continue
            take(victim)
        return sequence

    def go(self, victims: Sequence[Victim]) -> None:
        self._move(victims, 1)

    def stay(self, victims: Sequence[Victim]) -> None:
        self._move(victims, -1)

    def _move(self, victims: Sequence[Victim], step: int) -> None:
        records = [record for victim in victims for record in victim.records]
        if step > 0:
            self._transaction.remove(records)
        else:
            self._transaction.put_back(records)
        for record in records:
            self._caps.count(record, step)

    def may_stay(self, victim: Victim, chosen: Sequence[Victim]) -> bool:
        """Nobody of a gang that falls stays behind."""
        return victim.whole or not any(
            other.whole and gang in other.gangs for other in chosen for gang in victim.gangs
        )

    def has_room(self, victim: Victim) -> bool:
        """Whether all its pods could be where they were."""
        nodes = self._session.state.nodes
        for record in victim.records:
            if record.row < 0:
                continue
            usage = record.footprint.usage
            if (nodes.idle[:, record.row] < usage)[usage > 0].any() or record.cls.pod_class.host_ports:
                return False
        return True
