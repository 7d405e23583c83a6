"""Victims taken off their nodes for a try, with what that does to accounts and caps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.eviction.caps import Caps, EvictionLog
from phalanx.scheduling.eviction.levelling import Levelling
from phalanx.scheduling.eviction.victims import Removals, Victim, spare_members
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
        self._off: dict[PodRecord, int] = {}
        self._spare: dict[GangRecord, tuple[int, Counter[str]]] = {}

    @property
    def violations(self) -> int:
        return self._caps.violations

    def admissible(self, order: Sequence[Victim]) -> list[Victim]:
        """The order without those who may not go once those before them have gone."""
        removals, caps = Removals(self._levelling), Caps(self._session, self._log)
        sequence: list[Victim] = []
        singles: dict[GangRecord, list[Victim]] = {}
        fallen: set[GangRecord] = set()

        def take(victim: Victim) -> bool:
            if self._bound and not removals.permit(victim):
                return False
            if self._bound and caps.take_all(victim.records) is not None:
                return False
            removals.add(victim)
            return True

        def back(victim: Victim) -> None:
            removals.add(victim, -1)
            if self._bound:
                for record in victim.records:
                    caps.give_back(record)

        for victim in order:
            gang = victim.spared_by
            if gang is not None:
                gone = singles.setdefault(gang, [])
                if gang not in fallen and self._can_spare(gang, victim, gone) and take(victim):
                    gone.append(victim)
                    sequence.append(victim)
            elif victim.whole:
                # Those who went singly are part of it.
                before = [single for each in victim.gangs for single in singles.get(each, ())]
                for single in before:
                    back(single)
                if take(victim):
                    fallen.update(victim.gangs)
                    sequence.append(victim)
                else:
                    for single in before:
                        take(single)
            elif take(victim):
                sequence.append(victim)
        return sequence

    def _can_spare(self, gang: GangRecord, victim: Victim, gone: Sequence[Victim]) -> bool:
        """Whether the gang can do without one more, those who are gone aside."""
        if gang not in self._spare:
            self._spare[gang] = spare_members(gang)
        free, roles = self._spare[gang]
        role = victim.records[0].pod.role
        of_role = sum(1 for each in gone if each.records[0].pod.role == role)
        return len(gone) < free and (role not in roles or of_role < roles[role])

    def go(self, victims: Sequence[Victim]) -> None:
        self._move(victims, 1)

    def stay(self, victims: Sequence[Victim]) -> None:
        self._move(victims, -1)

    def _move(self, victims: Sequence[Victim], step: int) -> None:
        """A pod that is part of several victims (a member, and its gang as a whole) is off while any of them is."""
        changed: list[PodRecord] = []
        for victim in victims:
            for record in victim.records:
                times = self._off.get(record, 0) + step
                self._off[record] = times
                if times == (1 if step > 0 else 0):
                    changed.append(record)
        if step > 0:
            self._transaction.remove(changed)
        else:
            self._transaction.put_back(changed)
        for record in changed:
            self._caps.count(record, step)

    def is_part(self, victim: Victim, chosen: Sequence[Victim]) -> bool:
        """Whether the victim goes anyway, with the whole of its gang."""
        gang = victim.spared_by
        return gang is not None and any(other.whole and gang in other.gangs for other in chosen)

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
