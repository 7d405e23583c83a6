"""A cycle for those who ask: what it decided, what it found out on the way, and what would have to be different."""

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
    """No eviction helps a unit. `what_if` is what would be if nobody objected, None where nobody is looked for at
    all: its gang has the minimum, and the policy evicts nobody for more. `changes` are imperatives; after any of
    them others would go."""

    what_if: WhatIf | None
    changes: tuple[str, ...] = ()


class DryRun(Scheduler):
    """Nothing that it decides is carried out; `session` is that of the last cycle."""

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
        """The unit of the last cycle that a pod (by uid) or a gang was part of."""
        for unit in self.session.units:
            if unit.pod is not None and unit.pod.pod.uid == who:
                return unit
            if any(gang.key == who or who in gang.members for gang in unit.gangs):
                return unit
        return None

    def disruption(self, unit: QueuedUnit) -> Eviction | NothingHelps | None:
        """What evictions do for a unit of the last cycle: who goes (nobody, where it is enough that those leave who
        leave anyway), or why that would not help. None where room is not what it waits for."""
        found = self.session.disruptions.get(unit.key)
        if isinstance(found, Eviction):
            return found
        held = nominated_members(unit)
        if held and held[0].nomination is not None and (awaited := held[0].nomination.victims):
            pods = self.session.state.pods
            leaving = tuple(pods[uid] for uid in sorted(awaited) if uid in pods)
            return Eviction((), tuple((member, member.row) for member in held), leaving, EvictionCost())
        wait = self.session.unschedulable.get(unit.key)
        if wait is None:
            return None
        preemptor = least_preemptor_of(self.session, unit, wait[0])
        if preemptor is None:
            return NothingHelps(None) if wait[0].for_surplus else None
        now = solve(self.session, preemptor)
        if isinstance(now, Eviction):
            return now

        def build(session: Session) -> Preemptor | None:
            return least_preemptor_of(session, unit, wait[0])

        result = what_if(self.session, preemptor, self.policy.eviction, self.session.evictions)
        fits = result.eviction
        if fits is not None and not fits.evicts:
            return fits  # it may ask nobody to go, and need not
        changes = Suggestions(self.new_session, build, self.session).helpful_changes(preemptor, result)
        return NothingHelps(result, tuple(changes))
