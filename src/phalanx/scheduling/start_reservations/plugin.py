"""Start reservations and advance reservations as a feature of the cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from phalanx.cluster.state import ClusterState
from phalanx.model.gang import GangKey
from phalanx.model.promise_records import StoredGrant, StoredLoss, StoredReservation, StoredStarts
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.ordering.fifo import FifoQueues, any_queue_keeps_order
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.reservations.advance_grant import AdvanceGrant
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.session.cycle_features import CycleFeatures
from phalanx.scheduling.session.cycle_plugin import CyclePlugin, Guard, Turn, earlier
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.ended_reservations import evict_users_of_ended
from phalanx.scheduling.start_reservations.forecasts import sample_forecasts
from phalanx.scheduling.start_reservations.obstacles import queue_obstacle
from phalanx.scheduling.start_reservations.rehearsed_note import rehearsed_note
from phalanx.scheduling.start_reservations.stored_promises import losses, promises
from phalanx.scheduling.start_reservations.turns import (
    BesideThePlan,
    due_units,
    next_in_line,
    reserve_start,
    reserved_turn,
    search_beside_the_plan,
)
from phalanx.scheduling.start_reservations.votes import reject_backfills

# Seconds until a retry of blocked evictions.
_RETRY = 10.0


class StartReservations(CyclePlugin):
    """Plan of start reservations, applied in the turns of units and between cycles.

    `plan` is None where the policy reserves no starts and there is no advance reservation. It survives a change of
    policy, so promised starts stay promised.
    """

    name = "start-reservations"

    def __init__(self, state: ClusterState, queue: SchedulingQueue) -> None:
        self.plan: ReservationPlan | None = None
        self._state = state
        self._queue = queue
        self._settings: ReservationSettings | None = None
        self._promises: list[StoredReservation] = []
        self._grants: list[StoredGrant] = []
        self._losses: list[StoredLoss] = []
        self._stored_version = 0
        self._changes_at_begin = 0
        self._forecast_at = 0.0
        self._retry_at: float | None = None
        self._again = False
        self._rejected: dict[UnitKey, None] = {}
        self._rehearses = False
        # Units that get a start next in the present cycle, and whether some of the last ones had no possible start.
        self._next: list[UnitKey] = []
        self._in_vain = False
        #: Time of the last publication of promised starts in seconds since the epoch; 0 before the first.
        self.published_at = 0.0

    # Policy

    def configure(self, policy: Policy) -> None:
        settings = policy.reservations
        self._settings = settings if settings is not None and settings.reserves_starts else None
        if self._settings is None and not self._advance_wanted:
            self.plan, self._promises, self._losses = None, [], []
            return
        settings = self._settings or ReservationSettings(reserves_starts=False)
        if self.plan is None:
            self.plan = ReservationPlan(self._state, settings)
        else:
            self.plan.configure(settings)

    @property
    def _advance_wanted(self) -> bool:
        """Whether there are advance reservations, which need a plan under any policy."""
        wanted = self.plan is not None and self.plan.advance.wanted
        return bool(self._state.objects.advance) or bool(self._grants) or wanted

    def _follow_advance(self) -> None:
        """Create a plan for advance reservations under a policy that reserves no starts."""
        if self.plan is None and self._advance_wanted:
            self.plan = ReservationPlan(self._state, ReservationSettings(reserves_starts=False))
            self._queue.activate_everything()

    def reserved_room(self) -> ReservationPlan | None:
        return self.plan

    # Between cycles

    def outdated(self) -> bool:
        if self._again:
            return True
        return self.plan.outdated if self.plan is not None else bool(self._state.objects.advance)

    def next_due(self) -> float | None:
        return earlier(self.plan.next_due if self.plan is not None else None, self._retry_at)

    # Within a cycle

    def advance(self, now: int) -> None:
        self._again = False
        self._follow_advance()

    def wake(self, session: Session) -> Iterable[UnitKey]:
        # Votes can have changed, and the unit ahead can have started.
        rejected, self._rejected = self._rejected, {}
        if self.plan is None:
            return rejected
        due = due_units(session, self.plan)
        self._changes_at_begin = self.plan.opening_changes
        return (*due, *rejected) if rejected else due

    def wake_behind(self, session: Session) -> Iterable[UnitKey]:
        if self.plan is not None:
            self._next = next_in_line(session, self.plan, self._in_vain)
        return self._next

    def begin(self, session: Session) -> None:
        if self.plan is not None:
            for unit in session.units:
                unit.reserved = self.plan.get(unit.key) is not None

    def guard_turn(self, session: Session, units: list[QueuedUnit], turn: Turn) -> Guard | None:
        plan = self.plan
        return reserved_turn(session, plan, units, turn) if plan is not None and plan.active else None

    def guard_recheck(self, session: Session, unit: QueuedUnit) -> Guard | None:
        plan = self.plan
        return BesideThePlan(session, plan, unit) if plan is not None and plan.active else None

    def guard_search(self, session: Session, unit: QueuedUnit) -> Guard | None:
        plan = self.plan
        return search_beside_the_plan(session, plan, unit) if plan is not None and plan.active else None

    def permitted_backfills(self, session: Session, units: list[QueuedUnit]) -> list[QueuedUnit]:
        """Return the units that no plugin rejects before a reserved start."""
        if self.plan is None or not self.plan.active:
            return units
        rejected = {unit.key: None for unit in reject_backfills(session, self.plan, units)}
        self._rejected |= rejected
        return [unit for unit in units if unit.key not in rejected] if rejected else units

    def refused(self, session: Session, units: list[QueuedUnit]) -> None:
        if self.plan is not None:
            for unit in units:
                reserve_start(session, self.plan, unit)

    def evict_ended(self, session: Session) -> None:
        self._retry_at = session.now + _RETRY
        blocked = self.plan is not None and evict_users_of_ended(session, self.plan)
        if not blocked:
            self._retry_at = None

    def revise(self, session: Session) -> None:
        """End the promises of units that are behind a head of a fifo queue now; sample forecasts.

        Request another cycle if reservations have changed: other units can start now, or get another start.
        """
        plan = self.plan
        if plan is None:
            return
        interval = plan.settings.forecast_every
        due = bool(interval) and session.plan.complete and session.now >= self._forecast_at
        plan_of_cycle = session.plan
        changed = bool(plan_of_cycle.binds or plan_of_cycle.nominations or plan_of_cycle.evictions)
        if len(plan) and any_queue_keeps_order(session):
            plan.end_obstructed(partial(queue_obstacle, session, FifoQueues(session)))
        in_vain = any(map(plan.hopeless, self._next))
        first_in_vain = in_vain and not self._in_vain
        if self._next:
            self._in_vain = in_vain
        try:
            if sample_forecasts(session, plan, due):
                self._forecast_at = session.now + interval
        finally:
            others_can_start = plan.opening_changes != self._changes_at_begin
            self._again = others_can_start or (changed and plan.disturbed)
            # The units behind those without a possible start have not been examined yet.
            self._again |= first_in_vain

    def note(self, of: GangKey | str) -> str:
        if self.plan is None:
            return ""
        return rehearsed_note(self.plan, of) if self._rehearses else self.plan.promise(of)

    def published(self, session: Session) -> None:
        if self.plan is not None and self.plan.version != self._stored_version:
            self._promises, self._stored_version = promises(session, self.plan), self.plan.version
            self._grants, self._losses = self.plan.advance.stored(), losses(session, self.plan)
            self.published_at = session.now

    # State that outlives the process

    def load(
        self,
        promised: Sequence[StoredReservation],
        starts: StoredStarts | None = None,
        grants: Sequence[StoredGrant] = (),
        lost: Sequence[StoredLoss] = (),
    ) -> None:
        """Load the promises, their losses, grants and observed starts of an earlier process."""
        self._grants = list(grants)
        self._follow_advance()
        plan = self.plan
        if plan is None:
            return
        if self._grants:
            plan.advance.load(self._grants)
        if starts is not None:
            plan.starts.calibration.load(starts.promised)
            plan.starts.forecasts.calibration.load(starts.forecast)
        if promised or lost:
            plan.load(promised, lost)
            self._promises, self._losses = list(promised), list(lost)
            self._again = True

    def rehearse(self, promised: Sequence[StoredReservation]) -> None:
        """Load the scheduler's promises into a dry run: its notes show these starts and no others."""
        self._rehearses = True
        self.load(promised)

    def promised(self) -> tuple[int, list[StoredReservation], list[StoredGrant], list[StoredLoss]]:
        """Return (version of the plan, promised starts, granted advance reservations, losses of promises)."""
        return (self.plan.version if self.plan is not None else 0), self._promises, self._grants, self._losses

    def advance_grants(self) -> Mapping[str, AdvanceGrant]:
        """Return the advance reservations by name."""
        return self.plan.advance.grants if self.plan is not None else {}

    def observed_starts(self) -> StoredStarts:
        """Return the observed waits of units with a promise or a forecast."""
        if self.plan is None:
            return StoredStarts()
        return StoredStarts(self.plan.starts.calibration.starts, self.plan.starts.forecasts.calibration.starts)


def reservation_plan(features: CycleFeatures) -> ReservationPlan | None:
    """Return the plan of start reservations; None if there is none."""
    feature = features.get(StartReservations)
    return feature.plan if feature is not None else None


def plan_of(session: Session) -> ReservationPlan | None:
    """Return the plan of start reservations of a session's scheduler."""
    return reservation_plan(session.features)


def rehearse_promises(features: CycleFeatures, promised: Sequence[StoredReservation]) -> None:
    """Load the scheduler's promises into the features of a dry run."""
    feature = features.get(StartReservations)
    if feature is not None:
        feature.rehearse(promised)


def load_promises(features: CycleFeatures, promised: Sequence[StoredReservation]) -> None:
    """Load the promises of another process into the features of a scheduler."""
    feature = features.get(StartReservations)
    if feature is not None:
        feature.load(promised)
