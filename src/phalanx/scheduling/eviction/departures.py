"""Pods that leave their nodes for nobody's sake: who may, as a set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from phalanx.cluster.members import PodRecord
from phalanx.model.pod import MemberState
from phalanx.scheduling.eviction.caps import Caps, EvictionLog
from phalanx.scheduling.eviction.headcount import Headcount, whole

if TYPE_CHECKING:
    from phalanx.scheduling.session import Session

_CAN_LEAVE = (MemberState.BOUND, MemberState.RUNNING)


class Departures:
    """Every veto of the policy's plugins holds, no gang is torn apart, and nobody's need justifies breaking a
    disruption budget. Pods are added one by one, or as whole gangs. Objections go on from "it "."""

    def __init__(self, session: Session, log: EvictionLog) -> None:
        self._session = session
        self._caps = Caps(session, log)
        self._headcount = Headcount()

    def take(self, record: PodRecord) -> str | None:
        """Counts a pod as leaving; why it may not, and then nothing is counted."""
        objection = self.veto(record) or self._headcount.take(record)
        if objection is None:
            objection = self._capped([record])
            if objection is not None:
                self._headcount.give_back(record)
        return objection

    def take_whole(self, record: PodRecord) -> list[PodRecord] | str:
        """Counts the pod's whole gang as leaving (with its bundle): who that is, or why they may not."""
        members = whole(record, self._session.state.gangs)
        if isinstance(members, str):
            return members
        for member in members:
            objection = self.veto(member)
            if objection is not None:
                return f"belongs to a gang with pod {member.pod.key}, which {objection}"
        objection = self._headcount.take_all(members)
        if objection is None:
            objection = self._capped(members)
            if objection is not None:
                self._restore(members)
        return objection or members

    def give_back(self, records: Sequence[PodRecord]) -> None:
        """Pods that were taken stay after all."""
        self._restore(records)
        for record in records:
            self._caps.give_back(record)

    def veto(self, record: PodRecord) -> str | None:
        """Why the pod may not leave, whoever else does."""
        if record.state not in _CAN_LEAVE:
            return "is on its way already"
        for plugin in self._session.pipeline.plugins("spares"):
            spared = plugin.spares(self._session, record)
            if spared is not None:
                return spared.why
        return None

    def _restore(self, records: Sequence[PodRecord]) -> None:
        for record in records:
            self._headcount.give_back(record)

    def _capped(self, records: Sequence[PodRecord]) -> str | None:
        broken = self._caps.violations
        reason = self._caps.take_all(records)
        if reason is None and self._caps.violations > broken:
            for record in records:
                self._caps.give_back(record)
            reason = "the PodDisruptionBudgets that count it allow no further disruption"
        return f"must stay: {reason}" if reason is not None else None
