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

    `mark` names the present set, `undo_to` goes back to one.
    """

    def __init__(self, session: Session, log: EvictionLog) -> None:
        self._session = session
        self._limits = EvictionLimits(session, log)
        self._min_available = MinAvailableCheck(session.state.gangs.composites)
        self._leaving: dict[PodRecord, None] = {}

    def try_add(self, record: PodRecord) -> str | None:
        """Counts a pod as leaving; why it may not, and then nothing is counted."""
        if record in self._leaving:
            return "is on its way already"
        objection = self.veto(record) or self._min_available.try_remove(record)
        return objection or self._count([record])

    def try_add_gang(self, record: PodRecord) -> list[PodRecord] | str:
        """Counts the pod's whole gang as leaving (with its gang group): who that is, or why they may not."""
        members = whole_gang_of(record, self._session.state)
        if isinstance(members, str):
            return members
        for member in members:
            objection = self.veto(member)
            if objection is not None:
                return f"belongs to a gang with pod {member.pod.key}, which {objection}"
        news = [member for member in members if member not in self._leaving]
        return self._min_available.try_remove_all(news) or self._count(news) or members

    def mark(self) -> int:
        return len(self._leaving)

    def undo_to(self, mark: int) -> None:
        """Those who were taken since the mark stay after all."""
        while len(self._leaving) > mark:
            record, _ = self._leaving.popitem()
            self._min_available.restore(record)
            self._limits.take_back(record)

    def veto(self, record: PodRecord) -> str | None:
        """Why the pod may not leave, whoever else does."""
        if record.state not in CAN_LEAVE:
            return "is on its way already"
        for plugin in self._session.plugin_runtime.plugins("evict_veto"):
            veto = plugin.evict_veto(self._session, record)
            if veto is not None:
                return veto.why
        return None

    def _count(self, records: Sequence[PodRecord]) -> str | None:
        """Counts those whom their gangs let go against budgets and rates."""
        broken = self._limits.violations
        reason = self._limits.try_evict_all(records)
        if reason is None and self._limits.violations > broken:
            for record in records:
                self._limits.take_back(record)
            reason = "the PodDisruptionBudgets that count it allow no further disruption"
        if reason is not None:
            for record in records:
                self._min_available.restore(record)
            return f"must stay: {reason}"
        self._leaving.update(dict.fromkeys(records))
        return None
