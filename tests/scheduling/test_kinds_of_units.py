"""A fifth kind of unit, unknown to the scheduler, at each step of the cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import pytest

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.model.gang import GangKey
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, place_where_nominated
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, demand_of
from phalanx.scheduling.gang_placement.quorum_placement import place_gangs
from phalanx.scheduling.preemption.preemptor import QuorumPreemptor
from phalanx.scheduling.queue.demands import CompositeDemand, Demand, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit, UnitKinds
from phalanx.scheduling.queue.unschedulable import FitError, UnitKey
from phalanx.scheduling.refusals.refusal import Refusal
from phalanx.scheduling.scheduler import Scheduler
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import bind_gangs
from phalanx.scheduling.units.gang_group import GangGroupUnit
from phalanx.scheduling.units.kinds import UNIT_KINDS
from phalanx.scheduling.units.unit import GangsUnit
from phalanx.scheduling.whatif.dry_run import DryRun, NothingHelps
from phalanx.scheduling.whatif.start_forecasts import forecast_starts

from .scenario import Scenario, key
from .test_defragment import LONG_AGO, TWO
from .test_defragment import policy as defragment_policy
from .test_dry_run import NO_EVICTIONS
from .test_reserve import busy

PREEMPT = NO_EVICTIONS.replace("allocate, backfill", "allocate, preempt, backfill")


class AlternativesDemand(CompositeDemand, frozen=True):
    """Demands of alternative gangs: any of them wakes the unit, and room for one is planned."""

    for_room: ClassVar[bool] = True

    def __hash__(self) -> int:
        return hash(self.unit)


class AlternativesUnit(GangsUnit):
    """Alternative gangs: the first gang that fits starts, and the remaining gangs stop waiting."""

    __slots__ = ()

    starts_whole = False

    @property
    def required(self) -> tuple[GangRecord, ...]:
        return (min(self.gangs, key=lambda gang: len(gang.pending)),)

    def attempt(self, session: Session) -> AlternativesAttempt:
        return AlternativesAttempt(session, self)

    def demand_refusal(self, session: Session, demand: WaitReason) -> FitError | None:
        transaction = session.state.transaction()
        refusal = AlternativesAttempt(session, self).place(transaction)
        transaction.rollback()
        return session.fit_errors.record(demand, refusal) if refusal is not None else None

    def preemptor(self, session: Session) -> QuorumPreemptor:
        return QuorumPreemptor(session, QueuedUnit(self.key, None, self.required))

    def preemptors(self, session: Session) -> Iterator[QuorumPreemptor]:
        for gang in sorted(self.gangs, key=lambda gang: len(gang.pending)):
            yield QuorumPreemptor(session, QueuedUnit(self.key, None, (gang,)))


class AlternativesAttempt:
    def __init__(self, session: Session, unit: AlternativesUnit) -> None:
        self.unit = unit
        self.nominated = nominated_members(unit)
        self._session = session
        self._placements = [GangPlacement(session, gang) for gang in unit.gangs]
        self.asks = not any(placement.satisfied for placement in self._placements)
        self.demand = AlternativesDemand(unit.key, tuple(demand_of([each]) for each in self._placements))

    def least(self) -> Sequence[GangPlacement]:
        return self._placements[:1]

    def place(self, transaction: Transaction) -> Refusal | None:
        refusals: list[Refusal] = []
        for placement in self._placements:
            if self.nominated and place_where_nominated(self._session, transaction, [placement]):
                return None
            mark = transaction.mark()
            refusal = place_gangs(self._session, [placement], demand_of([placement]), transaction)
            if refusal is None:
                return None
            transaction.back_to(mark)
            placement.placed = []
            refusals.append(refusal)
        return refusals[0]

    def wanted(self) -> Demand | None:
        return demand_of(self._placements[:1])

    def accept(self) -> None:
        bind_gangs(self._session, [placement for placement in self._placements if placement.placed])
        for gang in self.unit.gangs:
            self._session.decisions.set_gang_verdict(gang, None)

    def refuse(self, fit_error: FitError) -> bool:
        self._session.refuse(self.unit, self.demand, fit_error)
        self._session.mark_attempted(self.unit)
        return False


def alternatives_or_group(
    key: UnitKey,
    pod: PodRecord | None,
    gangs: tuple[GangRecord, ...],
    missing: tuple[GangKey, ...],
    composite: GangKey | None,
    oversized_group: bool,
) -> QueuedUnit:
    kind = AlternativesUnit if len(gangs) > 1 else GangGroupUnit
    return kind(key, pod, gangs, missing, composite, oversized_group)


KINDS = UnitKinds(UNIT_KINDS.pod, alternatives_or_group, UNIT_KINDS.composite)


def alternatives(world: Scenario, *, large: int = 4, small: int = 2, cpu: int = 2, priority: int = 0) -> Scenario:
    """Let a scheduler with the fifth kind plan two alternative gangs."""
    world.scheduler = Scheduler(world.state, world.policy, kinds=KINDS)
    for name, members in (("large", large), ("small", small)):
        world.job(name, members, cpu=cpu, priority=priority)
        world.gang(name, members, gang_group=["large", "small"])
    return world


def test_unit_of_a_new_kind_is_planned() -> None:
    world = alternatives(Scenario().nodes(1, cpu=4)).run()
    assert world.placed() == ["small-0", "small-1"]
    assert world.failures == []


def test_unit_of_a_new_kind_prefers_its_first_gang_where_both_fit() -> None:
    world = alternatives(Scenario().nodes(4, cpu=4)).run()
    assert world.placed() == ["large-0", "large-1", "large-2", "large-3"]


def test_recheck_refreshes_the_verdict_of_a_unit_of_a_new_kind() -> None:
    world = alternatives(Scenario().nodes(1, cpu=1)).run()
    assert "0/1 nodes are available" in world.why("large").message
    world.node("n2", cpu=1).run()
    assert "0/2 nodes are available" in world.why("large").message


def test_unit_of_a_new_kind_preempts_for_the_gang_that_fits_afterwards() -> None:
    world = Scenario(PREEMPT).nodes(1, cpu=4)
    world.pods("low", 4, node="n1", cpu=1)
    alternatives(world, priority=10).settle()
    assert sorted(world.evicted) == ["low-0", "low-1", "low-2", "low-3"]
    assert world.placed() == ["small-0", "small-1"]


def test_start_of_a_unit_of_a_new_kind_is_forecast_for_the_gangs_that_it_requires() -> None:
    world = busy(Scenario().nodes(1, cpu=4), "runs", "n1", 600, cpu=3)
    alternatives(world).run()
    (start,) = forecast_starts(world.scheduler, world.now)
    assert (start.unit.key, start.pods) == ((key("large"), key("small")), 2)
    assert start.forecast.no_start is None
    assert start.forecast.start > world.now + 300


def test_dry_run_names_the_victims_for_a_unit_of_a_new_kind() -> None:
    world = Scenario(NO_EVICTIONS).nodes(1, cpu=4)
    world.pods("low", 4, node="n1", cpu=1)
    alternatives(world, priority=10).restart()
    rehearsal = DryRun(world.state, world.policy, kinds=KINDS)
    rehearsal.cycle(world.now)
    unit = rehearsal.unit(key("small"))
    assert isinstance(unit, AlternativesUnit)
    found = rehearsal.disruption(unit)
    assert isinstance(found, NothingHelps)
    assert found.what_if is not None
    assert found.what_if.eviction is not None
    assert len(found.what_if.eviction.victims) == 4


@pytest.mark.feature("defragmentation")
def test_defragmentation_makes_room_for_a_unit_of_a_new_kind() -> None:
    world = Scenario(defragment_policy()).nodes(2, cpu=4)
    world.now, world.recreates = TWO, True
    for node in ("n1", "n2"):
        world.pods(f"{node}-", 2, node=node, cpu=1, more=LONG_AGO)
    alternatives(world, large=3, small=1, cpu=4).settle()
    assert len(world.evicted) == 2
    assert world.placed("small") == ["small-0"]
