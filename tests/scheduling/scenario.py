"""A small language for scenarios: nodes, gangs and pods go in, placements and verdicts come out.

`run` lets the scheduler work until it has nothing more to do, answers its bindings and admissions as an API server
and kubelets would, and then looks five more times: nothing may move and nothing new may be said. After every step
the cluster state is recounted from scratch; `observe_together` has the one exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Self

import msgspec

from phalanx.cluster.state import ClusterState
from phalanx.model.account import Account, AccountKey, Limits, Tree, limits_of
from phalanx.model.decisions import Plan
from phalanx.model.events import (
    AccountRemoved,
    AccountUpdated,
    ClusterEvent,
    GangRemoved,
    GangUpdated,
    NodeRemoved,
    NodeUpdated,
    PodRemoved,
    PodUpdated,
)
from phalanx.model.gang import ExpectedMembers, Gang, GangKey
from phalanx.model.node import Node
from phalanx.model.pod import MemberState, PlanMark, Pod, PodClass, PodPhase
from phalanx.model.resources import Requests, parse_amount, requests_of
from phalanx.model.selectors import Taint
from phalanx.model.verdict import Verdict
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler, never
from phalanx.scheduling.session.victim_class_arrays import VictimClassArrays

from ..cluster.audit import audit

NAMESPACE = "ns"
QUIET_CYCLES = 5
MOST_CYCLES = 50
MOST_AUDITED = 100

KIND_COLUMNS = (
    *("priority", "pod_priority", "other_scheduler", "daemon_or_static"),
    *("non_preemptible", "arriving", "self_protected", "limited"),
)
_RESOURCES = {"gpu": "nvidia.com/gpu", "storage": "ephemeral-storage"}

PACKING = """
actions: "enqueue, allocate, backfill"
tiers: [{plugins: [{name: priority}, {name: gang}, {name: overcommit}, {name: predicates}, {name: binpack}]}]
"""


def amounts(**quantities: object) -> Requests:
    """`cpu="500m", gpu=2` as canonical requests."""
    named = {_RESOURCES.get(name, name): quantity for name, quantity in quantities.items()}
    return requests_of({name: parse_amount(name, quantity) for name, quantity in named.items()})


def limits(quantities: dict[str, object]) -> Limits:
    """As `amounts`, zeros kept."""
    named = {_RESOURCES.get(name, name): quantity for name, quantity in quantities.items()}
    return limits_of({name: parse_amount(name, quantity) for name, quantity in named.items()})


def key(name: str) -> GangKey:
    return GangKey(NAMESPACE, name)


class Scenario:
    """One cluster and its scheduler. Names serve as uids; everything lives in one namespace."""

    def __init__(self, policy: str | None = None) -> None:
        self.policy = load_policy(policy) if policy is not None else load_policy()
        self.now = 1000
        self.namespace = NAMESPACE
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, self.policy)
        self.plans: list[Plan] = []
        self._gang_verdicts: dict[str, Verdict | None] = {}
        self._pod_verdicts: dict[str, Verdict | None] = {}
        self._observed: dict[str, ClusterEvent] = {}
        self.recreates = False
        self._heirs = 0

    # what is there

    def within(self, namespace: str) -> Self:
        """What is declared from now on lives in another namespace; names stay unique in the scenario."""
        self.namespace = namespace
        return self

    def _key(self, name: str) -> GangKey:
        known = (gang.key for gang in self.state.gangs.values() if gang.key.name == name)
        return next(known, GangKey(self.namespace, name))

    def queue(self, name: str, *, parent: str = "", **fields: object) -> Self:
        """A queue; guarantee, deserved and capability are given as `{"cpu": 4, "gpu": 1}`."""
        above = AccountKey(Tree.QUEUE, parent) if parent else None
        return self.account(AccountKey(Tree.QUEUE, name), label=f"queue {name}", parent=above, **fields)

    def elastic_quota(self, namespace: str, min: dict[str, object], max: dict[str, object]) -> Self:
        key = AccountKey(Tree.ELASTIC_QUOTA, namespace)
        return self.account(key, label=f"ElasticQuota {namespace}/quota", deserved=min, capability=max)

    def account(self, key: AccountKey, **fields: object) -> Self:
        for name in ("guarantee", "deserved", "capability", "total"):
            if isinstance(fields.get(name), dict):
                fields[name] = limits(fields[name])  # type: ignore[arg-type]
        account = Account(key, **fields)  # type: ignore[arg-type]
        return self.observe(f"account {key}", AccountUpdated(account))

    def no_account(self, key: AccountKey) -> Self:
        return self.observe(f"account {key}", AccountRemoved(key))

    def used(self, key: AccountKey, resource: str) -> int:
        self.state.ledger.refresh_sums()
        return self.state.ledger.accounts[key].used.get(_RESOURCES.get(resource, resource), 0)

    def node(
        self,
        name: str,
        *,
        labels: dict[str, str] | None = None,
        taints: Iterable[Taint] = (),
        unschedulable: bool = False,
        pods: int = 110,
        **offered: object,
    ) -> Self:
        offer = {"cpu": 64, "memory": "256Gi"} | offered
        node = Node(
            name,
            allocatable=amounts(pods=pods, **offer),
            labels=tuple(sorted((labels or {}).items())),
            taints=tuple(taints),
            unschedulable=unschedulable,
        )
        return self.observe(f"node {name}", NodeUpdated(node))

    def nodes(self, count: int, prefix: str = "n", **offered: object) -> Self:
        for number in range(1, count + 1):
            self.node(f"{prefix}{number}", **offered)  # type: ignore[arg-type]
        return self

    def no_node(self, name: str) -> Self:
        return self.observe(f"node {name}", NodeRemoved(name))

    def gang(self, name: str, minimum: int = 1, **fields: object) -> Self:
        """Declares a gang; fields left out keep what was declared before."""
        record = self.state.gangs.get(self._key(name))
        spec = record.spec if record is not None and record.spec is not None else Gang(self._key(name))
        if isinstance(fields.get("gang_group"), list):
            fields["gang_group"] = tuple(sorted(key(mate) for mate in fields["gang_group"]))  # type: ignore[attr-defined]
        spec = msgspec.structs.replace(spec, min_member=minimum, **fields)
        return self.observe(f"gang {name}", GangUpdated(spec))

    def no_gang(self, name: str) -> Self:
        return self.observe(f"gang {name}", GangRemoved(self._key(name)))

    def pod(
        self,
        name: str,
        *,
        gang: str = "",
        role: str = "",
        node: str = "",
        phase: PodPhase | None = None,
        scheduler: str = "phalanx",
        pod_class: PodClass | None = None,
        created: int | None = None,
        terminating: bool = False,
        gated: bool = False,
        priority: int = 0,
        nominated: str = "",
        problem: str = "",
        mark: PlanMark | None = None,
        queue: str = "default",
        quota: str = "",
        user: str = "",
        firm: bool = False,
        more: Mapping[str, object] | None = None,
        **requests: object,
    ) -> Self:
        """A pod; the remaining keywords are what it requests. One with a node runs unless told otherwise. `more`
        are further fields of the spec."""
        asked = amounts(**requests)
        base = pod_class or PodClass()
        base = msgspec.structs.replace(
            base, requests=asked, scored_cpu=dict(asked).get("cpu", 100), scored_memory=200
        )
        pod = Pod(
            self.namespace,
            name,
            name,
            base,
            asked,
            scheduler,
            node=node,
            phase=phase or (PodPhase.RUNNING if node else PodPhase.PENDING),
            terminating=terminating,
            gated=gated,
            priority=priority,
            created=self.now if created is None else created,
            gang=gang,
            role=role,
            nominated_node=nominated,
            mark=mark,
            problem=problem,
            queue=queue,
            quota=quota,
            user=user,
            firm=firm,
            **dict(more or {}),  # type: ignore[arg-type]
        )
        return self.observe(f"pod {name}", PodUpdated(pod))

    def pods(self, prefix: str, count: int, **fields: object) -> Self:
        for number in range(count):
            self.pod(f"{prefix}-{number}", **fields)  # type: ignore[arg-type]
        return self

    def job(
        self, name: str, members: int, minimum: int | None = None, queue: str = "default", **fields: object
    ) -> Self:
        """A gang with identical members `name-0`, `name-1` ... that it needs all of, unless told otherwise."""
        self.gang(name, members if minimum is None else minimum, created=self.now, queue=queue)
        return self.pods(name, members, gang=name, **fields)

    def becomes(self, name: str, **change: object) -> Self:
        """Something about an observed pod changes."""
        return self.observe(f"pod {name}", PodUpdated(msgspec.structs.replace(self._pod(name), **change)))

    def becomes_all(self, prefix: str, **change: object) -> Self:
        for name in [name for name in self.state.pods if name.startswith(prefix)]:
            self.becomes(name, **change)
        return self

    def finishes(self, *names: str, phase: PodPhase = PodPhase.SUCCEEDED) -> Self:
        for name in names:
            self.becomes(name, phase=phase)
        return self

    def expects(self, gang: str, count: int, *, seconds: int = 300, **fields: object) -> Self:
        """The gang's leader is going to make so many members; `expected-0` ... stand for them until then."""
        record = self.state.gangs[self._key(gang)]
        assert record.spec is not None
        self.gang(gang, record.spec.min_member, expected=ExpectedMembers(count, (), seconds))
        for number in range(count):
            name = f"{gang}-expected-{number}"
            self.pod(name, gang=gang, more={"placeholder": True, "index": number}, **fields)  # type: ignore[arg-type]
        return self

    def gone(self, *names: str) -> Self:
        for name in names:
            self.observe(f"pod {name}", PodRemoved(name))
        return self

    def observe(self, about: str, event: ClusterEvent) -> Self:
        self._observed[about] = event
        self.state.apply(event)
        audit(self.state)
        return self

    def observe_together(self, events: Sequence[tuple[str, ClusterEvent]]) -> Self:
        """Observe events of one cause. Audit the state after each event, but where there are many events only after
        the last: thousands of audits of thousands of pods show no more."""
        if not events:
            return self
        *former, last = events
        for about, event in former:
            if len(events) > MOST_AUDITED:
                self._observed[about] = event
                self.state.apply(event)
            else:
                self.observe(about, event)
        return self.observe(*last)

    @property
    def events(self) -> tuple[ClusterEvent, ...]:
        """What is known now, told from the beginning."""
        return tuple(self._observed.values())

    # what happens

    def cycle(self, should_stop: Callable[[], bool] = never) -> Plan:
        """One cycle, and no answer from the API yet."""
        plan = self.scheduler.cycle(self.now, should_stop)
        audit(self.state)
        self._kinds_are_as_if_counted_anew()
        self.plans.append(plan)
        for entry in plan.gangs:
            self._gang_verdicts[entry.gang.name] = entry.verdict
        for pod in plan.pods:
            self._pod_verdicts[pod.uid] = pod.verdict
        self._nothing_exceeds_its_node(plan)
        return plan

    def work(self) -> Self:
        """Cycles until the scheduler is idle; the API has not answered yet."""
        for _ in range(MOST_CYCLES):
            if self.scheduler.idle:
                return self
            self.cycle()
        raise AssertionError(f"not idle after {MOST_CYCLES} cycles")

    def confirm(self, *names: str) -> Self:
        """The API and the kubelets answer: placed pods (these, or all) are bound and run, groups are admitted."""
        for uid, record in list(self.state.pods.items()):
            if record.state is MemberState.ASSUMED and not record.pod.placeholder and (not names or uid in names):
                bound = msgspec.structs.replace(record.pod, node=record.assumed_node, mark=record.mark)
                self.observe(f"pod {uid}", PodUpdated(bound))
                self.becomes(uid, phase=PodPhase.RUNNING)
        for gang in list(self.state.gangs.values()) if not names else ():
            if gang.admitted and gang.spec is not None:
                self.observe(
                    f"gang {gang.key.name}", GangUpdated(msgspec.structs.replace(gang.spec, admitted=True))
                )
        return self

    def depart(self, *names: str) -> Self:
        """Pods that were told to leave (these, or all) have left. With `recreates` their controllers make new ones
        in their stead."""
        for uid, record in list(self.state.pods.items()):
            if uid in names or (record.evicting and not names):
                self.gone(uid)
                if self.recreates:
                    fresh = {
                        "node": "",
                        "phase": PodPhase.PENDING,
                        "terminating": False,
                        "mark": None,
                        "created": self.now,
                    }
                    self._heirs += 1
                    name = f"{uid.partition('~')[0]}~{self._heirs}"
                    pod = msgspec.structs.replace(record.pod, name=name, uid=name, nominated_node="", **fresh)
                    self.observe(f"pod {name}", PodUpdated(pod))
        return self

    def settle(self, *, after: int = 0) -> Self:
        """Works, and lets the API and the kubelets answer, until there is nothing left to do."""
        for _ in range(MOST_CYCLES):
            self.work()
            moved = len(self.evicted) + len(self.order)
            self.confirm()
            self.now += after
            self.depart()
            if self.scheduler.idle and moved == len(self.evicted) + len(self.order):
                return self
        raise AssertionError("it does not come to rest")

    def run(self, quiet: int = QUIET_CYCLES) -> Self:
        self.settle()
        self.now += 1
        for _ in range(quiet):
            plan = self.cycle()
            assert plan.complete
            said = (plan.binds, plan.admissions, plan.gangs, plan.pods, plan.evictions, plan.nominations)
            assert said == ([], [], [], [], [], []), f"not at rest: {said}"
        assert self.scheduler.idle
        return self

    def restart(self) -> Self:
        """A new process: all that was only in memory is gone, the world is observed anew."""
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, self.policy)
        self._gang_verdicts.clear()
        self._pod_verdicts.clear()
        for event in list(self._observed.values()):
            self.state.apply(event)
        audit(self.state)
        return self

    def observed_again(self) -> Scenario:
        """Return another scenario with a scheduler of its own, in which all is observed that is observed here."""
        again = Scenario()
        again.policy, again.now, again.namespace = self.policy, self.now, self.namespace
        again._observed = dict(self._observed)
        return again.restart()

    # what came of it

    def where(self, name: str) -> str:
        """The node that a pod was placed on or is bound to, "" if none."""
        record = self.state.pods[name]
        return record.assumed_node or record.pod.node

    def placed(self, prefix: str = "") -> list[str]:
        """The names of the pods that have a node."""
        return sorted(name for name in self.state.pods if name.startswith(prefix) and self.where(name))

    def waiting(self, prefix: str = "") -> list[str]:
        return sorted(name for name in self.state.pods if name.startswith(prefix) and not self.where(name))

    def spread(self, prefix: str = "") -> dict[str, int]:
        """node -> how many of the pods it has."""
        counts: dict[str, int] = {}
        for name in self.placed(prefix):
            counts[self.where(name)] = counts.get(self.where(name), 0) + 1
        return counts

    def why(self, gang: str) -> Verdict:
        """The verdict on a gang that waits."""
        verdict = self._gang_verdicts[gang]
        assert verdict is not None, f"gang {gang} does not wait"
        return verdict

    def why_pod(self, name: str) -> Verdict:
        verdict = self._pod_verdicts[name]
        assert verdict is not None, f"pod {name} does not wait"
        return verdict

    def content(self, gang: str) -> bool:
        """Whether the gang got what it asked for and was told so."""
        return gang in self._gang_verdicts and self._gang_verdicts[gang] is None

    def said(self, gang: str) -> bool:
        return gang in self._gang_verdicts

    @property
    def evicted(self) -> list[str]:
        """The pods that were told to leave, in order."""
        return [eviction.name for plan in self.plans for eviction in plan.evictions]

    def held(self) -> dict[str, str]:
        """pod -> the node on which room is held for it."""
        return {uid: r.nominated_node for uid, r in sorted(self.state.pods.items()) if r.nomination is not None}

    @property
    def admissions(self) -> list[str]:
        return [admission.gang.name for plan in self.plans for admission in plan.admissions]

    @property
    def order(self) -> list[str]:
        """The pods in the order in which they were bound."""
        return [bind.name for plan in self.plans for bind in plan.binds]

    def _pod(self, name: str) -> Pod:
        return self.state.pods[name].pod

    def _kinds_are_as_if_counted_anew(self) -> None:
        """What is kept from cycle to cycle about kinds of pods."""
        self.state.victim_table()
        kept, new = self.scheduler.cycle_history.victim_classes(self.state), VictimClassArrays(self.state)
        charge_paths = [[each.charge_paths[place] for place in each.charge_path.tolist()] for each in (kept, new)]
        assert charge_paths[0] == charge_paths[1]
        for name in KIND_COLUMNS:
            assert getattr(kept, name).tolist() == getattr(new, name).tolist(), name

    def _nothing_exceeds_its_node(self, plan: Plan) -> None:
        nodes = self.state.nodes
        for bind in plan.binds:
            row, cls = nodes.row(bind.node), self.state.pods[bind.uid].pod_class
            left = nodes.allocatable[cls.columns, row] - nodes.used[cls.columns, row]
            assert (left >= 0).all(), f"{bind.name} does not fit on {bind.node}"
