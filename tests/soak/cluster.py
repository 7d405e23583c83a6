"""A cluster that lives long: everything that must hold is looked at in every cycle."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, cast

import msgspec

from phalanx.cluster.devices.shared import SHARED_DEVICES, Given
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.account import Limits, ResourceQuota
from phalanx.model.decisions import EvictionReason, Plan
from phalanx.model.events import (
    ClusterEvent,
    CompositeUpdated,
    GangUpdated,
    PodRejected,
    PodUpdated,
    ResourceQuotaUpdated,
)
from phalanx.model.gang import Gang, GangKey, MatchPolicy, Problem
from phalanx.model.pod import MemberState, PodPhase
from phalanx.model.promise_records import SlipCause
from phalanx.model.resources import PODS
from phalanx.scheduling.gangs.quorum import quorum_requirement
from phalanx.scheduling.reservations.outcomes import BROKEN
from phalanx.scheduling.scheduler import never
from phalanx.scheduling.start_reservations.plugin import reservation_plan

from ..scheduling.scenario import NAMESPACE, Scenario
from .records import StoredRecords

QUEUES = ("a", "b", "c")
CARD_MEMORY, CARD_COUNT = "volcano.sh/vgpu-memory", "volcano.sh/vgpu-number"
# Parts of a second by which the scheduler's clock advances; the API shows whole seconds.
_PARTS = 4
POLICIES = {
    "usual": """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: resourcequota}, {name: predicates}, {name: nodeorder},
  {name: binpack}]}]
""",
    "queues": """
actions: "enqueue, allocate, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: capacity}, {name: predicates}, {name: binpack},
            {name: deviceshare, arguments: {deviceshare.VGPUEnable: true}}]
""",
    "shares": """
actions: "enqueue, allocate, reclaim, preempt, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: proportion}, {name: predicates}, {name: nodeorder}]
""",
    "starts": """
actions: "enqueue, allocate, reserve, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: predicates}, {name: network-topology-aware},
  {name: deviceshare, arguments: {deviceshare.VGPUEnable: true}}]}]
configurations: [{name: reserve, arguments: {depth: 0, startDelaySeconds: 0}}]
phalanx: {exceededRunTimes: kill}
""",
    "all": """
actions: "enqueue, allocate, reserve, gangpreempt, preempt, reclaim, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins: [{name: fairshare}, {name: capacity}, {name: predicates}, {name: nodeorder},
            {name: deviceshare, arguments: {deviceshare.VGPUEnable: true}}]
