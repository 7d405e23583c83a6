"""A declared cluster with its scheduler, whose cycles return placements and verdicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.model.decisions import Failure, Plan
from phalanx.model.events import GangUpdated, PodUpdated
from phalanx.model.gang import Gang
from phalanx.model.pod import MemberState, PodPhase
from phalanx.model.verdict import Verdict
from phalanx.scheduling.policy.loader import DEFAULT_POLICY, load_policy
from phalanx.scheduling.scheduler import Scheduler, never
from phalanx.testing.declared_cluster import Audit, DeclaredCluster

QUIET_CYCLES = 5
MOST_CYCLES = 50


class ClusterScenario(DeclaredCluster):
    """One cluster and its scheduler under a policy (YAML; the default policy without it).

    `cycle` runs one cycle. `settle` runs cycles until the scheduler is idle and answers them: placed pods run,
    evicted pods are deleted, groups are admitted. `plans` are the plans of all cycles.
    """

    def __init__(self, policy: str | None = None, *, audit: Audit | None = None) -> None:
        super().__init__(audit)
        self.policy = load_policy(policy if policy is not None else DEFAULT_POLICY)
        self.scheduler = Scheduler(self.state, self.policy)
        self.plans: list[Plan] = []
        self._gang_verdicts: dict[str, Verdict | None] = {}
        self._pod_verdicts: dict[str, Verdict | None] = {}

    # cycles

    def cycle(self, should_stop: Callable[[], bool] = never) -> Plan:
        """Run one cycle at `now` without answers of the API; return its plan."""
        plan = self.scheduler.cycle(self.now, should_stop)
        self.audit()
        self.plans.append(plan)
        for entry in plan.gangs:
            self._gang_verdicts[entry.gang.name] = entry.verdict
        for pod in plan.pods:
            self._pod_verdicts[pod.uid] = pod.verdict
        return plan

    def work(self) -> Self:
        """Run cycles without answers of the API until the scheduler is idle."""
        for _ in range(MOST_CYCLES):
            if self.scheduler.idle:
                return self
            self.cycle()
        raise AssertionError(f"not idle after {MOST_CYCLES} cycles")

    def confirm(self, *names: str) -> Self:
        """Let placed pods (the named ones, or all) be bound and run; without names, let groups be admitted too."""
        for uid, record in list(self.state.pods.items()):
            if record.state is MemberState.ASSUMED and not record.pod.placeholder and (not names or uid in names):
                bound = msgspec.structs.replace(record.pod, node=record.assumed_node, mark=record.mark)
                self.observe(f"pod {uid}", PodUpdated(bound))
                self.becomes(uid, phase=PodPhase.RUNNING)
        for gang in list(self.state.gangs.values()) if not names else ():
            if (gang.admitted or gang.withdrawn) and gang.spec is not None:
                self.observe(f"gang {gang.key.name}", GangUpdated(self._admission_shown(gang, gang.spec)))
        return self

    def _admission_shown(self, record: GangRecord, spec: Gang) -> Gang:
        """Return the declaration of a gang as its object shows it once its admission is written."""
        admitted_at = spec.admitted_at if spec.admitted and record.admitted else 0
        if record.admitted and not spec.admitted and not record.active:
            admitted_at = int(self.state.gangs.inqueue.admitted_at.get(record.key, 0))
        return msgspec.structs.replace(spec, admitted=record.admitted, admitted_at=admitted_at)

    def depart(self, *names: str) -> Self:
        """Delete evicted pods (the named ones, or all)."""
        for uid, record in list(self.state.pods.items()):
            if uid in names or (record.evicting and not names):
                self.gone(uid)
        return self

    def settle(self, *, after: int = 0) -> Self:
        """Run cycles with answers of the API until no work remains; evicted pods terminate after `after`
        seconds.
        """
        for _ in range(MOST_CYCLES):
            self.work()
            decided = len(self.evicted) + len(self.order)
            self.confirm()
            self.now += after
            self.depart()
            if self.scheduler.idle and decided == len(self.evicted) + len(self.order):
                return self
        raise AssertionError(f"not settled after {MOST_CYCLES} rounds")

    def run(self, quiet: int = QUIET_CYCLES) -> Self:
        """Settle, and check that `quiet` further cycles decide and publish nothing."""
        self.settle()
        self.now += 1
        for _ in range(quiet):
            plan = self.cycle()
            assert plan.complete
            decided = (plan.binds, plan.admissions, plan.gangs, plan.pods, plan.evictions, plan.nominations)
            assert decided == ([], [], [], [], [], []), f"not at rest: {decided}"
        assert self.scheduler.idle
        return self

    def restart(self) -> Self:
        """Start another scheduler process: it observes the cluster again and has no state of the former process."""
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, self.policy)
        self._gang_verdicts.clear()
        self._pod_verdicts.clear()
        for event in self.events:
            self.state.apply(event)
        self.audit()
        return self

    # the outcome

    def where(self, name: str) -> str:
        """Return the node that a pod was placed on or is bound to, "" for none."""
        record = self.state.pods[name]
        return record.assumed_node or record.pod.node

    def placed(self, prefix: str = "") -> list[str]:
        """Return the names of the pods that have a node."""
        return sorted(name for name in self.state.pods if name.startswith(prefix) and self.where(name))

    def waiting(self, prefix: str = "") -> list[str]:
        """Return the names of the pods that have no node."""
        return sorted(name for name in self.state.pods if name.startswith(prefix) and not self.where(name))

    def spread(self, prefix: str = "") -> dict[str, int]:
        """Return node -> number of the pods on it."""
        counts: dict[str, int] = {}
        for name in self.placed(prefix):
            counts[self.where(name)] = counts.get(self.where(name), 0) + 1
        return counts

    def why(self, gang: str) -> Verdict:
        """Return the verdict of a waiting gang."""
        verdict = self._gang_verdicts[gang]
        assert verdict is not None, f"gang {gang} does not wait"
        return verdict

    def why_pod(self, name: str) -> Verdict:
        """Return the verdict of a waiting pod without a gang, or of a waiting surplus member."""
        verdict = self._pod_verdicts[name]
        assert verdict is not None, f"pod {name} does not wait"
        return verdict

    @property
    def order(self) -> list[str]:
        """The pods in the order in which they were bound."""
        return [bind.name for plan in self.plans for bind in plan.binds]

    @property
    def evicted(self) -> list[str]:
        """The pods in the order in which they were evicted."""
        return [eviction.name for plan in self.plans for eviction in plan.evictions]

    @property
    def admissions(self) -> list[str]:
        """The gangs in the order in which they were admitted."""
        return [admission.gang.name for plan in self.plans for admission in plan.admissions]

    @property
    def failures(self) -> list[Failure]:
        """The errors that plugins, actions and features raised."""
        return [failure for plan in self.plans for failure in plan.failures]
