"""What a tree of groups is at the moment: which of its gangs may take part, and what the others lack."""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.gang import GangKey
from phalanx.scheduling.diagnosis.verdicts import held_by_problem, members_missing, unreadable_members
from phalanx.scheduling.gang_placement.composite_placer import core
from phalanx.scheduling.gang_placement.composite_tree import composite_tree_of
from phalanx.scheduling.gang_placement.composite_verdicts import CompositeRefusal
from phalanx.scheduling.gang_placement.quorum_placement import GangPlacement, demand_of
from phalanx.scheduling.queue.demands import CompositeDemand, QuotaBlocked, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.refusals.refusal import Obstacle, Refusal
from phalanx.scheduling.session.session import Session


class CompositeAttempt:
    """What a group `tree` is now, the gangs that may take part (`placements`), and what the others lack."""

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
            # What is half bound was proved as a whole: the rest of it is placed as it can be.
            for each in self.tree.trees():
                each.least = 0
        self.open = [placement for placement in self.placements.values() if not placement.need.satisfied]
        parts: list[WaitReason] = [demand_of([placement]) for placement in self.open]
        held = [gang for gang, lack in self.lacks.items() if lack.of_account]
        parts += [
            QuotaBlocked(charge_path) for charge_path in dict.fromkeys(session.charge_path(gang) for gang in held)
        ]
        self.demand = CompositeDemand(unit.key, tuple(parts))

    def core_unit(self, unit: QueuedUnit) -> QueuedUnit | None:
        """The gangs that have to be placed so that the tree holds, as one gang group; None if it holds."""
        gangs = tuple(core(self.tree, self.placements))
        return QueuedUnit(unit.key, None, gangs) if gangs else None


def composite_fit_error(
    unit: QueuedUnit, attempt: CompositeAttempt, lacks: Mapping[GangRecord, Refusal], holds: bool
) -> CompositeRefusal:
    """Return what the gangs of a tree lack, by their places in the unit."""
    of = tuple((unit.gangs.index(gang), lacks[gang]) for gang in attempt.tree.gangs() if gang in lacks)
    return CompositeRefusal(of, holds)


def composite_attempt_of(session: Session, unit: QueuedUnit) -> CompositeAttempt | None:
    """None where something is wrong with the tree."""
    assert unit.composite is not None
    fault = session.state.gangs.composites.fault(unit.composite)
    return CompositeAttempt(session, unit, unit.composite) if fault is None else None


def _obstacle(session: Session, gang: GangRecord) -> Refusal | None:
    """Return what keeps a gang from taking part whatever room there is."""
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
