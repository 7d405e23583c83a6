"""Execution of scheduling plans: submits writes and applies their outcomes to the state."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import Condition, PodObject
from phalanx.dialects.gangs.held_room import HELD_ROOM
from phalanx.execution.binder import BindOutcome, BindResult, Guard
from phalanx.execution.conditions import ADMITTED, POD_SCHEDULED, PodConditions
from phalanx.execution.disruptions import Disruptions
from phalanx.execution.evictor import EvictGuard, EvictionOutcome, EvictResult
from phalanx.execution.preparation import Preparations
from phalanx.kube.conditions import PodCondition
from phalanx.kube.failures import Failures
from phalanx.model.decisions import Bind, Evict, Nominate, Plan
from phalanx.model.pod import MemberState
from phalanx.model.verdict import WAITING_FOR_VOLUMES
from phalanx.model.verdict_condition import LAST_VERDICT
from phalanx.status.plan_publisher import PlanPublisher

log = logging.getLogger(__name__)

# Pauses in seconds before a pod is placed again after its binding failed repeatedly; they double.
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 10.0
# Seconds after which a pod that the API server calls deleted or bound elsewhere is placed again, if no watch event
# comes.
_WATCH_GRACE = 30.0
# Seconds for which a pod is not evicted after its eviction was refused.
_SPARED = 60.0


class Executor:
    """Executor of scheduling plans: bindings first, then nominations and evictions.

    `publisher` publishes the outcomes. `guard` makes the last check of the bindings of one plan. `wake` requests a
    cycle. `later(seconds, call)` schedules a call. `now` returns seconds since the epoch.
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
        # Bindings of pods that count as placed until the watch shows their node.
        self._moved: dict[str, Bind] = {}

    def carry_out(self, plan: Plan) -> None:
        """Execute each part of a scheduling plan, also if another part raises."""
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
        # Slow bindings are nominated: other units do not use their resources, and a restart finds the node.
        slow = [
            Nominate(bind.uid, bind.namespace, bind.name, bind.node, bind.cause, gang=bind.gang, held=bind.held)
            for bind in plan.binds
            if bind.preparations
        ]
        if plan.nominations or plan.evictions or slow:
            bound = {bind.uid for bind in plan.binds}
            # A binding clears the nomination, also one that the same plan had made before.
            self.evict(plan.evictions, [*(entry for entry in plan.nominations if entry.uid not in bound), *slow])

    def evict(self, evictions: Sequence[Evict], nominations: Sequence[Nominate] = ()) -> None:
        """Submit evictions and nominations; the nominations of a decision are written before its victims are
        evicted.

        Decisions with the same reason have the same cause.
        """
        self._publisher.evictions_decided(evictions, nominations)
        self._disruptions.submit(nominations, evictions)

    def evicted(self, result: EvictResult) -> None:
        """Apply the outcome of an eviction to the state: the API server has accepted it, or it will not happen."""
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
        """Apply the outcome of a binding to the state."""
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
            self._later(_WATCH_GRACE, lambda: self._stop_waiting(bind))
            return
        if bind.preparations:
            self._disruptions.submit([Nominate(bind.uid, bind.namespace, bind.name, "", bind.cause)], ())
        failures = self._failures.get(bind.uid, 0)
        self._failures[bind.uid] = failures + 1
        self._publisher.binding_refused(bind, result.message)
        text = f"binding to node {bind.node} failed: {result.message}"
        self._conditions.set_conditions(bind.uid, PodCondition(POD_SCHEDULED, "False", "SchedulerError", text))
        if failures == 0:
            self._requeue(bind)
        else:
            self._later(min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (failures - 1)), lambda: self._requeue(bind))

    def delayed(self, bind: Bind, text: str) -> None:
        """Publish what a binding waits for. No autoscaler reacts to this reason: new nodes would not help."""
        if bind.uid in self._state.pods:
            condition = PodCondition(POD_SCHEDULED, "False", WAITING_FOR_VOLUMES, text)
            self._conditions.set_conditions(bind.uid, condition)

    def pod_seen(self, pod: PodObject) -> None:
        """Update the record of written conditions from a pod event, before the state applies the event."""
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
                return  # nothing was published about the pod, so nothing has to be removed: the common case
        self._conditions.observe(
            metadata.uid,
            metadata.namespace,
            metadata.name,
            metadata.resource_version,
            _published(conditions) if conditions else (),
            nominated=pod.status.nominated_node_name,
            room=metadata.annotations.get(HELD_ROOM, ""),
            waits=waits,
            generation=metadata.generation,
            observed=_observed(conditions) if conditions else 0,
        )

    def pod_gone(self, uid: str) -> None:
        self._conditions.forget(uid)
        self._disruptions.forget(uid)
        self._failures.pop(uid, None)
        self._moved.pop(uid, None)

    def _stop_waiting(self, bind: Bind) -> None:
        if self._moved.pop(bind.uid, None) is bind:
            self._requeue(bind)

    def _requeue(self, bind: Bind) -> None:
        record = self._state.pods.get(bind.uid)
        if record is not None and record.state is MemberState.ASSUMED:
            self._state.pods.binding_failed(bind.uid)
            self._wake()


def _published(conditions: Iterable[Condition]) -> list[PodCondition]:
    """Return the conditions of a pod that schedulers publish."""
    return [
        PodCondition(condition.type, condition.status, condition.reason, condition.message)
        for condition in conditions
        if condition.type in (POD_SCHEDULED, ADMITTED, LAST_VERDICT)
    ]


def _observed(conditions: Iterable[Condition]) -> int:
    """Return the generation of a pod that its condition PodScheduled is about; 0 for none."""
    return next((entry.observed_generation for entry in conditions if entry.type == POD_SCHEDULED), 0)


def gone_guard(state: ClusterState) -> EvictGuard:
    """Return a check that skips the eviction of pods that are terminating or deleted already."""

    def guard(evict: Evict) -> EvictionOutcome | None:
        record = state.pods.get(evict.uid)
        if record is None or record.pod.terminating or record.pod.finished:
            return EvictionOutcome.GONE
        return None

    return guard


def already_condemned(state: ClusterState, scheduler: str) -> Callable[[str], bool]:
    """Return a predicate, by uid, of pods that this scheduler has already marked for eviction."""

    def condemned(uid: str) -> bool:
        record = state.pods.get(uid)
        return record is not None and record.pod.condemned == scheduler

    return condemned


def _later(seconds: float, call: Callable[[], None]) -> object:
    return asyncio.get_running_loop().call_later(seconds, call)
