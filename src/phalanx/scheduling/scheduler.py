"""The cycle: from what changed to a plan."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Plan
from phalanx.scheduling.actions.allocate import allocate, assess
from phalanx.scheduling.actions.backfill import backfill
from phalanx.scheduling.actions.composite import assess_composite
from phalanx.scheduling.actions.enqueue import enqueue, objection
from phalanx.scheduling.actions.preempt import could_make_room, make_room
from phalanx.scheduling.actions.shuffle import shuffle
from phalanx.scheduling.diagnosis.verdicts import not_considered
from phalanx.scheduling.framework.pipeline import Pipeline
from phalanx.scheduling.gang_placement.nominated_placement import claimed, promise
from phalanx.scheduling.ordering.failures import attempt, mute, note
from phalanx.scheduling.ordering.shared_verdicts import tell
from phalanx.scheduling.ordering.surplus import surplus_refusal
from phalanx.scheduling.plugins.nodes.node_backoff import Rest
from phalanx.scheduling.plugins.queues.fairshare import Fairshare
from phalanx.scheduling.policy.loader import Policy
from phalanx.scheduling.preemption.reclaimable_estimate import Prospects
from phalanx.scheduling.queue.scheduling_queue import Unit, WorkList, awaits_admission
from phalanx.scheduling.queue.signatures import Admission, Alone, Awaiting, Charge, Demand, Parts, Quorum, Surplus
from phalanx.scheduling.queue.unschedulable import Rank, Refusal
from phalanx.scheduling.quota.usage_history import UsageHistory
from phalanx.scheduling.session.cycle_history import Past
from phalanx.scheduling.session.memo import Memory
from phalanx.scheduling.session.no_solution import Futility
from phalanx.scheduling.session.session import Session

_ACTIONS: dict[str, Callable[[Session], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "preempt": make_room,
    "reclaim": make_room,
    "gangpreempt": make_room,
    "gangreclaim": make_room,
    "shuffle": shuffle,
    "backfill": backfill,
}
# How many demands of parked units a cycle looks at again, so that what they were told stays true, and how many
# units it tells what is different now. The rest is for the next cycles.
_RECHECKS = 16
_RETOLD = 1000
# How long (seconds) an action of a third party is left out after it has raised.
_ACTION_REST = 60.0


def never() -> bool:
    return False


class Scheduler:
    """Plans over one `ClusterState`. Deterministic: the same history and the same `now` give the same plans."""

    def __init__(self, state: ClusterState, policy: Policy) -> None:
        self.state = state
        self.work = WorkList(state)
        # With the rules in force from the beginning: what a former process tells goes on fading by them.
        rule = policy.configured(Fairshare)
        self.past = Past(UsageHistory(*((rule.half_life, rule.denied) if rule is not None else ())))
        self._cycles = 0
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Switches to another policy; everything that waits is looked at again."""
        self.policy = policy
        for entry in policy.always:
            if isinstance(entry.plugin, Rest):
                entry.plugin.rests = self.past.rests
        self.pipeline = Pipeline(policy)
        self.placer = self.pipeline.placer(self.state.nodes)
        self._memory = Memory()
        self.past.futility = Futility()
        self._season: tuple[Hashable, ...] = ()
        self._wakes: float | None = None
        self._failed_actions: dict[str, float] = {}
        # Whoever asks for cycles at certain times has not been asked for the first yet.
        self._due = bool(self.pipeline.plugins("wakes"))
        self.work.wake_all()

    @property
    def history(self) -> UsageHistory:
        """What accounts have held."""
        return self.past.history

    @property
    def idle(self) -> bool:
        """Whether a cycle now would find nothing to do and nothing to say."""
        return self.work.idle and not self._due

    @property
    def alarm(self) -> float | None:
        """When, in seconds since the epoch, a cycle has something to do although nothing has happened."""
        times = (self.work.next_alarm, self._wakes)
        return min((when for when in times if when is not None), default=None)

    def refused(self, node: str, now: float) -> float:
        """The kubelet of a node refused a pod that was bound to it; until when the node is left alone."""
        self._due = True
        return self.past.rests.refused(node, now)

    def ring(self, now: float) -> None:
        """Wakes what waits for a time that has come; `idle` knows no time."""
        self.work.ring(now)
        self._due = self._due or (self._wakes is not None and self._wakes <= now)

    def observe(self, now: float) -> None:
        """Takes note of what accounts hold from `now` on, if anybody asks for it: a policy that looks back, or an
        account with a budget. To be called whenever pods may have come or gone.
        """
        rule, ledger = self.policy.configured(Fairshare), self.state.ledger
        half_life = rule.half_life if rule is not None else None
        changed = self.history.configure(half_life, rule is not None and rule.denied, now)
        if half_life is None and not ledger.budgeted and not changed:
            ledger.forget_moved()
            self.history.clear()
            return
        moved = ledger.take_moved()
        if moved is None or changed:
            self.history.observe_all(ledger.accounts, now)
        else:
            self.history.observe(moved.values(), now)

    def cycle(self, now: float, should_stop: Callable[[], bool] = never) -> Plan:
        """One cycle at `now` (seconds since the epoch). `should_stop` is asked between transactions.

        Verdicts in the plan are news: what was said before and still holds is not said again, except to a gang
        that has a new pending member.
        """
        self._cycles += 1
        self._due = False
        self.observe(now)
        session = self.look(now, should_stop)
        plan = session.plan
        self.work.ring(now)
        # 1. Take what may get something: what changed, and of what was parked as much as there may be room for.
        session.units = self.work.take(partial(_bound, session), self._ranking(session))
        session.unclaim(self.work.take_stray())
        # 2. Put it in order: repairs, then the plugins' keys, then age, then name.
        for unit in session.units:
            if not unit.rank or self.pipeline.order_drifts:
                self._try_to_rank(session, unit)
        if session.set_aside:
            session.units = [unit for unit in session.units if unit.key not in session.seen]
        self._sort(session)
        self._recall_unasked(session)
        # 3. Act.
        for action in self.policy.actions:
            if plan.complete:
                self._act(session, action)
        # 4. Park what lacks room until there may be some; what had no turn stays active.
        self._settle(session)
        self.observe(now)
        # 5. Keep what was said true, and say what is new.
        if plan.complete:
            self._recheck(session)
        session.announce()
        times = (self._next_wake(session), self.past.rests.next_end(now))
        self._wakes = min((when for when in times if when is not None), default=None)
        if self.pipeline.hear_all():
            # What nodes are worth was computed without those who were silenced.
            self.placer.forget()
        return plan

    def look(self, now: float, should_stop: Callable[[], bool] = never) -> Session:
        """The cluster as plugins see it at `now`, with nothing planned yet."""
        plan = Plan(self._cycles, [], [], [], [], [], [])
        session = Session(
            self.state,
            self.pipeline,
            self.placer,
            self.work,
            plan,
            now,
            should_stop,
            self._memory,
            self.past,
        )
        session.prospects = Prospects(session).of
        self._follow_time(session)
        return session

    def waiting(self, session: Session) -> list[Unit]:
        """Everything that asks for something, each with its rank, for those who ask; nothing moves."""
        units = self.work.everything()
        for unit in units:
            self._rank(session, unit)
        return units

    def _follow_time(self, session: Session) -> None:
        """Looks at every node and everything that waits again when the time alone has changed what is eligible."""
        season = self._of_season(session)
        if season != self._season:
            self._season = season
            self.placer.forget()
            self.work.wake_all()

    def _act(self, session: Session, action: str) -> None:
        custom = self.policy.custom_actions.get(action)
        if custom is not None and session.now < self._failed_actions.get(action, 0.0):
            return
        marks = session.begin_turn()
        try:
            (_ACTIONS[action] if custom is None else custom.execute)(session)
        except Exception as error:
            if custom is not None:
                # Asked again at once it would undo and raise for ever.
                self._failed_actions[action] = session.now + _ACTION_REST
                session.undo_turn(marks)
            note(session, f"action {action}", error)

    def _try_to_rank(self, session: Session, unit: Unit) -> None:
        try:
            self._rank(session, unit)
        except Exception:
            attempt(session, [unit], partial(self._rank, session, unit))

    def _sort(self, session: Session) -> None:
        try:
            session.units.sort(key=_by_rank)
        except Exception as error:
            note(session, "order of the units", error)
            session.units.sort(key=lambda unit: (unit.rank[0], *map(str, unit.rank[-3:])))

    def _next_wake(self, session: Session) -> float | None:
        while True:
            try:
                return self.pipeline.wakes(session)
            except Exception as error:
                if not mute(session, error):
                    return None

    def _of_season(self, session: Session) -> tuple[Hashable, ...]:
        while True:
            try:
                return self.pipeline.season(session.now)
            except Exception as error:
                if not mute(session, error):
                    return self._season

    def _rank(self, session: Session, unit: Unit) -> None:
        if unit.pod is not None:
            pod, keys = unit.pod.pod, session.rank(unit.pod)
            unit.rank = (True, *keys, pod.created, pod.namespace, pod.name)
        else:
            repair = any(gang.marks and session.requirement(gang).repair for gang in unit.gangs)
            keys = min(session.rank(gang) for gang in unit.gangs)
            eldest = min(unit.gangs, key=_age)
            unit.rank = (not repair, *keys, _age(eldest)[0], eldest.key.namespace, eldest.key.name)
        unit.band = unit.rank[: 1 + self.pipeline.band_width]

    def _ranking(self, session: Session) -> Callable[[Unit], Rank] | None:
        """How to put parked units in order again, if their order may have changed by itself."""

        def rank(unit: Unit) -> Rank:
            self._try_to_rank(session, unit)
            return unit.rank

        return rank if self.pipeline.order_drifts else None

    def _recall_unasked(self, session: Session) -> None:
        """Brings back those that were refused when the time was up before anybody could be asked to go for them."""
        for unit, demand, refusal in self.work.take_unasked():
            if unit.key not in session.waits:
                self._rank(session, unit)
                session.unasked.append(unit)
                session.wait(unit, demand, refusal)

    def _settle(self, session: Session) -> None:
        asks = self.policy.eviction.active
        for unit in (*session.units, *session.unasked):
            if unit.key in session.waits:
                demand, refusal = session.waits[unit.key]
                self.work.park(unit, demand, refusal)
                if asks and unit.key not in session.asked:
                    self.work.ask_later(unit.key)
                if isinstance(demand, Admission | Charge) and (when := session.alarm(unit)) is not None:
                    self.work.set_alarm(unit, when)
            elif not session.plan.complete and unit.key not in session.seen:
                self.work.keep(unit)
            elif unit.key not in session.seen and not session.judged(unit):
                self._not_considered(session, unit)
        for gang in self.work.take_content():
            session.judge_gang(gang, None)
        if session.set_aside:
            self.work.set_aside(session.set_aside)

    def _not_considered(self, session: Session, unit: Unit) -> None:
        """No action of the policy is for this unit."""
        if unit.pod is not None:
            session.judge_pod(unit.pod, not_considered(f"pod {unit.pod.pod.key}", self.policy.actions))
        for gang in unit.gangs:
            session.judge_gang(gang, not_considered(f"gang {gang.key}", self.policy.actions))

    def _recheck(self, session: Session) -> None:
        """Looks again at demands that were refused when the cluster looked otherwise."""
        retold = 0
        for _ in range(_RECHECKS):
            stale = self.work.next_stale()
            if stale is None or session.out_of_time():
                return
            session.step()
            demand, unit = stale
            marks = session.begin_turn()
            try:
                refusal = self._refusal_now(session, demand, unit)
            except Exception as error:
                session.undo_turn(marks)
                note(session, f"another look at {unit.name}", error)
                known = self.work.known(demand)
                list(
                    self.work.renew(demand, Refusal(known.facts if known is not None else None, self.state.version))
                )
                continue
            if refusal is None:
                self.work.wake(demand)
                return
            asker = self.work.asker(demand)
            if asker is not None and could_make_room(session, asker, demand):
                self.work.ask_all()
            for other in self.work.renew(demand, refusal):
                tell(session, other, refusal.facts)
                session.step()
                retold += 1
                if retold == _RETOLD or session.out_of_time():
                    return

    def _refusal_now(self, session: Session, demand: Demand, unit: Unit) -> Refusal | None:
        """Why the demand cannot be met as things are now; None if it can, after all."""
        match demand:
            case Alone():
                return None if demand.fits(session) else Refusal(*session.lack(demand, afresh=True))
            case Surplus(kinds):
                fits = any(kind.fits(session) for kind in kinds)
                return None if fits else surplus_refusal(session, demand, afresh=True)
            case Quorum():
                return assess(session, unit, demand)
            case Admission():
                session.forget_totals()
                waiting = next(gang for gang in unit.gangs if awaits_admission(gang))
                if not self.pipeline.admit(session, waiting):
                    return Refusal(objection(session, waiting), self.state.version)
                return None
            case Awaiting(_, wanted, _):
                held = claimed(unit)
                if not held or demand.arrived(self.state.lingering) or wanted.bound(session):
                    return None
                return Refusal(promise(held), self.state.version)
            case Parts():
                return assess_composite(session, unit, demand)
            case Charge():
                fault = next((fault for member in unit.members if (fault := session.held(member))), None)
                return Refusal(fault, self.state.version) if fault is not None else None
        known = session.known(demand)
        return Refusal(known.facts if known is not None else None, self.state.version)


def _bound(session: Session, demand: Demand, unit: Unit) -> int:
    try:
        return session.bound(demand, unit)
    except Exception as error:
        note(session, f"room for {unit.name}", error)
        return 1


def _age(gang: GangRecord) -> tuple[int, object]:
    assert gang.spec is not None
    return gang.spec.created, gang.key


def _by_rank(unit: Unit) -> Rank:
    return unit.rank
