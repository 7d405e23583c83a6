"""Composite unit: the required gangs of a CompositePodGroup's tree are placed together, the other gangs best
effort."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.cluster.composites import INVALID
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.transaction import Transaction
from phalanx.model.gang import GangKey, Problem
from phalanx.model.verdict import Verdict, gang_object
from phalanx.scheduling.diagnosis.verdicts import held_by_problem, members_missing, unreadable_members
from phalanx.scheduling.gang_placement.composite_placer import CompositePlacer, core, hold_up
from phalanx.scheduling.gang_placement.composite_tree import composite_tree_of
from phalanx.scheduling.gang_placement.composite_verdicts import CompositeRefusal
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, place_where_nominated
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, demand_of
from phalanx.scheduling.preemption.preemptor import QuorumPreemptor
from phalanx.scheduling.queue.demands import CompositeDemand, Demand, QuotaBlocked, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.refusals.refusal import Obstacle, Refusal
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.attempt import bind_gangs
from phalanx.scheduling.units.unit import GangsUnit


class CompositeUnit(GangsUnit):
    """The gangs of one CompositePodGroup."""

    __slots__ = ()

    starts_whole = False
    starts_planned = False

    def attempt(self, session: Session) -> CompositeTurn | None:
        assert self.composite is not None
        fault = session.state.gangs.composites.fault(self.composite)
        if fault is not None:
            for gang in self.gangs:
                session.decisions.set_gang_verdict(gang, _faulty(gang, fault) if gang.pending else None)
            return None
        turn = CompositeTurn(session, self, CompositeAttempt(session, self, self.composite))
        if turn.is_held_up():
            turn.wait_for_obstacles(holds=False)
            return None
        return turn

    def demand_refusal(self, session: Session, demand: WaitReason) -> FitError | None:
        """Return why no further gang of the composite fits; None if one fits or the demand has changed."""
        attempt = composite_attempt_of(session, self)
        if attempt is None or attempt.demand != demand or hold_up(attempt.tree, attempt.placements, attempt.lacks):
            return None
        if attempt.demand.has_blocked_gang:
            return None
        transaction = session.state.transaction()
        placer = CompositePlacer(session, attempt.placements, attempt.lacks, transaction)
        holds = placer.run(attempt.tree)
        placed = transaction.placed
        transaction.rollback()
        if placed:
            return None
        return session.fit_errors.record(demand, composite_fit_error(self, attempt, placer.lacks, holds))

    def preemptor(self, session: Session) -> QuorumPreemptor | None:
        attempt = composite_attempt_of(session, self)
        core_unit = attempt.core_unit(self) if attempt is not None else None
        return QuorumPreemptor(session, core_unit) if core_unit is not None else None


class CompositeTurn:
    """An attempt to place the required gangs of a CompositePodGroup together and the other gangs best effort."""

    def __init__(self, session: Session, unit: QueuedUnit, attempt: CompositeAttempt) -> None:
        self.unit = unit
        self.demand = attempt.demand
        self.nominated = nominated_members(unit)
        self._session = session
        self._attempt = attempt
        self._lacks: Mapping[GangRecord, Refusal] = attempt.lacks

    def is_held_up(self) -> bool:
        """Return whether obstacles of its gangs prevent the CompositePodGroup from reaching its minimum."""
        return hold_up(self._attempt.tree, self._attempt.placements, self._attempt.lacks)

    @property
    def asks(self) -> bool:
        return bool(self._attempt.open)

    def least(self) -> Sequence[GangPlacement]:
        placements = self._attempt.placements
        return [placements[gang] for gang in core(self._attempt.tree, placements)] or self._attempt.open

    def place(self, transaction: Transaction) -> Refusal | None:
        session, attempt = self._session, self._attempt
        nominated = [
            placement
            for placement in attempt.open
            if any(member.nomination is not None for batch in placement.batches for member in batch.members)
        ]
        if nominated and not place_where_nominated(session, transaction, nominated):
            for placement in nominated:
                placement.placed = []
        placer = CompositePlacer(session, attempt.placements, attempt.lacks, transaction)
        holds = placer.run(attempt.tree)
        self._lacks = placer.lacks
        return None if holds else composite_fit_error(self.unit, attempt, placer.lacks, False)

    def wanted(self) -> Demand | None:
        needed = self._attempt.core_unit(self.unit)
        return demand_of([self._attempt.placements[gang] for gang in needed.gangs]) if needed is not None else None

    def accept(self) -> None:
        """Record the placed gangs; gangs that were not placed wait separately."""
        session, attempt = self._session, self._attempt
        lacks = self._lacks
        if self.asks:
            bind_gangs(session, attempt.open)
            placed = {placement.gang for placement in attempt.open if placement.placed}
            lacks = {gang: lack for gang, lack in lacks.items() if gang not in placed}
        for gang in self.unit.gangs:
            if gang not in lacks:
                session.decisions.set_gang_verdict(gang, None)
        if lacks:
            self._wait(lacks, holds=True, unschedulable=self.asks)

    def wait_for_obstacles(self, *, holds: bool) -> None:
        """Set the gangs' obstacles as their wait reasons."""
        self._wait(self._lacks, holds=holds, unschedulable=False)

    def refuse(self, fit_error: FitError) -> bool:
        assert isinstance(fit_error.facts, CompositeRefusal)
        self._explain(fit_error, unschedulable=True)
        return fit_error.facts.holds

    def _wait(self, lacks: Mapping[GangRecord, Refusal], *, holds: bool, unschedulable: bool) -> None:
        facts = composite_fit_error(self.unit, self._attempt, lacks, holds)
        self._explain(self._session.fit_errors.record(self.demand, facts), unschedulable=unschedulable)

    def _explain(self, fit_error: FitError, *, unschedulable: bool) -> None:
        """Set the verdicts of the gangs; requeue gangs without free resources or quota as unschedulable."""
        session = self._session
        session.decisions.explain(self.unit, fit_error.facts)
        if unschedulable or self.demand.has_blocked_gang:
            session.set_unschedulable(self.unit, self.demand, fit_error)
        session.mark_attempted(self.unit)