configurations: [{name: reserve, arguments: {depth: 2, startDelaySeconds: 0, waitInsteadSeconds: 60}}]
phalanx: {exceededRunTimes: kill}
""",
}
POLICIES["unchecked"] = POLICIES["queues"]
#: Policies of lives without rechecks of verdicts, as in simulations: a unit that no change wakes stays unnoticed.
WITHOUT_RECHECKS = ("unchecked",)


class Backoff(msgspec.Struct, frozen=True):
    """Back-off of a node: its end, its number, and the last rejection, in seconds since the epoch."""

    until: int = 0
    number: int = 0
    last: int = 0

    def rejected(self, now: int) -> Backoff:
        """Return the back-off after a rejection.

        It lasts 30 s, twice as long with each further one, at most 8 min, and again 30 s after an hour without
        rejections.
        """
        if now < self.until:
            return Backoff(self.until, self.number, now)
        number = self.number if now < self.last + 3600 else 0
        return Backoff(now + min(480, 30 * 2**number), number + 1, now)


class SoakCluster(Scenario):
    """A cluster under test.

    `digest` covers all decisions so far: equal stories have equal digests. The class forgets ended objects, so
    that only the scheduler's memory can grow.
    """

    def __init__(self, policy: str) -> None:
        # Whether the next process can differ since the last comparison, and whether the state can have faults since
        # the last audit.
        self.changed = self._unaudited = True
        # Steps after which the next process was compared with this one.
        self.compared = 0
        super().__init__(POLICIES[policy])
        self.policy_text, self._rechecks = POLICIES[policy], policy not in WITHOUT_RECHECKS
        self.scheduler._refresh_verdicts = self._rechecks
        self._settles_at_once = policy != "all"
        # Whether no unit so far had ports, affinity or an order constraint.
        self.amounts_only = True
        self.binds = self.evictions = self.cycles = self.made = 0
        # Part of a second that the scheduler's clock is ahead of the API's whole seconds, and the seconds by which
        # the kubelets' clocks differ from it.
        self.fraction = 0.0
        self.skew = 0
        # Back-offs of nodes, by the documented rule: a rejection during a back-off does not extend it.
        self.backoffs: dict[str, Backoff] = {}
        # Gangs of which a deleted member had the mark of a plan: the next process cannot know whether that plan was
        # complete.
        self.lost_marks: set[GangKey] = set()
        # Hard limits of the namespace's ResourceQuota, None without one.
        self.hard: Limits | None = None
        # Suspended jobs by the name of their gang: (number of members, keywords of each pod).
        self.suspended: dict[str, tuple[int, dict[str, Any]]] = {}
        self._hash = hashlib.blake2b(digest_size=16)
        # uid -> node, of bindings without a reported failure.
        self._sent: dict[str, str] = {}
        for name in QUEUES:
            self.queue(name)
        for number in range(4):
            self.node(f"n{number}", cpu=4, gpu=2, labels={"kubernetes.io/hostname": f"n{number}"})

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    @property
    def known(self) -> Collection[str]:
        """Return the observed objects, by key."""
        return self._observed.keys()

    @property
    def clock(self) -> float:
        """Return the scheduler's time in seconds since the epoch."""
        return self.now + self.fraction

    def last_event(self, about: str) -> ClusterEvent | None:
        """Return the last event of an object."""
        return self._observed.get(about)

    def forget(self, about: str, event: ClusterEvent) -> None:
        """Remove an object."""
        self.observe(about, event)
        del self._observed[about]

    def leaves(self, name: str) -> bool:
        """Return whether a pod is evicted or terminates."""
        record = self.state.pods.get(name)
        return record is not None and (record.evicting or record.pod.terminating)

    def has(self, name: str, *states: MemberState) -> bool:
        return name in self.state.pods and self.state.pods[name].state in states

    def knows_gang(self, name: str) -> bool:
        found = self.state.gangs.get(GangKey(self.namespace, name))
        return found is not None and found.spec is not None

    # Events

    def observe(self, about: str, event: ClusterEvent) -> SoakCluster:
        self.changed = True
        super().observe(about, event)
        return self

    def audit(self) -> None:
        """Mark the state for `audit_changes`: one event of a step is audited with all others."""
        self._unaudited = True

    def audit_changes(self) -> None:
        """Audit the state if events or decisions have changed it since the last audit."""
        if self._unaudited:
            super().audit()
            self._unaudited = False

    def gone(self, *names: str) -> SoakCluster:
        records = [record for name in names if (record := self.state.pods.get(name)) is not None]
        self.lost_marks |= {
            record.gang.key for record in records if record.gang is not None and record.mark is not None
        }
        super().gone(*names)
        for name in names:
            self._sent.pop(name, None)
            self._observed.pop(f"pod {name}", None)
            self._pod_verdicts.pop(name, None)
        return self

    def no_gang(self, name: str) -> SoakCluster:
        """Delete the object of a gang: existing pods that name it get the reason that it is missing."""
        record = self.state.gangs[GangKey(self.namespace, name)]
        if record.members and record.spec is not None:
            missing = Problem("PodGroupNotFound", f"PodGroup {name} does not exist")
            self.gang(name, record.spec.min_member, problem=missing)
            return self
        super().no_gang(name)
        self._observed.pop(f"gang {name}", None)
        self._gang_verdicts.pop(name, None)
        return self

    def binding_fails(self, name: str) -> None:
        self.changed = self._unaudited = True
        self.state.pods.binding_failed(name)
        self._sent.pop(name, None)

    def wait(self, seconds: float) -> None:
        """Advance the time; the kubelet kills pods at their limit; the scheduler wakes at its own times."""
        until = self.clock + seconds
        self.scheduler.activate_due(self.clock)
        self.work()
        while self.clock < until:
            wakes = [*self._ends().values(), self.scheduler.next_recheck or until]
            later = [math.ceil(wake * _PARTS) / _PARTS for wake in wakes if self.clock < wake < until]
            self._advance_to(min(later, default=until))
            self.gone(*[uid for uid, end in self._ends().items() if end <= self.clock], *self.without_node())
            self.scheduler.activate_due(self.clock)
            self.work()

    def without_node(self) -> list[str]:
        """Return the pods on nodes that do not exist: the garbage collector deletes them as time passes."""
        records = self.state.pods.items()
        return [uid for uid, record in records if record.row < 0 and (record.pod.node or record.assumed_node)]

    def _advance_to(self, clock: float) -> None:
        self.changed = True
        self.now = math.floor(clock)
        self.fraction = clock - self.now

    def _ends(self) -> dict[str, int]:
        """Return when kubelets kill pods; the limit of a queue is enforced by the scheduler."""
        running = ((uid, record) for uid, record in self.state.pods.items() if record.state is MemberState.RUNNING)
        return {
            uid: record.pod.started + record.pod.run_time.limit
            for uid, record in running
            if record.pod.started and record.pod.run_time.limit and not record.pod.run_time.allowed
        }

    def confirm(self, *names: str) -> SoakCluster:
        for uid, record in list(self.state.pods.items()):
            if record.state is MemberState.ASSUMED and (not names or uid in names):
                taken = record.allocated.get(SHARED_DEVICES)
                if isinstance(taken, Given):
                    self.becomes(uid, cards=tuple(hold.card for share in taken.shares for hold in share))
        super().confirm(*names)
        for uid, record in list(self.state.pods.items()):
            if record.state is MemberState.RUNNING and not record.pod.started:
                self.becomes(uid, started=self.now + self.skew, bound=self.now)
        return self

    def depart(self, *names: str) -> SoakCluster:
        super().depart(*(names or [uid for uid in self.state.pods if self.leaves(uid)]))
        return self

    def show_eviction(self, uid: str) -> None:
        """Let the API show that an evicted pod terminates."""
        pod = self.state.pods[uid].pod
        self.becomes(uid, terminating=True, condemned="phalanx", leaves=self.now + pod.grace)

    def reject(self, uid: str) -> None:
        """Let the kubelet of a pod's node reject the pod: the node is closed to all pods of its namespace."""
        pod, node = self.state.pods[uid].pod, self.where(uid)
        self.backoffs[node] = self.backoffs.get(node, Backoff()).rejected(self.now)
        self.becomes(uid, node=node, phase=PodPhase.FAILED, nominated_node="")
        self.state.apply(PodRejected(node, "OutOfpods", pod.namespace, pod.pod_class, self.now))

    def answer(self) -> None:
        """Write the status of native groups and of composites that have started, and of the ResourceQuota."""
        self._count_quota()
        for gang in list(self.state.gangs.values()):
            spec = gang.spec
            native = spec is not None and spec.match_policy is MatchPolicy.UNTIL_SCHEDULED
            if spec is not None and native and not spec.once_satisfied and gang.active >= spec.min_member:
                self.observe(
                    f"gang {gang.key.name}", GangUpdated(msgspec.structs.replace(spec, once_satisfied=True))
                )
        for about, event in list(self._observed.items()):
            if isinstance(event, CompositeUpdated) and not event.composite.initiated:
                key = event.composite.key
                groups = [gang for gang in self.state.gangs.values() if gang.spec and gang.spec.composite == key]
                if sum(bool(gang.active) for gang in groups) >= event.composite.min_groups:
                    started = msgspec.structs.replace(event.composite, initiated=True)
                    self.observe(about, CompositeUpdated(started))

    def _count_quota(self) -> None:
        if self.hard is not None:
            pods = [record.pod for record in self.state.pods.values() if not record.pod.placeholder]
            alive = [pod for pod in pods if not pod.finished]
            cpu = sum(dict(pod.usage).get("cpu", 0) for pod in alive)
            quota = ResourceQuota(NAMESPACE, "quota", self.hard, (("cpu", cpu), ("pods", len(alive))))
            if self.last_event("hard quota") != (event := ResourceQuotaUpdated(quota)):
                self.observe("hard quota", event)

    def declaration_of(self, gang: GangRecord, spec: Gang) -> Gang:
        """Return the declaration of a gang as the API has it once its admission is written."""
        return self._admission_shown(gang, spec)

    def forget_expired(self) -> None:
        """Remove the placeholders that the scheduler has ended for good: their leader announces them only once."""
        pods, placeholders = self.state.pods, self.state.pods.placeholders
        for about, event in list(self._observed.items()):
            if isinstance(event, PodUpdated) and event.pod.placeholder:
                uid = event.pod.uid
                if uid not in pods and uid not in placeholders.claimed:
                    del self._observed[about]

    def restart(self) -> SoakCluster:
        """Bindings that were sent and not seen yet have arrived, or have not: the new process cannot know."""
        for uid in [uid for uid, record in self.state.pods.items() if record.state is MemberState.ASSUMED]:
            self._sent.pop(uid, None)
        self.changed = True
        records = StoredRecords.of(self.scheduler, self.state)
        self.forget_expired()
        super().restart()
        self.scheduler._refresh_verdicts = self._rechecks
        self.state.pods.load_nominations()
        records.load(self.scheduler, self.state)
        self.scheduler.activate_due(self.clock)
        return self

    # Invariants

    def cycle(self, should_stop: Callable[[], bool] = never) -> Plan:
        self.audit_changes()
        before = self._needs()
        priorities = {uid: record.pod.priority for uid, record in self.state.pods.items()}
        seconds, self.now = self.now, cast("int", self.clock)
        try:
            plan = super().cycle(should_stop)
        finally:
            self.now = seconds
        self.plans.clear()
        decided = (plan.binds, plan.evictions, plan.nominations, plan.admissions, plan.gangs, plan.pods)
        self._unaudited = any(decided)
        self.changed |= self._unaudited
        for nominate in plan.nominations:
            record = self.state.pods.get(nominate.uid)
            if record is not None and not record.pod.placeholder:
                self.becomes(nominate.uid, nominated_node=nominate.node)
                placeholders = list(record.gang.placeholders.values()) if record.gang is not None else []
                for number, placeholder in enumerate(placeholders):
                    node = nominate.held[number] if number < len(nominate.held) else ""
                    self.becomes(placeholder.pod.uid, nominated_node=node)
        self.forget_expired()
        self.cycles += 1
        self.binds += len(plan.binds)
        self.evictions += len(plan.evictions)
        self._hash.update(repr(plan).encode())
        assert not plan.failures, plan.failures
        self._gangs_start_whole(before, plan)
        self._nobody_is_bound_twice(plan)
        self._victims_are_lesser(priorities, plan)
        self._no_promise_is_broken()
        self._announced_pods_are_real()
        self.audit_changes()
        return plan

    def rest(self) -> None:
        """Schedule until idle: then no message changes, and every waiting unit has a reason.

        With promised starts and evictions, the order of overtaking units can need some more cycles.
        """
        for left in reversed(range(1 if self._settles_at_once else 5)):
            self.work()
            plan = self.cycle()
            said = (plan.binds, plan.evictions, plan.nominations, plan.admissions, plan.gangs, plan.pods)
            if not any(said):
                break
            assert left, f"something was done or said although nothing had changed: {plan}"
        for record in self.state.pods.values():
            waits = record.state is MemberState.PENDING and not record.pod.placeholder
            if waits and not record.evicting and record.nomination is None:
                told = record.last_verdict is not None
                gang = record.gang
                told |= gang is not None and gang.last_verdict is not None
                assert told, f"{record.pod.name} waits without a verdict"

    def _needs(self) -> dict[GangKey, int]:
        """Return the number of members that each gang needs to start; expected members are never bound."""
        return {
            key: quorum_requirement(gang, gang.spec).total - len(gang.starting_placeholders)
            for key, gang in self.state.gangs.items()
            if gang.spec is not None
        }

    def _gangs_start_whole(self, before: dict[GangKey, int], plan: Plan) -> None:
        counts = Counter(bind.gang for bind in plan.binds if bind.gang is not None)
        for key, placed in counts.items():
            assert placed >= before[key], f"{key} started in part: {placed} of {before[key]}"

    def _nobody_is_bound_twice(self, plan: Plan) -> None:
        for bind in plan.binds:
            former = self._sent.setdefault(bind.uid, bind.node)
            assert former == bind.node, f"{bind.name} was sent to {former} and is sent to {bind.node}"
        assert len({bind.uid for bind in plan.binds}) == len(plan.binds)

    def _victims_are_lesser(self, priorities: dict[str, int], plan: Plan) -> None:
        """Check that no pod is evicted for a unit of its queue without a higher priority, nor without a
        preemptor.
        """
        holders: dict[str, set[str]] = {}
        for each in plan.nominations:
            holders.setdefault(each.cause, set()).add(each.uid)
        for victim in plan.evictions:
            comes = holders.get(victim.cause, set())
            if victim.reason in (EvictionReason.PREEMPTED, EvictionReason.RECLAIMED):
                assert comes, f"{victim.name} is evicted for {victim.preemptor}, which has no nominated pod"
            if victim.reason is EvictionReason.PREEMPTED:
                best = max(priorities[uid] for uid in comes)
                assert priorities[victim.uid] < best, (
                    f"{victim.name} is evicted for {victim.preemptor}, whose priority is not higher"
                )

    def _announced_pods_are_real(self) -> None:
        """Check that admitted groups announce no more pods than they can still create.

        A group of which all members have ended creates no more.
        """
        announced = self.state.gangs.inqueue.uncreated(NAMESPACE).get(PODS, 0)
        most = sum(map(_still_created, self.state.gangs.values()))
        assert announced <= most, f"{announced} pods are announced, but {most} can follow"

    def _no_promise_is_broken(self) -> None:
        plan = reservation_plan(self.scheduler.features)
        if plan is not None:
            assert not plan.starts.outcomes.counts[BROKEN], "a promised start was missed without a cause"
            stuck = plan.starts.outcomes.counts[SlipCause.NOT_PLACEABLE.value]
            assert not stuck or not self.amounts_only, "a promised start was missed where only amounts count"


def _still_created(gang: GangRecord) -> int:
    """Return the number of pods of an admitted group that can follow."""
    spec = gang.spec
    if spec is None or not (spec.admission and spec.min_resources and (spec.admitted or gang.admitted)):
        return 0
    ended = gang.count(MemberState.SUCCEEDED) + gang.count(MemberState.FAILED)
    over = bool(gang.members) and ended == len(gang.members) and not spec.owned
    return 0 if over else max(0, spec.min_member - len(gang.members))
