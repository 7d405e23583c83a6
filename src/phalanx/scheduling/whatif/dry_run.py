"""Cycle without effects: its decisions, and the changes that would let a waiting gang or pod evict victims."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from phalanx.model.decisions import Plan
from phalanx.model.gang import GangKey
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members
from phalanx.scheduling.preemption.preemptor import Preemptor
from phalanx.scheduling.preemption.solution import Eviction, EvictionCost
from phalanx.scheduling.preemption.solver import solve
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.scheduler import Scheduler, never, untimed
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.preemptors import least_preemptor_of
from phalanx.scheduling.whatif.suggestions import Suggestions
from phalanx.scheduling.whatif.what_if import WhatIf, what_if


class NothingHelps(msgspec.Struct, frozen=True):
    """Result for a gang or pod that no eviction helps.

    `what_if` is the result without rules; None where no victims are searched: the gang has its minimum, and the
    policy evicts no pods for surplus members. `changes` are imperatives; after any of them victims are found.
    """

    what_if: WhatIf | None
    changes: tuple[str, ...] = ()


class DryRun(Scheduler):
    """Scheduler whose decisions are not executed. `session` is the session of the last cycle."""

    session: Session
    _latest: Session

    def new_session(self, now: float, should_stop: Callable[[], bool] = never) -> Session:
        self._latest = super().new_session(now, should_stop)
        return self._latest

    def cycle(
        self, now: float, should_stop: Callable[[], bool] = never, stage: Callable[[str], None] = untimed
    ) -> Plan:
        plan = super().cycle(now, should_stop, stage)
        self.session = self._latest
        return plan

    def unit(self, who: str | GangKey) -> QueuedUnit | None:
        """Return the unit of the last cycle that contains a pod (by uid) or a gang."""
        for unit in self.session.units:
            if unit.pod is not None and unit.pod.pod.uid == who:
                return unit
            if any(gang.key == who or who in gang.members for gang in unit.gangs):
                return unit
        return None

    def disruption(self, unit: QueuedUnit) -> Eviction | NothingHelps | None:
        """Return the eviction that helps a unit of the last cycle, or the reason why none does; None if it does not
        wait for room.

        An eviction without victims means that waiting for terminating pods is enough.
        """
        eviction = self.session.disruptions.get(unit.key)
        if isinstance(eviction, Eviction):
            return eviction
        nominated = nominated_members(unit)
        if nominated and nominated[0].nomination is not None and (awaited := nominated[0].nomination.victims):
            pods = self.session.state.pods
            terminating = tuple(pods[uid] for uid in sorted(awaited) if uid in pods)
            return Eviction((), tuple((member, member.row) for member in nominated), terminating, EvictionCost())
        wait = self.session.unschedulable.get(unit.key)
        if wait is None:
            return None
        preemptor = least_preemptor_of(self.session, unit, wait[0])
        if preemptor is None:
            return NothingHelps(None) if wait[0].for_surplus else None
        result_now = solve(self.session, preemptor)
        if isinstance(result_now, Eviction):
            return result_now

        def build(session: Session) -> Preemptor | None:
            return least_preemptor_of(session, unit, wait[0])

        result = what_if(self.session, preemptor, self.policy.eviction, self.session.evictions)
        fits = result.eviction
        if fits is not None and not fits.evicts:
            return fits  # it needs no victims
        changes = Suggestions(self.new_session, build, self.session).helpful_changes(preemptor, result)
        return NothingHelps(result, tuple(changes))
