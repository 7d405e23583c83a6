"""What of the plan is remembered beyond a process: starts that are promised, reservations that are granted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.cluster.state import ClusterState
from phalanx.scheduling.actions.reserved_turns import promises
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.reservations.advance_grant import AdvanceGrant
from phalanx.scheduling.reservations.plan import ReservationPlan
from phalanx.scheduling.reservations.stored import StoredGrant, StoredReservation, StoredStarts
from phalanx.scheduling.session.cycle_history import CycleHistory
from phalanx.scheduling.session.session import Session


class PlanRecord:
    """The plan of a scheduler in words that another process understands."""

    def __init__(self, state: ClusterState, history: CycleHistory) -> None:
        self._state = state
        self._history = history
        self._promises: list[StoredReservation] = []
        self._grants: list[StoredGrant] = []
        self._as_of = 0

    def plan_under(self, policy: Policy) -> ReservationPlan | None:
        """The plan goes on under another policy that keeps starts as well."""
        plan, settings = self._history.reservations, policy.reservations
        if settings is None and not self.advance_wanted:
            self._promises = []
            return None
        settings = settings or ReservationSettings(keeps_starts=False)
        if plan is None:
            return ReservationPlan(self._state, settings)
        plan.configure(settings)
        return plan

    @property
    def advance_wanted(self) -> bool:
        """Whether there are advance reservations to be followed, whatever the policy keeps."""
        plan = self._history.reservations
        followed = plan is not None and plan.advance.wanted
        return bool(self._state.objects.advance) or bool(self._grants) or followed

    def promised(self) -> tuple[int, list[StoredReservation], list[StoredGrant]]:
        """(a number that grows with every change, the starts that are promised, the advance reservations that are
        granted), to be remembered."""
        plan = self._history.reservations
        return (plan.version if plan is not None else 0), self._promises, self._grants

    def advance_grants(self) -> Mapping[str, AdvanceGrant]:
        """How advance reservations stand, by name."""
        plan = self._history.reservations
        return plan.advance.grants if plan is not None else {}

    def observed_starts(self) -> StoredStarts:
        """How waits compare with what was told, to be remembered with the promises."""
        plan = self._history.reservations
        if plan is None:
            return StoredStarts()
        return StoredStarts(plan.starts.calibration.starts, plan.starts.forecasts.calibration.starts)

    def recall_grants(self, grants: Sequence[StoredGrant]) -> None:
        """What an earlier process had granted; it stands again once there is a plan."""
        self._grants = list(grants)

    def recall(self, stored: Sequence[StoredReservation], starts: StoredStarts | None) -> None:
        """What an earlier process had promised stands again, and what it has observed counts."""
        plan = self._history.reservations
        if plan is None:
            return
        if self._grants:
            plan.advance.recall(self._grants)
        if starts is not None:
            plan.starts.calibration.recall(starts.promised)
            plan.starts.forecasts.calibration.recall(starts.forecast)
        if stored:
            plan.recall(stored)
            self._promises = list(stored)

    def remember(self, session: Session) -> None:
        """Takes note of what a cycle has changed."""
        plan = session.reservations
        if plan is not None and plan.version != self._as_of:
            self._promises, self._as_of = promises(session), plan.version
            self._grants = plan.advance.stored()