def _faulty(gang: GangRecord, fault: Problem) -> Verdict:
    required = gang.spec.min_member if gang.spec is not None else 0
    return Verdict(
        fault.code,
        fault.state,
        needed=required,
        members=gang.counts().present,
        change=fault.remedy,
        fault=fault.code == INVALID,
        # A fault names objects of the gang's own tree, all of which are in one namespace.
        objects=(gang_object(gang.key),),
    )


class CompositeAttempt:
    """Current state of a composite `tree`: the gangs that can take part (`placements`) and the refusals of the
    others.
    """

    def __init__(self, session: Session, unit: QueuedUnit, root: GangKey) -> None:
        self.tree = composite_tree_of(session.state.gangs.composites, root)
        self.lacks: dict[GangRecord, Refusal] = {}
        self.placements: dict[GangRecord, GangPlacement] = {}
        for gang in self.tree.gangs():
            obstacle = _obstacle(session, gang)
            if obstacle is None:
                self.placements[gang] = GangPlacement(session, gang)
            else:
                self.lacks[gang] = obstacle
        if any(placement.need.repair for placement in self.placements.values()):
            # A half-bound gang was placed with the whole tree once: the remaining members are placed best effort.
            for subtree in self.tree.trees():
                subtree.least = 0
        self.open = [placement for placement in self.placements.values() if not placement.satisfied]
        parts: list[WaitReason] = [demand_of([placement]) for placement in self.open]
        blocked = [gang for gang, lack in self.lacks.items() if lack.of_account]
        parts += [
            QuotaBlocked(charge_path)
            for charge_path in dict.fromkeys(session.charge_path(gang) for gang in blocked)
        ]
        self.demand = CompositeDemand(unit.key, tuple(parts))

    def core_unit(self, unit: QueuedUnit) -> QueuedUnit | None:
        """Return the required gangs that are not placed yet as one gang group; None if the CompositePodGroup's
        minimum is reached."""
        gangs = tuple(core(self.tree, self.placements))
        return QueuedUnit(unit.key, None, gangs) if gangs else None


def composite_fit_error(
    unit: QueuedUnit, attempt: CompositeAttempt, lacks: Mapping[GangRecord, Refusal], holds: bool
) -> CompositeRefusal:
    """Return the refusals of the gangs of a CompositePodGroup's tree, by their positions in the unit."""
    of = tuple((unit.gangs.index(gang), lacks[gang]) for gang in attempt.tree.gangs() if gang in lacks)
    return CompositeRefusal(of, holds)


def composite_attempt_of(session: Session, unit: QueuedUnit) -> CompositeAttempt | None:
    """Return the CompositePodGroup's attempt; None if its declaration is faulty."""
    assert unit.composite is not None
    fault = session.state.gangs.composites.fault(unit.composite)
    return CompositeAttempt(session, unit, unit.composite) if fault is None else None


def _obstacle(session: Session, gang: GangRecord) -> Refusal | None:
    """Return the obstacle that prevents a gang from taking part in the attempt, independent of free resources."""
    spec = gang.spec
    assert spec is not None
    if spec.problem is not None:
        return Obstacle(held_by_problem(gang, spec))
    need = session.requirement(gang)
    if need.satisfied:
        return None
    verdict = members_missing(gang, spec, need) or unreadable_members(gang, need)
    if verdict is not None:
        return Obstacle(verdict)
    return session.blocked(gang) if gang.pending and not need.repair else None
