"""Publication of scheduling plans and their outcomes as statuses, events and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from phalanx.cluster.state import ClusterState
from phalanx.dialects.warnings import ObjectWarning
from phalanx.execution.evictor import EvictionOutcome, EvictResult
from phalanx.kube.failures import Failures
from phalanx.model.decisions import Bind, Evict, Nominate, Plan
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE
from phalanx.status.event_publisher import EventPublisher
from phalanx.status.eviction_events import EvictionEvents
from phalanx.status.group_status import GroupStatuses
from phalanx.status.verdict_publisher import VerdictPublisher


class PlanPublisher:
    """Receiver of each step of the executor, which publishes it. A failed publication does not block the others."""

    def __init__(
        self,
        state: ClusterState,
        event_publisher: EventPublisher,
        eviction_events: EvictionEvents,
        verdict_publisher: VerdictPublisher,
        statuses: GroupStatuses,
        failures: Failures | None = None,
    ) -> None:
        self._state = state
        self._event_publisher = event_publisher
        self._eviction_events = eviction_events
        self._verdict_publisher = verdict_publisher
        self._statuses = statuses
        self._failures = failures or Failures()

    def plan_decided(self, plan: Plan) -> None:
        guard, verdicts = partial(self._failures.guard, "executor"), self._verdict_publisher
        admissions = (entry.gang for entry in plan.admissions)
        for key in (*admissions, *(entry.gang for entry in plan.withdrawals)):
            guard(f"gang {key}", partial(self._statuses.touch, key))
        for gang in plan.gangs:
            guard(f"gang {gang.gang}", partial(verdicts.gang_decided, gang.gang, gang.verdict))
        for pod in plan.pods:
            guard(f"pod {pod.uid}", partial(verdicts.pod_decided, pod.uid, pod.verdict))

    def bindings_posted(self, binds: Sequence[Bind]) -> None:
        self._event_publisher.bindings_posted(binds)
        for bind in binds:
            self._verdict_publisher.forget_pod(bind.uid)

    def binding_answered(self, bind: Bind, bound: bool) -> None:
        """Publish the API server's answer to a posted binding."""
        self._event_publisher.binding_answered(bind, bound)

    def binding_refused(self, bind: Bind, message: str) -> None:
        self._event_publisher.binding_refused(bind, message)

    def evictions_decided(self, evictions: Sequence[Evict], nominations: Sequence[Nominate]) -> None:
        victims: dict[GangKey, list[Evict]] = {}
        for evict in evictions:
            if evict.gang is not None:
                victims.setdefault(evict.gang, []).append(evict)
        for key, members in victims.items():
            if self._is_whole(key, members):
                self._statuses.disrupted(key, members[0].sentence)
            self._statuses.touch(key)
        self._eviction_events.evictions_decided(evictions, nominations)

    def eviction_answered(self, result: EvictResult) -> None:
        """Publish the API server's answer to a decided eviction."""
        self._eviction_events.eviction_answered(result)
        evicted = result.outcome in (EvictionOutcome.EVICTED, EvictionOutcome.GONE)
        if not evicted and result.evict.gang is not None:
            self._statuses.touch(result.evict.gang)

    def pod_gone(self, uid: str) -> None:
        self._verdict_publisher.forget_pod(uid)

    def gang_touched(self, key: GangKey) -> None:
        """Update the published status after a change of a gang or of its members."""
        if key not in self._state.gangs:
            self._verdict_publisher.forget_gang(key)
        else:
            self._verdict_publisher.gang_touched(key)
        self._statuses.touch(key)

    def publish_warnings(self, warnings: Iterable[ObjectWarning]) -> None:
        for warning in warnings:
            self._failures.guard("executor", warning.about.name, partial(self._publish_warning, warning))

    def _publish_warning(self, warning: ObjectWarning) -> None:
        if self._concerns_us(warning):
            self._event_publisher.publish_warning(warning)

    def _concerns_us(self, warning: ObjectWarning) -> bool:
        """Return whether a warning is about a pod or PodGroup of this scheduler, or a member of its gangs."""
        about = warning.about
        if about.kind == "PodGroup":
            return self._statuses.are_ours(GangKey(about.namespace, about.name))
        record = self._state.pods.get(about.uid) if about.kind == "Pod" else None
        if record is None or record.pod.scheduler in self._state.schedulers:
            return True
        return record.gang is not None and self._statuses.are_ours(record.gang.key)

    def _is_whole(self, key: GangKey, victims: Sequence[Evict]) -> bool:
        """Return whether a plan evicts all active members of a gang."""
        gang, evicted = self._state.gangs.get(key), {evict.uid for evict in victims}
        if gang is None:
            return False
        return all(member.state not in ACTIVE or uid in evicted for uid, member in gang.members.items())
