"""One attempt to place a unit, as a turn makes it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.gang_placement.quorum_placement import GangPlacement
from phalanx.scheduling.queue.demands import Demand, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.refusals.refusal import Refusal


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
