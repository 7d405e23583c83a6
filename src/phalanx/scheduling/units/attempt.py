"""Attempts to place a waiting gang or pod in its turn, and the bindings of the placed gangs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.model.pod import PlanMark
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement
from phalanx.scheduling.gangs.quorum import QuorumRequirement, new_mark, unfinished_plan
from phalanx.scheduling.queue.demands import Demand, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.refusals.refusal import Refusal
from phalanx.scheduling.session.session import Session


class Attempt(Protocol):
    """Demand of a unit without an obstacle, and its placement. All other parts of a turn are alike for all
    units.
    """

    @property
    def unit(self) -> QueuedUnit:
        """The gang group or pod that has its turn."""

    @property
    def demand(self) -> WaitReason:
        """The wait reason of the gang or pod, with its demand, if it has one."""

    @property
    def nominated(self) -> list[PodRecord]:
        """The pods of the gang group that have a nomination."""

    @property
    def asks(self) -> bool:
        """True if the gang group or pod needs a placement."""

    def least(self) -> Sequence[GangPlacement]:
        """Return the gangs with the charges that decide whether the unit borrows."""

    def place(self, transaction: Transaction) -> Refusal | None:
        """Place the unit; return None, or the refusal if it does not fit. The nominations of its pods are
        lifted.
        """

    def wanted(self) -> Demand | None:
        """Return the demand for which the gang group or pod can wait for victims; None if it cannot."""

    def accept(self) -> None:
        """Record the bindings and verdicts of the placed pods, or only the verdicts if nothing was to be placed."""

    def refuse(self, fit_error: FitError) -> bool:
        """Set the verdicts of a refusal and the unit's wait reason. Return whether the unit has all it needs,
        although single gangs of a composite still wait.
        """


def bind_gangs(session: Session, placements: list[GangPlacement]) -> None:
    """Record the bindings of all gangs of one decision, and reserve the nodes of placeholders."""
    prepared = [record for placement in placements for record, _ in placement.placed if record.allocated]
    together = session.decisions.next_cause() if prepared else ""
    for placement in placements:
        placed, held = placement.placed, tuple[str, ...]()
        if placement.gang.placeholders:
            placed = [entry for entry in placed if not entry[0].pod.placeholder]
            held = _reserve_placeholders(session, placement)
        mark = _mark(session, placement.gang, placement.need, len(placement.placed) - len(placed))
        session.decisions.bind_all(placed, placement.gang.key, mark, together, held)


def _reserve_placeholders(session: Session, placement: GangPlacement) -> tuple[str, ...]:
    """Reserve the nodes of placeholders; return the nodes' names for the bindings."""
    for record, row in placement.placed:
        if record.pod.placeholder:
            session.decisions.hold(record, row)
    return tuple(
        sorted(
            placeholder.assumed_node
            for placeholder in placement.gang.placeholders.values()
            if placeholder.assumed_node
        )
    )


def _mark(session: Session, gang: GangRecord, need: QuorumRequirement, expected: int) -> PlanMark | None:
    """Return the mark that proves after an interruption that the whole quorum was placed.

    `expected` members of the quorum do not exist yet.
    """
    assert gang.spec is not None
    if need.repair:
        return unfinished_plan(gang, gang.spec)
    now, size = int(session.now), need.total - expected
    return new_mark(gang.spec, session.decisions.cause, size, now) if size > 1 else None
