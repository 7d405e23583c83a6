"""The cycle of the scheduler: from changes of the cluster to a plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from phalanx.cluster.state import ClusterState
from phalanx.model.clock import whole_seconds
from phalanx.model.decisions import Plan
from phalanx.model.verdict import gang_object
from phalanx.scheduling.actions.allocate import walk
from phalanx.scheduling.diagnosis.verdicts import not_considered
from phalanx.scheduling.framework.plugin_runtime import PluginRuntime
from phalanx.scheduling.framework.policy import Policy
from phalanx.scheduling.ordering.failures import ask_plugins, guarded, report_failure
from phalanx.scheduling.ordering.fifo import unready_heads
from phalanx.scheduling.ordering.ranks import drifting_rank, order_units, rank_unit
from phalanx.scheduling.ordering.share_changes import search_again_after_changes, search_again_in_freed_room
from phalanx.scheduling.placement.placer import build_placer
from phalanx.scheduling.policy.registry import builtin_actions, cycle_plugins
from phalanx.scheduling.preemption.reclaimable_estimate import ReclaimableEstimate
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unit import QueuedUnit, UnitKinds
from phalanx.scheduling.quota.usage_history import UsageHistory
from phalanx.scheduling.rechecks import recheck, room_bound
from phalanx.scheduling.refusals.refusal import pod_object
from phalanx.scheduling.session.cycle_features import CycleFeatures
from phalanx.scheduling.session.cycle_history import CycleHistory
from phalanx.scheduling.session.session import Memo, Session
from phalanx.scheduling.units.kinds import UNIT_KINDS

# Seconds for which a third-party action is skipped after it has raised an exception.
_ACTION_REST = 60.0


def never() -> bool:
    return False


def untimed(stage: str) -> None:
    """Default of `stage`: do not time the stages of a cycle."""


class Scheduler:
    """Planner over one `ClusterState`. It is deterministic: the same history and the same `now` give the same
    plans.

    With `refresh_verdicts` the verdicts of waiting units are kept up to date; a simulation, which has no readers,
    can skip this. `features` are the parts of the cycle besides order and placement (policy/registry.py), `kinds`
    the kinds of units (units/kinds.py).
    """

    def __init__(
        self, state: ClusterState, policy: Policy, refresh_verdicts: bool = True, kinds: UnitKinds = UNIT_KINDS
    ) -> None:
        self.state = state
        self._refresh_verdicts = refresh_verdicts
        self.queue = SchedulingQueue(state, kinds)
        # The decay of the policy applies from the start, so that usage loaded from a former process decays too.
        self.cycle_history = CycleHistory(UsageHistory(policy.usage_decay.half_life, policy.usage_decay.denied))
        self.features = CycleFeatures(cycle_plugins(state, self.queue, self.cycle_history))
        self._actions = builtin_actions()
        self._cycles = 0
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Switch to another policy and activate all waiting units.

        Raises PolicyError if a plugin cannot be used in this cluster; then the former policy stays in force.
        """
        plugin_runtime = PluginRuntime(policy)
        self.placer = build_placer(plugin_runtime, self.state.nodes)
        self.features.configure(policy)
        self.policy, self.plugin_runtime = policy, plugin_runtime
        self._close_reserved_room()
        self._memory = Memo()
        self.cycle_history.forget_failed_searches()
        self._time_key: tuple[Hashable, ...] = ()
        self._next_wake: float | None = None
        self._failed_actions: dict[str, float] = {}
        # The plugins with timers have not been called yet.
        self._due = bool(self.plugin_runtime.plugins("next_wake"))
        self.queue.activate_everything()

    def _close_reserved_room(self) -> None:
        """Update the reserved room for placements and verdicts."""
        self.placer.reserved = self.plugin_runtime.reserved = self.features.reserved_room()

    @property
    def history(self) -> UsageHistory:
        """Past usage of accounts."""
        return self.cycle_history.history

    @property
    def idle(self) -> bool:
        """True if a cycle now would neither plan nor publish anything."""
        return not self._due and not self.features.outdated and self.queue.idle_but_for_news(self._refresh_verdicts)

    @property
    def next_recheck(self) -> float | None:
        """Time of the next cycle that is needed without events, in seconds since the epoch; None if there is
        none.
        """
        times = (self.queue.next_recheck, self._next_wake, self.features.next_due)
        return min((when for when in times if when is not None), default=None)

    def activate_due(self, now: float) -> None:
        """Activate the units and features that are due at `now`; `idle` does not read the clock."""
        now = whole_seconds(now)
        self.queue.activate_due(now)
        times = (self._next_wake, self.features.next_due)
        self._due = self._due or any(when is not None and when <= now for when in times)

    def observe(self, now: float) -> None:
        """Record the usage of accounts from `now` on if it counts: with a policy with usage decay, or an account
        with a budget.

        The caller calls this whenever pods were added or removed.
        """
        self.features.observe(whole_seconds(now))

    def cycle(
        self, now: float, should_stop: Callable[[], bool] = never, stage: Callable[[str], None] = untimed
    ) -> Plan:
        """Plan one cycle at `now` (seconds since the epoch) and return the plan.

        A clock may have fractions: each method with a `now` converts it, and whole seconds count from there on.

        `should_stop` is called between transactions; `stage` is called with the name of each stage that begins:
        pop, order, act_ and an action, requeue, publish. The plan contains only new verdicts: an unchanged verdict
        is repeated only if the gang has a new pending member.
        """
        now = whole_seconds(now)
        self._cycles += 1
        self._due = False
        self.state.pods.stories.now, self.state.pods.stories.cycle = now, f"c{self._cycles}"
        # 1. Pop the units that could be placed: changed units, and as many unschedulable ones as could have room.
        stage("pop")
        session = self.begin(now, should_stop)
        self._pop_units(session)
        # 2. Order them: repairs first, then by the plugins' keys, then by age and name.
        stage("order")
        order_units(session)
        self._restore_units_without_search(session)
        # 3. Run the actions of the policy.
        for action in self.policy.actions:
            if session.plan.complete:
                stage(f"act_{action}")
                self._act(session, action)
        for name, act in (("lend", self.features.lend), ("evict_ended", self.features.evict_ended)):
            stage(f"act_{name}")
            if session.plan.complete:
                act(session, guarded)
        # 4. Requeue: units without room wait for a change, units without a turn stay active.
        stage("requeue")
        self._requeue_units(session)
        self.observe(now)
        # 5. Publish new verdicts, and refresh outdated ones.
        stage("publish")
        self._publish(session)
        return session.plan

    def begin(self, now: float, should_stop: Callable[[], bool] = never) -> Session:
        """Advance the time to `now`: end expired reservations, activate due units. Return a session."""
        now = whole_seconds(now)
        self.features.advance(now)
        self._close_reserved_room()
        self.observe(now)
        self.queue.activate_due(now)
        session = self.new_session(now, should_stop)
        self._update_time(session)
        return session

    def _pop_units(self, session: Session) -> None:
        self.queue.activate([*self.features.wake(session), *unready_heads(session)])
        self._session = session  # whose limits the plan of reservations reads until the next cycle
        if self.policy.eviction.active and not self._refresh_verdicts:
            search_again_in_freed_room(session)  # rechecks of verdicts find that otherwise
        session.units = self.queue.pop_active(partial(room_bound, session), drifting_rank(session))
        self.queue.activate(list(self.features.wake_behind(session)))
        session.units += self.queue.pop_active(partial(room_bound, session))
        self.features.begin(session)
        session.decisions.withdraw_nominations(self.queue.pop_orphaned_nominations())

    def new_session(self, now: float, should_stop: Callable[[], bool] = never) -> Session:
        """Return a session of the cluster at `now` with an empty plan."""
        plan = Plan(self._cycles, [], [], [], [], [], [])
        session = Session(
            self.state,
            self.plugin_runtime,
            self.placer,
            self.queue,
            plan,
            whole_seconds(now),
            should_stop,
            self._memory,
            self.cycle_history,
            self.features,
        )
        session.walk = walk
        session.reclaimable = ReclaimableEstimate().reclaimable_amounts
        return session

    def waiting_units(self, session: Session) -> list[QueuedUnit]:
        """Return all waiting units with their ranks, for queries; no unit is popped."""
        units = self.queue.all_units()
        for unit in units:
            rank_unit(session, unit)
        return units

    def _update_time(self, session: Session) -> None:
        """Invalidate all nodes and activate all units if the time has changed the eligibility of nodes."""
        time_key = ask_plugins(
            session, "the time", partial(self.plugin_runtime.time_key, session.now), self._time_key
        )
        if time_key != self._time_key:
            self._time_key = time_key
            self.placer.invalidate()
            self.cycle_history.forget_failed_searches()
            self.queue.activate_everything()

    def _act(self, session: Session, action: str) -> None:
        custom = self.policy.custom_actions.get(action)
        if custom is not None and session.now < self._failed_actions.get(action, 0.0):
            return
        marks = session.decisions.begin_turn()
        try:
            (self._actions[action] if custom is None else custom.execute)(session)
        except Exception as error:
            if custom is not None:
                # A retry at once would roll back and raise without end.
                self._failed_actions[action] = session.now + _ACTION_REST
                session.decisions.undo_turn(marks)
            report_failure(session, f"action {action}", error)

    def _restore_units_without_search(self, session: Session) -> None:
        """Return units to the session that were refused in an earlier cycle before a search for victims."""
        for unit, demand, fit_error in self.queue.pop_unasked():
            if unit.key not in session.unschedulable:
                rank_unit(session, unit)
                session.unasked.append(unit)
                session.set_unschedulable(unit, demand, fit_error)

    def _requeue_units(self, session: Session) -> None:
        evicts = self.policy.eviction.active
        for unit in (*session.units, *session.unasked):
            if unit.key in session.unschedulable:
                demand, fit_error = session.unschedulable[unit.key]
                self.queue.add_unschedulable(unit, demand, fit_error)
                if evicts and unit.key not in session.asked:
                    self.queue.ask_preemption_later(unit.key)
                if demand.changes_in_time:
                    read_time = partial(session.recheck_at, unit)
                    when = ask_plugins(session, f"the time of {unit.name}", read_time, None)
                    if when is not None:
                        self.queue.recheck_at(unit, when)
            elif not session.plan.complete and unit.key not in session.attempted:
                self.queue.requeue(unit)
            elif unit.key not in session.attempted and not session.decisions.has_verdict(unit):
                self._not_considered(session, unit)
        for gang in self.queue.pop_satisfied():
            session.decisions.set_gang_verdict(gang, None)
        if session.set_aside:
            self.queue.set_aside(session.set_aside)
        if evicts:
            search_again_after_changes(session, self._refresh_verdicts)

    def _publish(self, session: Session) -> None:
        """Publish new verdicts, also of rechecks, and read the plugins' next timers."""
        if session.plan.complete and self._refresh_verdicts:
            recheck(session)
        self.features.revise(session, guarded)
        session.decisions.publish_verdicts()
        self.features.published(session, guarded)
        self._next_wake = ask_plugins(
            session, "the next wake", partial(self.plugin_runtime.next_wake, session), None
        )
        if self.plugin_runtime.enable_all():
            # Scores were computed without the plugins that failed in this cycle.
            self.placer.invalidate()

    def _not_considered(self, session: Session, unit: QueuedUnit) -> None:
        """Set the verdict of a unit that no action of the policy places."""
        if unit.pod is not None:
            session.decisions.set_pod_verdict(
                unit.pod, not_considered(f"pod {unit.pod.pod.key}", self.policy.actions, (pod_object(unit.pod),))
            )
        for gang in unit.gangs:
            verdict = not_considered(f"gang {gang.title}", self.policy.actions, (gang_object(gang.key),))
            session.decisions.set_gang_verdict(gang, verdict)
