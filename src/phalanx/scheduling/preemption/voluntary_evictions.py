"""Evictions that serve no preemptor: checks of a set of pods."""

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
    """Set of pods that can be evicted together without a preemptor.

    Vetoes of all plugins hold, gangs keep their quorum, and no disruption budget is broken. Pods are added singly
    or as whole gangs. A refusal continues "it ". `mark` identifies the present set; `undo_to` restores it.
    """

    def __init__(self, session: Session, log: EvictionLog) -> None:
        self._session = session
        self._limits = EvictionLimits(session, log)
        self._min_available = MinAvailableCheck(session.state.gangs.composites)
        self._evicted: dict[PodRecord, None] = {}

    def try_add(self, record: PodRecord) -> str | None:
        """Add a pod and return None; or return the reason against it and add nothing."""
        if record in self._evicted:
            return "is already being evicted"
        objection = self.veto(record) or self._min_available.try_remove(record)
        return objection or self._count([record])

    def try_add_gang(self, record: PodRecord) -> list[PodRecord] | str:
        """Add all members of the pod's gang and gang group and return them; or return the reason against it."""
        members = whole_gang_of(record, self._session.state)
        if isinstance(members, str):
            return members
        for member in members:
            objection = self.veto(member)
            if objection is not None:
                return f"belongs to a gang with pod {member.pod.key}, which {objection}"
        new_members = [member for member in members if member not in self._evicted]
        return self._min_available.try_remove_all(new_members) or self._count(new_members) or members

    def mark(self) -> int:
        return len(self._evicted)

    def undo_to(self, mark: int) -> None:
        """Remove the pods that were added after `mark`."""
        while len(self._evicted) > mark:
            record, _ = self._evicted.popitem()
            self._min_available.restore(record)
            self._limits.take_back(record)

    def veto(self, record: PodRecord) -> str | None:
        """Return the reason against the eviction of this pod alone."""
        if record.state not in CAN_LEAVE:
            return "is already being evicted"
        for plugin in self._session.plugin_runtime.plugins("evict_veto"):
            veto = plugin.evict_veto(self._session, record)
            if veto is not None:
                return veto.why
        return None

    def _count(self, records: Sequence[PodRecord]) -> str | None:
        """Add pods that their gangs can lose if budgets and rates permit it, else return the reason."""
        violations_before = self._limits.violations
        reason = self._limits.try_evict_all(records)
        if reason is None and self._limits.violations > violations_before:
            for record in records:
                self._limits.take_back(record)
            reason = "the PodDisruptionBudgets that count it allow no further disruption"
        if reason is not None:
            for record in records:
                self._min_available.restore(record)
            return f"must stay: {reason}"
        self._evicted.update(dict.fromkeys(records))
        return None
