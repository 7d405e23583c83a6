"""Pods that leave their nodes for nobody's sake: who may, as a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from phalanx.cluster.pods.records import PodRecord
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.preemption.rules.eviction_limits import EvictionLimits
from phalanx.scheduling.preemption.rules.min_available import MinAvailableCheck, whole_gang_of
from phalanx.scheduling.session.eviction_log import EvictionLog

if TYPE_CHECKING:
    from phalanx.scheduling.session.session import Session


class VoluntaryEvictions:
    """Every veto of the policy's plugins holds, no gang is torn apart, and nobody's need justifies breaking a
    disruption budget. Pods are added one by one, or as whole gangs. Objections go on from "it ".

    `mark` names the present set, `undo` goes back to one.
    """

    def __init__(self, session: Session, log: EvictionLog) -> None:
        self._session = session
        self._caps = EvictionLimits(session, log)
        self._headcount = MinAvailableCheck(session.state.gangs.composites)
        self._taken: dict[PodRecord, None] = {}

    def take(self, record: PodRecord) -> str | None:
        """Counts a pod as leaving; why it may not, and then nothing is counted."""
        if record in self._taken:
            return "is on its way already"
        objection = self.veto(record) or self._headcount.take(record)
        return objection or self._count([record])

    def take_whole(self, record: PodRecord) -> list[PodRecord] | str:
        """Counts the pod's whole gang as leaving (with its bundle): who that is, or why they may not."""
        members = whole_gang_of(record, self._session.state)
        if isinstance(members, str):
            return members
        for member in members:
            objection = self.veto(member)
            if objection is not None:
                return f"belongs to a gang with pod {member.pod.key}, which {objection}"
        news = [member for member in members if member not in self._taken]
        return self._headcount.take_all(news) or self._count(news) or members

    def mark(self) -> int:
        return len(self._taken)

    def undo(self, mark: int) -> None:
        """Those who were taken since the mark stay after all."""
        while len(self._taken) > mark:
            record, _ = self._taken.popitem()
            self._headcount.give_back(record)
            self._caps.give_back(record)

    def veto(self, record: PodRecord) -> str | None:
        """Why the pod may not leave, whoever else does."""
        if record.state not in CAN_LEAVE:
            return "is on its way already"
        for plugin in self._session.pipeline.plugins("evict_veto"):
            spared = plugin.evict_veto(self._session, record)
            if spared is not None:
                return spared.why
        return None

    def _count(self, records: Sequence[PodRecord]) -> str | None:
        """Counts those whom their gangs let go against budgets and rates."""
        broken = self._caps.violations
        reason = self._caps.take_all(records)
        if reason is None and self._caps.violations > broken:
            for record in records:
                self._caps.give_back(record)
            reason = "the PodDisruptionBudgets that count it allow no further disruption"
        if reason is not None:
            for record in records:
                self._headcount.give_back(record)
            return f"must stay: {reason}"
        self._taken.update(dict.fromkeys(records))
        return None
