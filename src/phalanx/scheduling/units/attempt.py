"""One attempt to place a unit, as a turn makes it, and the bindings of the gangs that it has placed."""

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
    """What a unit without an obstacle asks for, and how it is placed. In all else turns of units are alike."""

    @property
    def unit(self) -> QueuedUnit:
        """The unit that has its turn."""

    @property
    def demand(self) -> WaitReason:
        """What the unit asks for, where it asks for anything."""

    @property
    def nominated(self) -> list[PodRecord]:
        """The pods of the unit for which room is held."""

    @property
    def asks(self) -> bool:
        """Whether anything is to be placed."""

    def least(self) -> Sequence[GangPlacement]:
        """Return the gangs whose charges decide whether the unit borrows."""

    def place(self, transaction: Transaction) -> Refusal | None:
        """Place the unit; return None, or why it does not fit. The nominations of its pods are lifted."""

    def wanted(self) -> Demand | None:
        """Return the demand for which victims may be awaited; None where none are."""

    def accept(self) -> None:
        """Record the bindings and verdicts of what was placed; where nothing was to be placed, the verdicts."""

    def refuse(self, fit_error: FitError) -> bool:
        """Set the verdicts of a refusal, and what the unit waits for. Return whether it has what it needs all the
        same: gangs of a composite may wait for themselves."""


def bind_gangs(session: Session, placements: list[GangPlacement]) -> None:
    """Record the bindings of all gangs that one decision has placed, and the room of members that are expected."""
    prepares = any(record.allocated for placement in placements for record, _ in placement.placed)
    together = session.decisions.next_cause() if prepares else ""
    for placement in placements:
        placed, held = placement.placed, tuple[str, ...]()
        if placement.gang.placeholders:
            placed = [entry for entry in placed if not entry[0].pod.placeholder]
            held = _hold(session, placement)
        mark = _mark(session, placement.gang, placement.need, len(placement.placed) - len(placed))
        session.decisions.bind_all(placed, placement.gang.key, mark, together, held)


def _hold(session: Session, placement: GangPlacement) -> tuple[str, ...]:
    """Hold the room of members that are expected; return their nodes, which the bindings name."""
    for record, row in placement.placed:
        if record.pod.placeholder:
            session.decisions.hold(record, row)
    return tuple(sorted(each.assumed_node for each in placement.gang.placeholders.values() if each.assumed_node))


def _mark(session: Session, gang: GangRecord, need: QuorumRequirement, expected: int) -> PlanMark | None:
    """Return the mark that proves, should the rest of the plan be cut off, that the whole quorum was placed.

    `expected` members of it do not exist yet.
    """
    assert gang.spec is not None
    if need.repair:
        return unfinished_plan(gang, gang.spec)
    now, size = int(session.now), need.total - expected
    return new_mark(gang.spec, session.decisions.cause, size, now) if size > 1 else None
