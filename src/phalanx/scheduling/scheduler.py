"""The cycle: from what changed to a plan."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.members import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Plan
from phalanx.scheduling.actions.allocate import allocate, session_band
from phalanx.scheduling.actions.backfill import backfill
from phalanx.scheduling.actions.enqueue import enqueue
from phalanx.scheduling.pipeline import Pipeline
from phalanx.scheduling.policy import Policy
from phalanx.scheduling.session import Session
from phalanx.scheduling.work import Unit, WorkList, ordered

_ACTIONS: dict[str, Callable[[Session], None]] = {
    "enqueue": enqueue,
    "allocate": allocate,
    "backfill": backfill,
}


def never() -> bool:
    return False


class Scheduler:
    """Plans over one `ClusterState`. Deterministic: the same history and the same `now` give the same plans."""

    def __init__(self, state: ClusterState, policy: Policy) -> None:
        self.state = state
        self.work = WorkList(state)
        self._cycles = 0
        self.use(policy)

    def use(self, policy: Policy) -> None:
        """Switches to another policy; everything that waits is looked at again."""
        self.policy = policy
        self.pipeline = Pipeline(policy)
        self.placer = self.pipeline.placer(self.state.nodes)
        self.work.wake_all()

    @property
    def idle(self) -> bool:
        return self.work.idle

    def cycle(self, now: float, should_stop: Callable[[], bool] = never) -> Plan:
        """One cycle at `now` (seconds since the epoch). `should_stop` is asked between transactions."""
        # 1. Take what may get something: what changed, and what was parked if room has grown.
        units = self.work.take()
        self._cycles += 1
        plan = Plan(self._cycles, [], [], [], [])
        session = Session(self.state, self.pipeline, self.placer, units, plan, now, should_stop)
        # 2. Put it in order: repairs, then the plugins' keys, then age, then name.
        session.units = ordered(units, lambda unit: self._order(session, unit))
        # 3. Act.
        for action in self.policy.actions:
            _ACTIONS[action](session)
        # 4. Park what remains until something can help it; what had no turn stays active.
        self._settle(session)
        return plan

    def _order(self, session: Session, unit: Unit) -> tuple[object, ...]:
        if unit.pod is not None:
            pod = unit.pod.pod
            return (True, *self._keys(session, unit.pod), pod.created, pod.namespace, pod.name)
        repair = session_band(session, unit)[0]
        keys = min(self._keys(session, gang) for gang in unit.gangs)
        eldest = min(unit.gangs, key=lambda gang: (_created(gang), gang.key))
        return (repair, *keys, _created(eldest), eldest.key.namespace, eldest.key.name)

    def _keys(self, session: Session, gang: GangRecord | PodRecord) -> tuple[object, ...]:
        return tuple(plugin.gang_order(session, gang) for plugin in self.pipeline.plugins("gang_order"))

    def _settle(self, session: Session) -> None:
        complete = session.plan.complete
        judged_gangs = {verdict.gang for verdict in session.plan.gangs}
        judged_pods = {verdict.uid for verdict in session.plan.pods}
        for unit in session.units:
            if unit.pod is not None:
                seen = unit.pod.pod.uid in judged_pods
            else:
                seen = any(gang.key in judged_gangs for gang in unit.gangs)
            if complete or seen:
                self.work.park(unit)
            else:
                self.work.keep(unit)


def _created(gang: GangRecord) -> int:
    assert gang.noun is not None
    return gang.noun.created
