"""The cycle: from what changed to a plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Plan
from phalanx.scheduling.actions.advance import evict_ended
from phalanx.scheduling.actions.allocate import allocate, assess, walk
from phalanx.scheduling.actions.backfill import backfill
from phalanx.scheduling.actions.composite import assess_composite
from phalanx.scheduling.actions.defragment import defragment, defragmentation_candidates
from phalanx.scheduling.actions.enqueue import enqueue, objection
from phalanx.scheduling.actions.exceeded import REPORT, RETRY, evict_exceeded
from phalanx.scheduling.actions.maintenance import evict_for_maintenance
from phalanx.scheduling.actions.plan_record import PlanRecord
from phalanx.scheduling.actions.preempt import could_preempt, preempt
from phalanx.scheduling.actions.reserve import reserve
from phalanx.scheduling.actions.reserved_turns import beside_the_plan, due_units, next_in_line
from phalanx.scheduling.actions.shuffle import shuffle
from phalanx.scheduling.actions.start_forecasts import UnitStart, forecast_starts, sample_forecasts
from phalanx.scheduling.diagnosis.verdicts import not_considered
from phalanx.scheduling.framework.pipeline import Pipeline
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.framework.reservation_settings import ReservationSettings
from phalanx.scheduling.gang_placement.nominated_placement import nominated_members, nomination_verdict
from phalanx.scheduling.gang_placement.shared_verdicts import tell_unit
from phalanx.scheduling.ordering.failures import ask_plugins, report_failure, silence_plugin, try_each
from phalanx.scheduling.ordering.surplus import surplus_fit_error
from phalanx.scheduling.placement.placer import build_placer
from phalanx.scheduling.preemption.reclaimable_estimate import ReclaimableEstimate
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.signatures import (
    AdmissionSignature,
    GroupTreeSignature,
    NominatedSignature,
    PodSignature,
    QuorumSignature,
    QuotaBlocked,
    SchedulingSignature,
    SurplusSignature,
)
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import FitError, Rank
from phalanx.scheduling.quota.usage_history import UsageHistory
from phalanx.scheduling.reservations.stored import StoredGrant, StoredReservation, StoredStarts
from phalanx.scheduling.session.cycle_history import CycleHistory
from phalanx.scheduling.session.memo import Memo
from phalanx.scheduling.session.no_solution import NoSolutionCache
from phalanx.scheduling.session.session import Session

_ACTIONS: dict[str, Callable[[Session], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "preempt": preempt,
    "reclaim": preempt,
    "gangpreempt": preempt,
    "gangreclaim": preempt,
    "shuffle": shuffle,
    "defragment": defragment,
    "reserve": reserve,
    "backfill": backfill,
}
# How many demands of unschedulable units a cycle looks at again, so that what they were told stays true, and how
# many units it tells what is different now. The rest is for the next cycles.
_RECHECKS = 16
_RETOLD = 1000
# How long (seconds) an action of a third party is left out after it has raised.
_ACTION_REST = 60.0


def never() -> bool:
    return False


def untimed(stage: str) -> None:
    """Nobody wants to know how long the stages of a cycle take."""


class Scheduler:
    """Plans over one `ClusterState`. Deterministic: the same history and the same `now` give the same plans.

    What was told to those who wait is kept true if it `retells`: a simulation, in which nobody reads it, may do
    without.
    """

    def __init__(self, state: ClusterState, policy: Policy, retells: bool = True) -> None:
        self.state = state
        self._retells = retells
        self.queue = SchedulingQueue(state)
        # With the rules in force from the beginning: what a former process tells goes on fading by them.
        self.cycle_history = CycleHistory(UsageHistory(policy.usage_decay.half_life, policy.usage_decay.denied))
        self._cycles = 0
        self.plan_record = PlanRecord(state, self.cycle_history)
        self._forecast_at = 0.0
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Switches to another policy; everything that waits is looked at again.

        Raises PolicyError if a plugin cannot be used in this cluster; then the policy is what it was.
        """
        pipeline = Pipeline(policy)
        plan = self.plan_record.plan_under(policy)
        self.placer = build_placer(pipeline, self.state.nodes, self.cycle_history.node_backoff, plan)
        pipeline.reserved, self.cycle_history.reservations = plan, plan
        self.state.nodes.maintenance.configure(
            policy.heeds_maintenance_signals, (policy.reservations or ReservationSettings()).start_delay
        )
        self.policy, self.pipeline = policy, pipeline
        self._memory = Memo()
        self.cycle_history.no_solutions = NoSolutionCache()
        self._time_key: tuple[Hashable, ...] = ()
        self._next_wake: float | None = None
        self._failed_actions: dict[str, float] = {}
        # Whoever asks for cycles at certain times has not been asked for the first yet.
        self._due = bool(self.pipeline.plugins("next_wake")) or policy.defragmentation is not None
        self.queue.activate_everything()

    def recall(
        self,
        promises: Sequence[StoredReservation],
        starts: StoredStarts | None = None,
        grants: Sequence[StoredGrant] = (),
    ) -> None:
        """What an earlier process had promised and granted stands again, and what it has observed counts."""
        self.plan_record.recall_grants(grants)
        self._follow_advance()
        self.plan_record.recall(promises, starts)
        self._due = self._due or bool(promises)

    def _follow_advance(self) -> None:
        """Advance reservations need a plan, though the policy keeps no starts."""
        if self.cycle_history.reservations is None and self.plan_record.advance_wanted:
            self.use(self.policy)

    def evictions_booked(self, version: int) -> None:
        """What defragmentation is going to evict has been written down."""
        self._due = self.cycle_history.defragmentation.confirm(version) or self._due

    @property
    def history(self) -> UsageHistory:
        """What accounts have held."""
        return self.cycle_history.history

    @property
    def idle(self) -> bool:
        """Whether a cycle now would find nothing to do and nothing to say."""
        plan = self.cycle_history.reservations
        if (
            plan.outdated if plan is not None else self.state.objects.advance
        ) or self.state.nodes.maintenance.outdated:
            return False
        return self.queue.idle_but_for_news(self._retells) and not self._due

    @property
    def next_recheck(self) -> float | None:
        """When, in seconds since the epoch, a cycle has something to do although nothing has happened."""
        plan = self.cycle_history.reservations
        start = plan.next_due if plan is not None else None
        times = (
            self.queue.next_recheck,
            self._next_wake,
            self.state.pods.placeholders.next_end,
            start,
            self._next_overrun,
            self.state.nodes.maintenance.next_change,
            self.state.gangs.inqueue.next_lapse,
        )
        return min((when for when in times if when is not None), default=None)

    @property
    def _next_overrun(self) -> float | None:
        """When the next pod will have run for longer than it may, if anything is to come of that."""
        return self.state.pods.allowances.next_end if self.policy.exceeded_run_times != REPORT else None

    def refused(self, node: str, now: float) -> float:
        """The kubelet of a node refused a pod that was bound to it; until when the node is left alone."""
        self._due = True
        return self.cycle_history.node_backoff.refused(node, now)

    def activate_due(self, now: float) -> None:
        """Wakes what waits for a time that has come; `idle` knows no time."""
        self.queue.activate_due(now)
        plan = self.cycle_history.reservations
        ends = (
            self._next_wake,
            self.state.pods.placeholders.next_end,
            plan.next_due if plan is not None else None,
            self._next_overrun,
            self.state.nodes.maintenance.next_change,
            self.state.gangs.inqueue.next_lapse,
        )
        self._due = self._due or any(when is not None and when <= now for when in ends)

    def observe(self, now: float) -> None:
        """Takes note of what accounts hold from `now` on, if anybody asks for it: a policy that looks back, or an
        account with a budget. To be called whenever pods may have come or gone.
        """
        decay, ledger = self.policy.usage_decay, self.state.ledger
        changed = self.history.configure(decay.half_life, decay.denied, now)
        if decay.half_life is None and not ledger.budgeted and not changed:
            ledger.forget_moved()
            self.history.clear()
            return
        moved = ledger.take_moved()
        if moved is None or changed:
            self.history.observe_all(ledger.accounts, now)
        else:
            self.history.observe(moved.values(), now)

    def cycle(
        self, now: float, should_stop: Callable[[], bool] = never, stage: Callable[[str], None] = untimed
    ) -> Plan:
        """One cycle at `now` (seconds since the epoch). `should_stop` is asked between transactions, `stage` is
        told the name of each stage when it begins: take, order, act_ and an action, park, tell.

        Verdicts in the plan are news: what was said before and still holds is not said again, except to a gang
        that has a new pending member.
        """
        stage("take")
        self._cycles += 1
        self._follow_advance()
        self._due = False
        self.state.pods.stories.now, self.state.pods.stories.cycle = now, f"c{self._cycles}"
        if self.state.pods.placeholders:
            self._end_placeholders(now)
        self.observe(now)
        if self.state.gangs.inqueue.lapse(now):
            self.state.room_opened()
        if self.state.pods.allowances.advance(now) and self.policy.exceeded_run_times != REPORT:
            # Whoever waits may get their room.
            self.queue.activate_everything()
        session = self.new_session(now, should_stop)
        plan = session.plan
        self.queue.activate_due(now)
        planned = 0
        if session.reservations is not None:
            self.queue.activate(due_units(session))
            planned = session.reservations.version
        self.queue.activate(defragmentation_candidates(session))
        # 1. Take what may get something: what changed, and of what is unschedulable as much as there may be room
        # for.
        session.units = self.queue.pop_active(partial(_bound, session), self._ranking(session))
        if session.reservations is not None and session.units:
            self.queue.activate(next_in_line(session))
            session.units += self.queue.pop_active(partial(_bound, session))
        if session.reservations is not None:
            for unit in session.units:
                unit.reserved = session.reservations.get(unit.key) is not None
        session.decisions.withdraw_nominations(self.queue.pop_orphaned_nominations())
        # 2. Put it in order: repairs, then the plugins' keys, then age, then name.
        stage("order")
        for unit in session.units:
            if not unit.rank or self.pipeline.order_drifts:
                self._try_to_rank(session, unit)
        if session.set_aside:
            session.units = [unit for unit in session.units if unit.key not in session.tried]
        self._sort(session)
        self._recall_unasked(session)
        # 3. Act.
        for action in self.policy.actions:
            if plan.complete:
                stage(f"act_{action}")
                self._act(session, action)
        stage("act_revoke")
        left = plan.complete and self._revoke(session, evict_exceeded, "pods that exceed their run time")
        left |= plan.complete and self._revoke(session, evict_for_maintenance, "pods on nodes in maintenance")
        left |= plan.complete and self._revoke(session, evict_ended, "pods of reservations that are over")
        # 4. Park what lacks room until there may be some; what had no turn stays active.
        stage("park")
        self._settle(session)
        self.observe(now)
        # 5. Keep what was said true, and say what is new.
        stage("tell")
        if plan.complete and self._retells:
            self._recheck(session)
        if session.reservations is not None:
            self._sample_forecasts(session, session.reservations.settings.forecast_every)
            self._due = self._has_changed_plan(session, planned)
        session.decisions.publish_verdicts()
        self.plan_record.remember(session)
        times = (
            ask_plugins(session, "the next wake", partial(self.pipeline.next_wake, session), None),
            self.cycle_history.node_backoff.next_end(now),
            now + RETRY if left else None,
            self.cycle_history.defragmentation.next_wake(self.policy.defragmentation, now),
        )
        self._next_wake = min((when for when in times if when is not None), default=None)
        if self.pipeline.enable_all():
            # What nodes are worth was computed without those who were silenced.
            self.placer.invalidate()
        return plan

    def _revoke(self, session: Session, evict: Callable[[Session], bool], whom: str) -> bool:
        """Whether anybody whose time is over is still there."""
        marks = session.decisions.begin_turn()
        try:
            return evict(session)
        except Exception as error:
            session.decisions.undo_turn(marks)
            report_failure(session, whom, error)
            return True

    def _has_changed_plan(self, session: Session, version: int) -> bool:
        """Whether what is kept for whom has changed since the cycle began: then others may start now, or have to be
        told another start, in the next one."""
        plan, decided = session.reservations, session.plan
        assert plan is not None
        moved = bool(decided.binds or decided.nominations or decided.evictions)
        return plan.version != version or (moved and plan.disturbed)

    def _sample_forecasts(self, session: Session, every: int) -> None:
        due = bool(every) and session.plan.complete and session.now >= self._forecast_at
        marks = session.decisions.begin_turn()
        try:
            if sample_forecasts(session, due):
                self._forecast_at = session.now + every
        except Exception as error:
            session.decisions.undo_turn(marks)
            report_failure(session, "forecasts of starts", error)

    def _end_placeholders(self, now: float) -> None:
        """Gives back the room of members that have not come in time; while the leader itself has no node they are
        expected still."""
        for record in self.state.pods.placeholders.pop_ended(now):
            gang = record.gang
            if record.pod.expires or gang is None or gang.active:
                self.state.pods.delete(record.pod.uid)
            else:
                self.state.pods.cancel_nomination(record)

    def new_session(self, now: float, should_stop: Callable[[], bool] = never) -> Session:
        """The cluster as plugins see it at `now`, with nothing planned yet."""
        if self.state.nodes.maintenance.advance(now):
            self.state.room_opened()
        plan = Plan(self._cycles, [], [], [], [], [], [])
        session = Session(
            self.state,
            self.pipeline,
            self.placer,
            self.queue,
            plan,
            now,
            should_stop,
            self._memory,
            self.cycle_history,
        )
        session.walk = partial(walk, session)
        session.reclaimable = ReclaimableEstimate(session).reclaimable_amounts
        self._follow_time(session)
        return session

    def forecast_starts(self, now: float, should_stop: Callable[[], bool] = never) -> list[UnitStart]:
        """When everybody who waits after a cycle at `now` would start, in the order of their turns."""
        session = self.new_session(now)
        return list(forecast_starts(session, self.waiting_units(session), should_stop))

    def waiting_units(self, session: Session) -> list[QueuedUnit]:
        """Everything that asks for something, each with its rank, for those who ask; nothing moves."""
        units = self.queue.all_units()
        for unit in units:
            self._rank(session, unit)
        return units

    def _follow_time(self, session: Session) -> None:
        """Looks at every node and everything that waits again when the time alone has changed what is eligible."""
        time_key = ask_plugins(session, "the time", partial(self.pipeline.time_key, session.now), self._time_key)
        if time_key != self._time_key:
            self._time_key = time_key
            self.placer.invalidate()
            self.queue.activate_everything()

    def _act(self, session: Session, action: str) -> None:
        custom = self.policy.custom_actions.get(action)
        if custom is not None and session.now < self._failed_actions.get(action, 0.0):
            return
        marks = session.decisions.begin_turn()
        try:
            (_ACTIONS[action] if custom is None else custom.execute)(session)
        except Exception as error:
            if custom is not None:
                # Asked again at once it would undo and raise for ever.
                self._failed_actions[action] = session.now + _ACTION_REST
                session.decisions.undo_turn(marks)
            report_failure(session, f"action {action}", error)

    def _try_to_rank(self, session: Session, unit: QueuedUnit) -> None:
        try:
            self._rank(session, unit)
        except Exception:
            try_each(session, [unit], partial(self._rank, session, unit))

    def _sort(self, session: Session) -> None:
        try:
            session.units.sort(key=_by_rank)
        except Exception as error:
            report_failure(session, "order of the units", error)
            session.units.sort(key=lambda unit: (unit.rank[0], *map(str, unit.rank[-3:])))

    def _rank(self, session: Session, unit: QueuedUnit) -> None:
        if unit.pod is not None:
            pod, keys = unit.pod.pod, session.rank(unit.pod)
            unit.rank = (True, *keys, pod.created, pod.namespace, pod.name)
        else:
            repair = any(gang.marks and session.requirement(gang).repair for gang in unit.gangs)
            keys = min(session.rank(gang) for gang in unit.gangs)
            eldest = min(unit.gangs, key=_age)
            unit.rank = (not repair, *keys, _age(eldest)[0], eldest.key.namespace, eldest.key.name)
        unit.band = unit.rank[: 1 + self.pipeline.band_width]

    def _ranking(self, session: Session) -> Callable[[QueuedUnit], Rank] | None:
        """How to put unschedulable units in order again, if their order may have changed by itself."""

        def rank(unit: QueuedUnit) -> Rank:
            self._try_to_rank(session, unit)
            return unit.rank

        return rank if self.pipeline.order_drifts else None

    def _recall_unasked(self, session: Session) -> None:
        """Brings back those that were refused when the time was up before anybody could be asked to go for them."""
        for unit, demand, fit_error in self.queue.pop_unasked():
            if unit.key not in session.unschedulable:
                self._rank(session, unit)
                session.unasked.append(unit)
                session.set_unschedulable(unit, demand, fit_error)

    def _settle(self, session: Session) -> None:
        asks = self.policy.eviction.active
        for unit in (*session.units, *session.unasked):
            if unit.key in session.unschedulable:
                demand, fit_error = session.unschedulable[unit.key]
                self.queue.add_unschedulable(unit, demand, fit_error)
                if asks and unit.key not in session.asked:
                    self.queue.ask_preemption_later(unit.key)
                if isinstance(demand, AdmissionSignature | QuotaBlocked):
                    question = partial(session.recheck_at, unit)
                    when = ask_plugins(session, f"the time of {unit.name}", question, None)
                    if when is not None:
                        self.queue.recheck_at(unit, when)
            elif not session.plan.complete and unit.key not in session.tried:
                self.queue.requeue(unit)
            elif unit.key not in session.tried and not session.decisions.has_verdict(unit):
                self._not_considered(session, unit)
        for gang in self.queue.pop_satisfied():
            session.decisions.judge_gang(gang, None)
        if session.set_aside:
            self.queue.set_aside(session.set_aside)

    def _not_considered(self, session: Session, unit: QueuedUnit) -> None:
        """No action of the policy is for this unit."""
        if unit.pod is not None:
            session.decisions.judge_pod(unit.pod, not_considered(f"pod {unit.pod.pod.key}", self.policy.actions))
        for gang in unit.gangs:
            session.decisions.judge_gang(gang, not_considered(f"gang {gang.key}", self.policy.actions))

    def _recheck(self, session: Session) -> None:
        """Looks again at demands that were refused when the cluster looked otherwise."""
        retold = 0
        for _ in range(_RECHECKS):
            stale = self.queue.next_outdated()
            if stale is None or session.out_of_time():
                return
            session.count_step()
            demand, unit = stale
            marks = session.decisions.begin_turn()
            try:
                with beside_the_plan(session, unit):
                    fit_error = self._fit_error_now(session, demand, unit)
            except Exception as error:
                session.decisions.undo_turn(marks)
                if silence_plugin(session, error):
                    continue
                report_failure(session, f"another look at {unit.name}", error)
                known = self.queue.known_fit_error(demand)
                list(
                    self.queue.update_fit_error(
                        demand, FitError(known.facts if known is not None else None, self.state.version)
                    )
                )
                continue
            if fit_error is None:
                self.queue.activate_first(demand)
                return
            asker = self.queue.first_preemptor(demand)
            if asker is not None and could_preempt(session, asker, demand):
                self.queue.ask_preemption_for_all()
            for other in self.queue.update_fit_error(demand, fit_error):
                tell_unit(session, other, fit_error.facts)
                session.count_step()
                retold += 1
                if retold == _RETOLD or session.out_of_time():
                    return

    def _fit_error_now(self, session: Session, demand: SchedulingSignature, unit: QueuedUnit) -> FitError | None:
        """Why the demand cannot be met as things are now; None if it can, after all."""
        match demand:
            case PodSignature():
                return None if demand.fits(session) else FitError(*session.fit_errors.facts(demand, afresh=True))
            case SurplusSignature(kinds):
                fits = any(kind.fits(session) for kind in kinds)
                return None if fits else surplus_fit_error(session, demand, afresh=True)
            case QuorumSignature():
                return assess(session, unit, demand)
            case AdmissionSignature():
                session.forget_totals()
                waiting = next(gang for gang in unit.gangs if awaits_admission(gang))
                if not self.pipeline.admit(session, waiting):
                    return FitError(objection(session, waiting), self.state.version)
                return None
            case NominatedSignature(_, wanted, _):
                held = nominated_members(unit)
                if not held or demand.arrived(self.state.pods.unreleased) or wanted.upper_bound(session):
                    return None
                return FitError(nomination_verdict(held), self.state.version)
            case GroupTreeSignature():
                return assess_composite(session, unit, demand)
            case QuotaBlocked():
                fault = next((fault for member in unit.members if (fault := session.blocked(member))), None)
                return FitError(fault, self.state.version) if fault is not None else None
        known = session.fit_errors.known(demand)
        return FitError(known.facts if known is not None else None, self.state.version)


def _bound(session: Session, demand: SchedulingSignature, unit: QueuedUnit) -> int:
    return ask_plugins(session, f"room for {unit.name}", partial(session.upper_bound, demand, unit), 1)


def _age(gang: GangRecord) -> tuple[int, object]:
    assert gang.spec is not None
    return gang.spec.created, gang.key


def _by_rank(unit: QueuedUnit) -> Rank:
    return unit.rank
