"""Turns plans into writes, and what became of them into knowledge."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import PodObject
from phalanx.execution.binder import BindOutcome, BindResult, Guard
from phalanx.execution.conditions import ADMITTED, POD_SCHEDULED, PodConditions
from phalanx.execution.disruptions import Disruptions
from phalanx.execution.evictor import EvictGuard, EvictionOutcome, EvictResult
from phalanx.execution.preparation import Preparations
from phalanx.kube.conditions import PodCondition
from phalanx.kube.failures import Failures
from phalanx.model.decisions import Bind, Evict, Nominate, Plan
from phalanx.model.pod import MemberState
from phalanx.model.verdict_condition import LAST_VERDICT
from phalanx.status.plan_publisher import PlanPublisher

log = logging.getLogger(__name__)

# A binding that fails again and again waits this long before its pod is placed anew, doubling (seconds).
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0
# What the API calls gone but the watch has not told us yet is placed anew after this long at the latest.
_WATCH_GRACE = 30.0
# A pod whose eviction was refused is left alone for so long (seconds).
_SPARED = 60.0


class Executor:
    """Binds at once, promises and evicts next; `publisher` tells what is done.

    `guard` makes, for the bindings of one plan, the last check before each is posted. `wake` asks for another
    cycle. `later(seconds, call)` calls back. `now` gives seconds since the epoch.
    """

    def __init__(
        self,
        state: ClusterState,
        binder: Preparations,
        disruptions: Disruptions,
        conditions: PodConditions,
        publisher: PlanPublisher,
        *,
        guard: Callable[[], Guard],
        wake: Callable[[], None],
        later: Callable[[float, Callable[[], None]], object] | None = None,
        now: Callable[[], float] = time.time,
        failures: Failures | None = None,
    ) -> None:
        self._errors = failures or Failures()
        self._state = state
        self._binder = binder
        self._disruptions = disruptions
        self._conditions = conditions
        self._publisher = publisher
        self._now = now
        self._guard = guard
        self._wake = wake
        self._later = later or _later
        self._failures: dict[str, int] = {}
        # Bindings whose pod we count as placed only until the watch tells where it went.
        self._moved: dict[str, Bind] = {}

    def carry_out(self, plan: Plan) -> None:
        """Each part of a plan, whatever the others raise."""
        self._errors.guard("executor", "bindings", lambda: self._bind(plan))
        self._errors.guard("executor", "evictions", lambda: self._disrupt(plan))
        self._publisher.plan_decided(plan)

    def _bind(self, plan: Plan) -> None:
        try:
            self._binder.submit(plan.binds, self._guard())
        except Exception:
            for bind in plan.binds:
                self._state.pods.binding_failed(bind.uid)
            raise
        self._publisher.bindings_posted(plan.binds)
        for bind in plan.binds:
            self._moved.pop(bind.uid, None)
            self._conditions.binding_submitted(bind.uid)
            self._disruptions.release(bind.uid)

    def _disrupt(self, plan: Plan) -> None:
        # What takes a while is written down: others leave the room alone, and a restart finds where it was.
        slow = [
            Nominate(bind.uid, bind.namespace, bind.name, bind.node, bind.cause)
            for bind in plan.binds
            if bind.preparations
        ]
        if plan.nominations or plan.evictions or slow:
            bound = {bind.uid for bind in plan.binds}
            # A binding clears the nomination, also one that the same plan had made before.
            self.evict(plan.evictions, [*(entry for entry in plan.nominations if entry.uid not in bound), *slow])

    def evict(self, evictions: Sequence[Evict], nominations: Sequence[Nominate] = ()) -> None:
        """What was decided for the same reason has the same cause; room is promised before it is cleared."""
        self._publisher.evictions_decided(evictions, nominations)
        self._disruptions.submit(nominations, evictions)

    def evicted(self, result: EvictResult) -> None:
        """Called once per eviction, when it has been taken as an order or will not happen."""
        evict, now = result.evict, self._now()
        self._publisher.eviction_answered(result)
        if result.outcome in (EvictionOutcome.EVICTED, EvictionOutcome.GONE):
            return
        refused = result.outcome is EvictionOutcome.REFUSED
        if refused:
            log.warning("evicting %s/%s: %s", evict.namespace, evict.name, result.message)
        self._state.pods.eviction_refused(evict.uid, now + _SPARED if refused else now)
        self._wake()

    def bound(self, result: BindResult) -> None:
        """Called by the binder, once per binding."""
        bind = result.bind
        self._publisher.binding_answered(bind, result.outcome is BindOutcome.BOUND)
        if result.outcome is BindOutcome.BOUND:
            self._failures.pop(bind.uid, None)
            return
        log.warning("binding %s/%s to %s: %s", bind.namespace, bind.name, bind.node, result.message)
        if bind.uid not in self._state.pods:
            return
        if result.outcome is BindOutcome.MOVED:
            self._moved[bind.uid] = bind
            self._later(_WATCH_GRACE, lambda: self._give_up(bind))
            return
        if bind.preparations:
            self._disruptions.submit([Nominate(bind.uid, bind.namespace, bind.name, "", bind.cause)], ())
        failures = self._failures.get(bind.uid, 0)
        self._failures[bind.uid] = failures + 1
        self._publisher.binding_refused(bind, result.message)
        text = f"binding to node {bind.node} failed: {result.message}"
        self._conditions.set_conditions(bind.uid, PodCondition(POD_SCHEDULED, "False", "SchedulerError", text))
        if failures == 0:
            self._forget(bind)
        else:
            self._later(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (failures - 1)), lambda: self._forget(bind))

    def pod_seen(self, pod: PodObject) -> None:
        """A pod as the API holds it; to be told before the state learns of it."""
        spec, metadata, conditions = pod.spec, pod.metadata, pod.status.conditions
        if spec.scheduler_name not in self._state.schedulers:
            return
        waits = not (
            spec.node_name
            or spec.scheduling_gates
            or metadata.deletion_timestamp
            or pod.status.phase in ("Succeeded", "Failed")
        )
        if not waits:
            self._disruptions.release(metadata.uid)
            if metadata.uid not in self._conditions and ADMITTED not in pod.condition_types():
                return  # nothing was said about it, and nothing is to be taken back: so it is with most
        self._conditions.observe(
            metadata.uid,
            metadata.namespace,
            metadata.name,
            metadata.resource_version,
            [
                PodCondition(condition.type, condition.status, condition.reason, condition.message)
                for condition in conditions
                if condition.type in (POD_SCHEDULED, ADMITTED, LAST_VERDICT)
            ],
            nominated=pod.status.nominated_node_name,
            waits=waits,
            generation=metadata.generation,
            observed=next((each.observed_generation for each in conditions if each.type == POD_SCHEDULED), 0),
        )

    def pod_gone(self, uid: str) -> None:
        self._conditions.forget(uid)
        self._disruptions.forget(uid)
        self._failures.pop(uid, None)
        self._moved.pop(uid, None)

    def _give_up(self, bind: Bind) -> None:
        if self._moved.pop(bind.uid, None) is bind:
            self._forget(bind)

    def _forget(self, bind: Bind) -> None:
        record = self._state.pods.get(bind.uid)
        if record is not None and record.state is MemberState.ASSUMED:
            self._state.pods.binding_failed(bind.uid)
            self._wake()


def gone_guard(state: ClusterState) -> EvictGuard:
    """Says of pods that leave by themselves, as far as the watch has told, that they need not be evicted."""

    def guard(evict: Evict) -> EvictionOutcome | None:
        record = state.pods.get(evict.uid)
        if record is None or record.pod.terminating or record.pod.finished:
            return EvictionOutcome.GONE
        return None

    return guard


def already_condemned(state: ClusterState, scheduler: str) -> Callable[[str], bool]:
    """Says of pods (by uid) whether they tell, as far as the watch has told, that this scheduler evicts them."""

    def condemned(uid: str) -> bool:
        record = state.pods.get(uid)
        return record is not None and record.pod.condemned == scheduler

    return condemned


def _later(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)
